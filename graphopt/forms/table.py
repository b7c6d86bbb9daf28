"""The table of forms, and the rules that forbid them."""

from __future__ import annotations

from typing import Final

from graphopt.forms.form import Form
from graphopt.forms.rows import cumulative_scan, depthwise_shifts, packed_sort

FORMS: Final[tuple[Form, ...]] = (depthwise_shifts.FORM, cumulative_scan.FORM, packed_sort.FORM)
"""All rows. Where several may compute an operation, the one with the shortest estimate does."""

RULES: Final[dict[str, str]] = {
    **depthwise_shifts.RULES,
    **cumulative_scan.RULES,
    **packed_sort.RULES,
}
"""Rule name -> message, for all rules that forbid a form."""

BY_PRIMITIVE: Final[dict[str, tuple[Form, ...]]] = {
    name: tuple(form for form in FORMS if name in form.primitives)
    for name in sorted({name for form in FORMS for name in form.primitives})
}
"""Primitive -> the rows that can compute it."""
