"""Writing HLO by hand: blocks of instructions, calls inlined, constants folded, loops batched."""
