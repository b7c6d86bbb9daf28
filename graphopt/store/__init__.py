"""What is remembered between processes: kernel times, winners, quarantined decisions."""

from graphopt.store.database import Store, environment
from graphopt.store.encoding import decisions_digest, decode_decisions, encode_decisions
from graphopt.store.engines.places import default_place
from graphopt.store.portable import export_winners, import_winners
from graphopt.store.winners import Winner

__all__ = [
    "Store",
    "Winner",
    "decisions_digest",
    "decode_decisions",
    "default_place",
    "encode_decisions",
    "environment",
    "export_winners",
    "import_winners",
]
