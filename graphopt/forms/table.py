"""The table of forms, and the rules that forbid them."""

from __future__ import annotations

from typing import Final

from graphopt.forms import convolutions
from graphopt.forms.element_loops import row as element_loops
from graphopt.forms.form import Form
from graphopt.forms.rows import (
    cumulative_scan,
    double_functions,
    extreme_places,
    packed_sort,
    pool_gradient,
    whole_quotients,
    wide_functions,
    window_shifts,
)
from graphopt.forms.scan_parts import row as scan_parts

FORMS: Final[tuple[Form, ...]] = (
    *convolutions.FORMS,
    cumulative_scan.FORM,
    double_functions.FORM,
    element_loops.FORM,
    extreme_places.FORM,
    packed_sort.FORM,
    pool_gradient.FORM,
    scan_parts.FORM,
    whole_quotients.FORM,
    wide_functions.FORM,
    window_shifts.FORM,
)
"""All rows. Where several may compute an operation, the one with the shortest estimate does."""

RULES: Final[dict[str, str]] = {
    **convolutions.RULES,
    **cumulative_scan.RULES,
    **double_functions.RULES,
    **element_loops.RULES,
    **extreme_places.RULES,
    **packed_sort.RULES,
    **pool_gradient.RULES,
    **scan_parts.RULES,
    **whole_quotients.RULES,
    **wide_functions.RULES,
    **window_shifts.RULES,
}
"""Rule name -> message, for all rules that forbid a form."""

ALL: Final = frozenset(form.name for form in FORMS)
"""Names of all forms."""

BY_PRIMITIVE: Final[dict[str, tuple[Form, ...]]] = {
    name: tuple(form for form in FORMS if name in form.primitives)
    for name in sorted({name for form in FORMS for name in form.primitives})
}
"""Primitive -> the rows that can compute it."""
