"""The errors of lazy arrays: each is a `GraphOptError` and the Python error that callers expect."""

from __future__ import annotations

from graphopt.errors import GraphOptError


class LazyError(GraphOptError):
    """The root of what lazy arrays raise; `where` names the operation and the source line."""


class LazyValueError(LazyError, ValueError):
    """Raised for operands whose shapes or values do not fit an operation."""


class LazyTypeError(LazyError, TypeError):
    """Raised for operands or dtypes that an operation does not take."""


class LazyIndexError(LazyError, IndexError):
    """Raised for an index out of range, where that can be known."""


class LazyBufferError(LazyError, BufferError):
    """Raised when an exchange of memory without a copy is asked for and impossible."""


class ExecutionError(LazyError, RuntimeError):
    """Raised when a graph cannot be compiled or run; the tensors it was for stay usable."""


class CutForbiddenError(LazyError, RuntimeError):
    """Raised under `lt.config(on_cut="raise")` by an observation that would run a graph."""


class ConversionError(LazyError, OverflowError):
    """Raised for a Python number that the dtype of its array cannot hold."""
