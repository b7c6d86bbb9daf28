"""Which forms may be used: an argument of `install`, and GRAPHOPT_FORMS in the environment."""

from __future__ import annotations

import os
from typing import Final

from graphopt.errors import ConfigError
from graphopt.forms.table import ALL

VARIABLE: Final = "GRAPHOPT_FORMS"


def names_in_use(forms: bool | str = True) -> frozenset[str]:
    """Names of the forms that may be used.

    Args:
        forms: True for all, False for none; or names with commas between: those alone, or, with a minus in
            front of each, all but those (``"-convolution-shifts"``). The environment takes away what its
            variable does not name: ``0`` all.

    Raises:
        ConfigError: there is no form of a name.
    """
    chosen = _read("1" if forms is True else "0" if forms is False else forms, "install(forms=)")
    return chosen & _read(os.environ.get(VARIABLE, ""), VARIABLE)


def _read(text: str, where: str) -> frozenset[str]:
    words = [word for word in text.replace(" ", "").split(",") if word]
    if words in ([], ["1"]):
        return ALL
    if words == ["0"]:
        return frozenset()
    named = {word.removeprefix("-") for word in words}
    without = [word for word in words if word.startswith("-")]
    if not named <= ALL or len(without) not in (0, len(words)):
        unknown = ", ".join(sorted(named - ALL)) or "names with and without a minus"
        raise ConfigError(
            what=f"no selection of forms: {unknown}",
            where=where,
            fix=f"Give 0, 1, or names of these, all with a minus in front or none: {', '.join(sorted(ALL))}.",
        )
    return ALL - named if without else frozenset(named)
