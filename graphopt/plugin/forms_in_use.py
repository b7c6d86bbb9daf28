"""Forms of operations as a part of `install`: put in place, taken away, and told of in the report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from graphopt.plugin.state import note, state

if TYPE_CHECKING:
    from graphopt.forms import Choice


def use_forms(names: frozenset[str]) -> None:
    """Uses forms of these names from now on; what they do enters the report."""
    if not names:
        return
    from graphopt import forms  # it imports jax

    missing = forms.install(_seen, kept=_kept, failed=_failed, names=names)
    if missing:
        note(
            f"this jax does not lower {', '.join(missing)} as graphopt expects: no other forms of them"
        )


def remove_forms() -> None:
    """Uses forms no more."""
    from graphopt import forms

    forms.remove()


def add_forms(choices: Iterable[Choice]) -> None:
    """Adds forms to the report that a compile of our own has chosen."""
    for choice in choices:
        _seen(choice)


def _seen(choice: Choice) -> None:
    if choice.form is not None and choice.times is not None:
        state.ledger.add_form(choice.form.name, choice.times.default_ns, choice.times.form_ns)


def _kept(choice: Choice) -> None:
    if choice.reason:
        state.ledger.add_operation(choice.operation.primitive, choice.reason)


def _failed(name: str, error: str) -> None:
    state.ledger.add_failed_form(name, error)
