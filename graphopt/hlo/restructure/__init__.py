"""Operations that can be replaced: the table, its rules, and what each row writes."""

from graphopt.hlo.restructure.table import (
    CODE,
    IN_ORDER,
    ON_CALLER,
    REPLACES,
    RESTRUCTURES,
    Restructure,
    dispatch_code,
    replacing,
)

__all__ = [
    "CODE",
    "IN_ORDER",
    "ON_CALLER",
    "REPLACES",
    "RESTRUCTURES",
    "Restructure",
    "dispatch_code",
    "replacing",
]
