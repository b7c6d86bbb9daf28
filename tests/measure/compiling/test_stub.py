"""Modules compiled apart from their programs compute what their programs compute, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.captures import captured, normal, with_unit_everywhere
from support.small_programs import STATE, rollout

from graphopt import xla_hook
from graphopt.errors import MeasureError
from graphopt.hlo import rewrite
from graphopt.measure.compiling.functions import Compiled, compile_lowered
from graphopt.measure.compiling.stub import StubCompiler, signature
from graphopt.measure.inputs import (
    host_array,
    load_inputs,
    made_up_inputs,
    recorded_inputs,
    save_inputs,
)

TABLE = np.random.default_rng(7).standard_normal((64, 64)).astype(np.float32)


def big_constant(x: Any) -> Any:
    return jnp.tanh(jnp.asarray(TABLE) @ x) + jnp.asarray(TABLE[0])


def half(x: Any) -> Any:
    return jax.nn.softmax(x * 2, axis=-1), x.astype(jnp.float16) + 1


def waves(z: Any) -> Any:
    return jnp.fft.ifft(z * jnp.exp(1j * z.real)), jnp.abs(z)


def noise(key: Any, x: Any) -> Any:
    one, two = jax.random.split(key)
    return x + jax.random.normal(one, x.shape), two


def kept_and_unused(a: Any, b: Any, c: Any, d: Any) -> Any:
    return {"sum": jnp.sin(a) + c, "same": b}


def scalars(x: Any, n: int, factor: float, flag: bool) -> Any:
    return jnp.where(flag, x * factor, x) + n


def counting(x: Any) -> Any:
    return jax.lax.while_loop(
        lambda s: s[1] < 20, lambda s: (s[0] * 3 % 1001 + s[1], s[1] + 1), (x, 0)
    )


def wide(x: Any, n: Any) -> Any:
    return jnp.cumsum(jnp.sin(x)), n * 3 + (n >> 7), jnp.linalg.norm(x)


Z = (normal(32) + 1j * normal(32, seed=1)).astype(np.complex64)

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "loop": (rollout, (STATE,)),
    "big constant": (big_constant, (normal(64),)),
    "bfloat16": (half, (jnp.asarray(normal(8, 16), jnp.bfloat16),)),
    "complex": (waves, (Z,)),
    "typed key": (noise, (jax.random.key(3), normal(33))),
    "raw key": (noise, (jax.random.PRNGKey(3), normal(33))),
    "unused arguments": (kept_and_unused, (normal(5), normal(6), normal(5, seed=2), normal(7))),
    "Python numbers": (scalars, (normal(9), 3, 0.1, True)),
    "NumPy numbers": (scalars, (normal(9), np.int64(3), np.float64(0.1), np.bool_(True))),
    "integers": (counting, (np.arange(12, dtype=np.int32),)),
    "booleans": (lambda x: (x > 0, ~(x < 1)), (normal(40),)),
    "one scalar": (jnp.sum, (normal(100),)),
    "empty": (lambda x: (x * 2, x.sum()), (np.zeros((0, 3), np.float32),)),
    "bytes": (lambda x: (x + x, x.astype(jnp.int16)), (np.arange(-4, 4, dtype=np.int8),)),
    "no arguments": (lambda: jnp.sin(jnp.arange(17.0)), ()),
    "trees": (lambda p: {"a": p["x"] * 2, "b": (p["y"], p["x"])}, ({"x": normal(4), "y": 2.5},)),
}


def compiled_and_inputs(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Compiled, Any]:
    compiled = compile_lowered(lambda: jax.jit(fn).lower(*args), args)
    return compiled, recorded_inputs(compiled.executable, args)


def check_bits(expected: Any, result: Any) -> None:
    left = [host_array(leaf) for leaf in jax.tree.leaves(expected)]
    right = [host_array(leaf) for leaf in jax.tree.leaves(result)]
    assert [(a.dtype, a.shape) for a in left] == [(b.dtype, b.shape) for b in right]
    for a, b in zip(left, right, strict=True):
        assert a.tobytes() == b.tobytes()


def check_stub(fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    compiled, inputs = compiled_and_inputs(fn, args)
    (data,) = compiled.modules
    stub = StubCompiler(data, inputs)
    executable = stub.compile(data)
    check_bits(compiled.executable(*args), executable())
    check_bits(compiled.executable(*args), executable())


@pytest.mark.parametrize(("fn", "args"), PROGRAMS.values(), ids=PROGRAMS)
def test_a_module_computes_what_its_program_computes(fn, args):
    check_stub(fn, args)


def test_programs_of_64_bits():
    with jax.enable_x64(True):
        check_stub(wide, (normal(50).astype(np.float64), np.int64(2**40 + 12345)))
        check_stub(lambda z: jnp.exp(z), (Z.astype(np.complex128),))
        check_stub(lambda n: n * 3 + 1, (np.arange(5, dtype=np.uint64) + 2**63,))
    check_stub(wide, (normal(50), np.int32(12345)))  # and 32 bits afterwards, in the same process


def test_programs_of_64_bits_are_compiled_outside_of_that_mode():
    with jax.enable_x64(True):
        args = (normal(50).astype(np.float64), np.int64(2**40 + 12345))
        compiled, inputs = compiled_and_inputs(wide, args)
        expected = compiled()
    (data,) = compiled.modules
    check_bits(expected, StubCompiler(data, inputs).compile(data)())
    assert jnp.asarray(1.5).dtype == jnp.float32


def test_a_rewritten_module_is_what_runs():
    program = captured("momentum_train")
    inputs = recorded_inputs(
        compiled_and_inputs(program.fn, program.args)[0].executable, program.args
    )
    decisions = with_unit_everywhere(program.graph, len(program.graph.units) - 1)
    stub = StubCompiler(program.data, inputs)
    result = rewrite(program.graph, decisions)
    assert result.data != program.data
    rewritten = stub.compile(result.data)
    text = rewritten.compiled.as_text()
    assert text != stub.compile(program.data).compiled.as_text()
    for a, b in zip(jax.tree.leaves(program.result), jax.tree.leaves(rewritten()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_stubs_take_compile_options():
    compiled, inputs = compiled_and_inputs(rollout, (STATE,))
    (data,) = compiled.modules
    stub = StubCompiler(data, inputs)
    executable = stub.compile(data, {"xla_cpu_prefer_vector_width": "128"})
    expected = jax.tree.leaves(compiled())
    for a, b in zip(expected, jax.tree.leaves(executable()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)
    with pytest.raises(jax.errors.JaxRuntimeError, match="no_such_option"):
        stub.compile(data, {"no_such_option": "1"})


def test_nothing_stays_registered():
    compiled, inputs = compiled_and_inputs(rollout, (STATE,))
    stub = StubCompiler(compiled.modules[0], inputs)
    stub.compile(compiled.modules[0])
    with pytest.raises(jax.errors.JaxRuntimeError):
        stub.compile(b"this is no module")
    assert xla_hook._subscriptions == []
    assert not xla_hook._registered


def test_the_signature_of_a_module():
    compiled, _ = compiled_and_inputs(*PROGRAMS["trees"])
    found = signature(compiled.modules[0])
    assert [(p.shape, p.dtype) for p in found.parameters] == [((4,), "float32"), ((), "float32")]
    assert [r.shape for r in found.results] == [(4,), (), (4,)]
    assert found.tupled
    compiled, _ = compiled_and_inputs(jnp.sum, (normal(100),))
    found = signature(compiled.modules[0])
    assert [r.shape for r in found.results] == [()] and not found.tupled


def test_types_that_numpy_does_not_know_are_refused():
    args = (jnp.ones(4, jnp.float8_e4m3fn),)
    compiled, _ = compiled_and_inputs(lambda x: x.astype(jnp.float32) * 2, args)
    with pytest.raises(MeasureError, match="HLO type number"):
        signature(compiled.modules[0])


@pytest.mark.parametrize(
    "inputs", [[], [normal(65)], [normal(64), normal(64)], [normal(64).astype(np.float64)]]
)
def test_inputs_that_do_not_fit_are_refused(inputs):
    compiled, _ = compiled_and_inputs(big_constant, (normal(64),))
    with pytest.raises(MeasureError, match="for parameters"):
        StubCompiler(compiled.modules[0], inputs)


# Inputs.


def test_recorded_inputs_are_what_the_module_takes():
    args = PROGRAMS["unused arguments"][1]
    compiled, inputs = compiled_and_inputs(kept_and_unused, args)
    parameters = signature(compiled.modules[0]).parameters
    assert [i.shape for i in inputs] == [p.shape for p in parameters]
    assert len(inputs) < len(args)
    np.testing.assert_array_equal(inputs[0], args[0])


def test_recorded_inputs_are_copies():
    x = normal(64)
    _, inputs = compiled_and_inputs(big_constant, (x,))
    x[:] = 0
    assert all(np.abs(i).max() > 0 for i in inputs)


DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (3, 5), (0, 2), (2000,)])
def test_inputs_of_every_type_are_made_up_and_kept(name, shape, tmp_path):
    struct = jax.ShapeDtypeStruct.__new__(jax.ShapeDtypeStruct)
    with jax.enable_x64(True):
        struct = jax.ShapeDtypeStruct(shape, jnp.dtype(name))
    (made,) = made_up_inputs([struct])
    assert (made.shape, made.dtype) == (shape, jnp.dtype(name))
    (again,) = made_up_inputs([struct])
    assert made.tobytes() == again.tobytes()
    if made.size and made.dtype.kind in "iu" and not name.startswith("u"):
        assert set(np.unique(made)) <= {0, 1}
    save_inputs(tmp_path / "inputs.npz", [made, made[..., :1] if shape else made])
    first, second = load_inputs(tmp_path / "inputs.npz")
    assert (first.shape, first.dtype, first.tobytes()) == (shape, made.dtype, made.tobytes())
    assert second.dtype == made.dtype


def test_many_inputs_keep_their_order(tmp_path):
    inputs = [np.full((), i, np.float32) for i in range(1200)]
    inputs[7] = np.asarray(jnp.full((2,), 7, jnp.bfloat16))
    save_inputs(tmp_path / "i.npz", inputs)
    assert [float(np.ravel(v)[0]) for v in load_inputs(tmp_path / "i.npz")] == list(range(1200))


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut off"])
def test_damaged_inputs(content, tmp_path):
    (tmp_path / "i.npz").write_bytes(content)
    with pytest.raises(MeasureError, match="inputs cannot be read"):
        load_inputs(tmp_path / "i.npz")
