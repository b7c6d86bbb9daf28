"""What is remembered between processes: kernel times, winners, quarantined decisions."""

from graphopt.store.database import Store, default_path, environment
from graphopt.store.encoding import decisions_digest, decode_decisions, encode_decisions
from graphopt.store.portable import export_winners, import_winners
from graphopt.store.winners import Winner

__all__ = [
    "Store",
    "Winner",
    "decisions_digest",
    "decode_decisions",
    "default_path",
    "encode_decisions",
    "environment",
    "export_winners",
    "import_winners",
]
