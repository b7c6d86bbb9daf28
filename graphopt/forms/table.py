"""The table of forms, and the rules that forbid them."""

from __future__ import annotations

from typing import Final

from graphopt.forms.form import Form
from graphopt.forms.rows import (
    depthwise_shifts,
    pool_gradient,
    wide_functions,
    window_shifts,
)

FORMS: Final[tuple[Form, ...]] = (
    depthwise_shifts.FORM,
    pool_gradient.FORM,
    wide_functions.FORM,
    window_shifts.FORM,
)
"""All rows. Where several may compute an operation, the one with the shortest estimate does."""

RULES: Final[dict[str, str]] = {
    **depthwise_shifts.RULES,
    **pool_gradient.RULES,
    **wide_functions.RULES,
    **window_shifts.RULES,
}
"""Rule name -> message, for all rules that forbid a form."""

BY_PRIMITIVE: Final[dict[str, tuple[Form, ...]]] = {
    name: tuple(form for form in FORMS if name in form.primitives)
    for name in sorted({name for form in FORMS for name in form.primitives})
}
"""Primitive -> the rows that can compute it."""
