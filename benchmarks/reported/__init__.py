"""CPU slowdowns that users reported, as programs: ``python -m benchmarks.reported``."""
