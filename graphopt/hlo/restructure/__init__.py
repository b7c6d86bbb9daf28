"""Operations that can be replaced: the table, its rules, and what each row writes."""

from graphopt.hlo.restructure.table import CODE, REPLACES, RESTRUCTURES, Restructure, replacing

__all__ = ["CODE", "REPLACES", "RESTRUCTURES", "Restructure", "replacing"]
