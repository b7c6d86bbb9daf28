"""Compiles a serialised HLO module that has no Python function behind it.

A stub function of the same signature is jitted, and the hook answers the stub's compile with the wanted
module. What XLA then generates is that module's code.
"""

from __future__ import annotations

import contextlib
import functools
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from graphopt import jax_private, xla_hook
from graphopt.errors import MeasureError, ModuleFormatError
from graphopt.hlo.emit.release import release
from graphopt.hlo.module.index import device_count, has_donation, parse
from graphopt.hlo.module.proto import DType
from graphopt.hlo.module.schedule import scheduled
from graphopt.signals import handed_on

_NUMPY: dict[int, Any] = {
    DType.PRED: np.bool_,
    DType.S8: np.int8,
    DType.S16: np.int16,
    DType.S32: np.int32,
    DType.S64: np.int64,
    DType.U8: np.uint8,
    DType.U16: np.uint16,
    DType.U32: np.uint32,
    DType.U64: np.uint64,
    DType.F16: np.float16,
    DType.BF16: jnp.bfloat16,
    DType.F32: np.float32,
    DType.F64: np.float64,
    DType.C64: np.complex64,
    DType.C128: np.complex128,
}


@dataclass(frozen=True)
class Signature:
    """Types of a module's parameters and results.

    Attributes:
        parameters: shape and dtype of each parameter.
        results: likewise of each result.
        tupled: results come as a tuple; False for a module that returns one array.
    """

    parameters: tuple[jax.ShapeDtypeStruct, ...]
    results: tuple[jax.ShapeDtypeStruct, ...]
    tupled: bool


def signature(data: bytes) -> Signature:
    """Reads a module's signature.

    Raises:
        MeasureError: it has tokens, nested tuples or types that numpy does not know, or is for several
            devices.
    """
    module = parse(data)
    if device_count(module) > 1:
        raise MeasureError(
            what=f"a module of {device_count(module)} devices, which cannot run alone on one",
            where=module.proto.name,
            fix="Such modules are only measured inside their own program.",
        )
    shape = module.proto.host_program_shape
    tupled = shape.result.element_type == DType.TUPLE
    results = list(shape.result.tuple_shapes) if tupled else [shape.result]
    return Signature(
        tuple(_struct(p) for p in shape.parameters), tuple(_struct(r) for r in results), tupled
    )


def _struct(shape: Any) -> jax.ShapeDtypeStruct:
    dtype = _NUMPY.get(shape.element_type)
    if dtype is None:
        raise MeasureError(
            what=f"a parameter or result of HLO type number {shape.element_type}",
            where="module signature",
            fix="Such modules can only be measured inside their own program.",
        )
    with _wide():
        dimensions = tuple(shape.dimensions)
        return jax.ShapeDtypeStruct(dimensions, dtype)


def _wide() -> contextlib.AbstractContextManager[Any]:
    """64-bit types, which jax cuts down by default; only for this thread."""
    wide: contextlib.AbstractContextManager[Any] = jax.enable_x64(True)
    return wide


def _without_donation(data: bytes) -> bytes:
    """Module bytes that leave their parameters as they are, so that a program can run again.

    Bytes that are no module come back as they are: XLA says what is wrong with them.
    """
    try:
        return release(data).data if has_donation(parse(data)) else data
    except ModuleFormatError:
        return data


_LAPACK: Final = b"lapack_"
"""What names of LAPACK's custom calls begin with."""


@functools.cache
def _load_lapack() -> None:
    """Makes jax look up the functions of LAPACK, as lowering one of them does; calls before that crash."""
    matrix = jax.ShapeDtypeStruct((1, 1), jnp.float32)
    jax.jit(jax.lax.linalg.cholesky).lower(matrix)


@dataclass
class Executable:
    """Compiled code of a module, with inputs to run it on.

    Attributes:
        compiled: jax's executable of the stub.
        inputs: one array per parameter, on the device.
    """

    compiled: Any
    inputs: tuple[Any, ...]

    def __call__(self) -> Any:
        """Runs once and waits for the result."""
        result = self.compiled(*self.inputs)
        jax.block_until_ready(result)
        return result


class StubCompiler:
    """Compiles variants of one module; all share one signature and one set of inputs."""

    def __init__(self, data: bytes, inputs: Sequence[np.ndarray[Any, Any]]) -> None:
        """Puts the inputs on the device.

        Raises:
            MeasureError: the signature is not supported, or inputs do not fit it.
        """
        if _LAPACK in data:
            _load_lapack()
        self.data = data
        self.signature = signature(data)
        self.inputs = self.place(inputs)

    def place(self, inputs: Sequence[np.ndarray[Any, Any]]) -> tuple[Any, ...]:
        """Puts one set of inputs on the device.

        Raises:
            MeasureError: inputs do not fit the signature.
        """
        wanted = [(p.shape, np.dtype(p.dtype)) for p in self.signature.parameters]
        given = [(i.shape, i.dtype) for i in inputs]
        if wanted != given:
            raise MeasureError(
                what=f"inputs {given} for parameters {wanted}",
                where="module inputs",
                fix="Pass one array per parameter of the module.",
            )
        with _wide():
            return tuple(jax.device_put(i) for i in inputs)

    def compile(self, data: bytes, options: Mapping[str, str] | None = None) -> Executable:
        """Compiles module bytes as they stand (a hook's answer: fused, laid out, scheduled or to be so).

        But for donated buffers: the inputs stay with the compiler, so none is given away.

        Raises:
            MeasureError: XLA did not ask for the module.
            jax.errors.JaxRuntimeError: XLA refuses it.
        """
        name = f"graphopt_stub_{uuid.uuid4().hex}"
        results, tupled = self.signature.results, self.signature.tupled

        def stub(*_: Any) -> Any:
            made = tuple(jnp.zeros(r.shape, r.dtype) for r in results)
            return made if tupled or len(made) != 1 else made[0]

        stub.__name__ = stub.__qualname__ = name
        asked: list[bytes] = []
        module = _without_donation(scheduled(data))

        def answer(_: bytes) -> bytes:
            asked.append(module)
            return module

        with _wide():
            lowered = jax.jit(stub, keep_unused=True).lower(*self.signature.parameters)
            subscription = xla_hook.subscribe(answer, module_name=f"jit_{name}")
            try:
                with jax_private.private_cache_entries(name), handed_on():
                    compiled = lowered.compile(compiler_options=dict(options) if options else None)
            finally:
                subscription.close()
        if not asked:
            raise MeasureError(
                what="XLA compiled a stub without asking for its module",
                where=name,
                fix="See graphopt doctor.",
            )
        return Executable(compiled, self.inputs)
