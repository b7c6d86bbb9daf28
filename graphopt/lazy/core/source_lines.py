"""The user's source line behind each recorded operation and each cut."""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType
from typing import Final

Source = tuple[CodeType, int]
"""A code object and the offset of an instruction in it; its line is worked out when asked for."""

_PACKAGE: Final = str(Path(__file__).parents[1])
_internal: dict[str | None, bool] = {}
_get_frame: Final = sys._getframe


def is_internal(filename: str | None) -> bool:
    """Whether a module's file belongs to this package; answers are remembered in `_internal`."""
    known = _internal.get(filename)
    if known is None:
        known = _internal[filename] = filename is not None and filename.startswith(_PACKAGE)
    return known


def here(depth: int = 1) -> Source | None:
    """Where the user's code stands: the innermost frame outside this package.

    Frames are told by their modules: a look at the code of a frame calls every audit hook of the process.
    """
    frame = _get_frame(depth)
    while frame is not None:
        name = frame.f_globals.get("__file__")
        internal = _internal.get(name)
        if not (is_internal(name) if internal is None else internal):
            return frame.f_code, frame.f_lasti
        frame = frame.f_back  # type: ignore[assignment]
    return None


def line_of(source: Source | None) -> str:
    """``file.py:12`` of a source, or ``unknown line``."""
    if source is None:
        return "unknown line"
    code, offset = source
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= offset < end and number is not None:
            line = number
            break
    return f"{code.co_filename}:{line}"


def short_line_of(source: Source | None) -> str:
    """Like `line_of`, with the file's name alone."""
    return line_of(source).rpartition("/")[2]
