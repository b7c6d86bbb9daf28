"""Shapes and dtypes of results, inferred once per operation, parameters and input avals."""

from __future__ import annotations

from typing import Any, Final

import jax

from graphopt.lazy.core import dtypes, source_lines
from graphopt.lazy.core.dtypes import DType
from graphopt.lazy.core.node import Aval, Instr, Op, aval_of, tuple_aval
from graphopt.lazy.errors import LazyError, LazyTypeError, LazyValueError


def infer(op: Op, params: tuple[Any, ...], avals: tuple[Aval, ...], key: Any, device: Any) -> Instr:
    """The instruction for these inputs, entered into the operation's table under `key`.

    Raises:
        LazyValueError: the shapes do not fit.
        LazyTypeError: a dtype that the operation does not take.
    """
    try:
        device = _common_device(op, avals, device)
        if op.rule is not None:
            cast, aval = op.rule(avals, params)
        else:
            cast, aval = None, _ask_jax(op, params, avals, device)
    except LazyError:
        raise
    except (TypeError, ValueError, IndexError, NotImplementedError, AssertionError) as error:
        raise _explained(op, avals, error) from error
    return op.table.setdefault(key, Instr(op, params, avals, aval, cast))


def _common_device(op: Op, avals: tuple[Aval, ...], device: Any) -> Any:
    for aval in avals:
        if aval.device is not avals[0].device:
            raise LazyValueError(
                what=f"{op.name} of tensors on {avals[0].device} and {aval.device}",
                where=source_lines.line_of(source_lines.here()),
                fix="Move one of them with x.to_device(device).",
            )
    return avals[0].device if avals else device


def _ask_jax(op: Op, params: tuple[Any, ...], avals: tuple[Aval, ...], device: Any) -> Aval:
    with jax.enable_x64(True):
        result = jax.eval_shape(lambda *xs: op.jax(*xs, *params), *map(struct, avals))
    if isinstance(result, (tuple, list)):
        return tuple_aval(tuple(_aval(r, device) for r in result), device)
    return _aval(result, device)


def _aval(struct_: Any, device: Any) -> Aval:
    return aval_of(tuple(struct_.shape), dtypes.from_numpy(struct_.dtype), device)


def struct(aval: Aval) -> jax.ShapeDtypeStruct:
    """What jax takes in place of a value of this aval."""
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype.np)


def _explained(op: Op, avals: tuple[Aval, ...], error: Exception) -> LazyError:
    kind = (
        LazyTypeError if isinstance(error, TypeError) and _about_dtypes(error) else LazyValueError
    )
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return kind(
        what=f"{op.name}({', '.join(map(repr, avals))}): {reason}",
        where=source_lines.line_of(source_lines.here()),
        fix="Check the shapes and dtypes of the operands.",
    )


def _about_dtypes(error: Exception) -> bool:
    return "dtype" in str(error) or "type" in str(error).split(":")[0]


def broadcast(name: str, shapes: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """The shape that several broadcast to.

    Raises:
        LazyValueError: there is none.
    """
    first = shapes[0]
    if all(shape == first for shape in shapes):
        return first
    rank = max(map(len, shapes))
    result = [1] * rank
    for shape in shapes:
        for axis, length in enumerate(shape, rank - len(shape)):
            if result[axis] == 1:
                result[axis] = length
            elif length not in (1, result[axis]):
                raise LazyValueError(
                    what=f"{name}: shapes {' and '.join(map(str, shapes))} cannot be broadcast together",
                    where=source_lines.line_of(source_lines.here()),
                    fix="Make the lengths of each axis equal or 1.",
                )
    return tuple(result)


def refuse_dtypes(name: str, avals: tuple[Aval, ...], allowed: str) -> LazyTypeError:
    """The error of an operation that does not take the dtypes of its operands."""
    return LazyTypeError(
        what=f"{name} takes {allowed} dtypes, got {', '.join(str(a.dtype) for a in avals)}",
        where=source_lines.line_of(source_lines.here()),
        fix="Convert the operands with lt.astype.",
    )


KIND_SETS: Final = {
    "any": frozenset(("bool", "signed", "unsigned", "float", "complex")),
    "numeric": frozenset(("signed", "unsigned", "float", "complex")),
    "real numeric": frozenset(("signed", "unsigned", "float")),
    "floating-point": frozenset(("float", "complex")),
    "real floating-point": frozenset(("float",)),
    "complex floating-point": frozenset(("complex",)),
    "integer or boolean": frozenset(("bool", "signed", "unsigned")),
    "integer": frozenset(("signed", "unsigned")),
    "boolean": frozenset(("bool",)),
}
"""Dtype categories of the standard, in words -> dtype kinds."""


def elementwise_rule(name: str, allowed: str, result: str) -> Any:
    """Rule of an elementwise operation with promotion.

    Integers given to an operation on floating-point numbers become the default floating-point dtype.

    Args:
        name: for messages.
        allowed: key of `KIND_SETS`.
        result: ``same``, ``bool`` or ``real`` (of complex operands).
    """
    kinds = KIND_SETS[allowed]
    to_float = "float" in kinds and "signed" not in kinds

    def rule(avals: tuple[Aval, ...], params: tuple[Any, ...]) -> tuple[DType, Aval]:
        """The dtype to compute in, and the result's shape and dtype; refuses dtypes that are not allowed."""
        dtype = avals[0].dtype
        for aval in avals[1:]:
            dtype = dtypes.PROMOTION[dtype, aval.dtype]
        if to_float and not dtype.is_float:
            dtype = dtypes.DEFAULT_FLOAT
        if dtype.kind not in kinds:
            raise refuse_dtypes(name, avals, allowed)
        shape = broadcast(name, tuple(a.shape for a in avals))
        out = dtype
        if result == "bool":
            out = dtypes.bool_
        elif result == "real":
            out = dtypes.REAL_OF.get(dtype, dtype)
        return dtype, aval_of(shape, out, avals[0].device)

    return rule
