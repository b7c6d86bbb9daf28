"""HLO modules as XLA hands them over: bytes, indexed instructions, tables of opcodes and configuration."""
