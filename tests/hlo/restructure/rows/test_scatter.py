"""Scatters as loops: the same values, bit for bit, for all dimension numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jax import lax
from support.restructured import run_program, run_text

from graphopt.measure import compare_outputs

HLO_TYPES = {
    "int32": "s32", "int8": "s8", "uint8": "u8", "uint32": "u32", "float32": "f32",
    "complex64": "c64", "bool": "pred",
}  # fmt: skip

COMBINERS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda old, new: old + new,
    "multiply": lambda old, new: old * new,
    "update": lambda old, new: new,
    "keep": lambda old, new: old,
    "twice": lambda old, new: old + new + new,
}

BODIES = {
    "add": ["r# = T add(a#, b#)"],
    "multiply": ["r# = T multiply(a#, b#)"],
    "update": ["r# = T copy(b#)"],
    "keep": ["r# = T copy(a#)"],
    "twice": ["sum# = T add(a#, b#)", "r# = T add(sum#, b#)"],
}


@dataclass
class Case:
    """A scatter with random dimension numbers: where every window goes, and which index says so."""

    dims: list[int]
    window: list[int]
    scatter_dims: list[int]
    inserted: list[int]
    batching: list[int]
    batch_index: list[int]
    counts: list[int]
    vector_dim: int
    window_positions: list[int]
    index_type: str
    dtype: str
    combiner: str
    targets: int
    seed: int

    @property
    def vector_is_a_dimension(self) -> bool:
        return self.vector_dim < len(self.counts) or len(self.scatter_dims) != 1

    @property
    def index_dims(self) -> list[int]:
        dims = list(self.counts)
        if self.vector_is_a_dimension:
            dims.insert(self.vector_dim, len(self.scatter_dims))
        return dims

    @property
    def update_dims(self) -> list[int]:
        absent = {*self.inserted, *self.batching}
        windows = iter([w for d, w in enumerate(self.window) if d not in absent])
        counts = iter(self.counts)
        rank = len(self.counts) + len(self.window_positions)
        return [next(windows) if d in self.window_positions else next(counts) for d in range(rank)]


@st.composite
def cases(draw: Any) -> Case:
    rank = draw(st.integers(1, 3))
    dims = draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank))
    role = draw(st.lists(st.sampled_from("swib"), min_size=rank, max_size=rank))
    batching = [d for d in range(rank) if role[d] == "b"]
    inserted = [d for d in range(rank) if role[d] == "i"]
    free = [d for d in range(rank) if role[d] != "b"]
    assume(free)  # indices without elements do not reach the compiler's end
    scattered = draw(st.permutations(free))[: draw(st.integers(1, len(free)))]
    absent = {*batching, *inserted}
    window = [1 if d in absent else draw(st.integers(1, dims[d])) for d in range(rank)]
    counts = draw(st.lists(st.integers(1, 3), max_size=2)) + [dims[d] for d in batching]
    order = draw(st.permutations(range(len(counts))))
    counts = [counts[i] for i in order]
    first_batch = len(counts) - len(batching)
    places = [order.index(first_batch + i) for i in range(len(batching))]
    vector_dim = draw(st.integers(0, len(counts)))
    is_dimension = vector_dim < len(counts) or len(scattered) != 1
    batch_index = [p + (is_dimension and p >= vector_dim) for p in places]
    windows = rank - len(absent)
    total = len(counts) + windows
    positions = sorted(draw(st.permutations(range(total)))[:windows])
    return Case(
        dims, window, list(scattered), inserted, batching, batch_index, counts, vector_dim,
        positions, draw(st.sampled_from(["int32", "int8", "uint8", "uint32"])),
        draw(st.sampled_from(["int32", "float32", "complex64", "int8"])),
        draw(st.sampled_from(sorted(COMBINERS))), draw(st.integers(1, 2)),
        draw(st.integers(0, 1 << 16)),
    )  # fmt: skip


def hlo_of(case: Case) -> str:
    t = HLO_TYPES[case.dtype]

    def array(kind: str, dims: list[int]) -> str:
        layout = ",".join(str(d) for d in reversed(range(len(dims))))
        return f"{kind}[{','.join(map(str, dims))}]" + (f"{{{layout}}}" if dims else "")

    def numbers(values: list[int]) -> str:
        return "{" + ",".join(map(str, values)) + "}"

    target, update = array(t, case.dims), array(t, case.update_dims)
    index = array(HLO_TYPES[case.index_type], case.index_dims)
    n = case.targets
    scalars = [f"  {v}{i} = {t}[] parameter({i + n * (v == 'b')})" for v in "ab" for i in range(n)]
    body = "\n".join(scalars)
    for i in range(n):
        for line in BODIES[case.combiner]:
            body += "\n  " + line.replace("#", str(i)).replace(" T ", f" {t}[] ")
    roots = ", ".join(f"r{i}" for i in range(n))
    shapes = ", ".join([f"{t}[]"] * n)
    result = f"({', '.join([target] * n)})" if n > 1 else target
    body += f"\n  ROOT all = ({shapes}) tuple({roots})" if n > 1 else ""
    if n == 1:
        body = body.replace("r0 = ", "ROOT r0 = ")
    parameters = [f"  x{i} = {target} parameter({i})" for i in range(n)]
    parameters += [f"  own{i} = {target} copy(x{i})" for i in range(n)]
    parameters += [f"  indices = {index} parameter({n})"]
    parameters += [f"  new{i} = {update} parameter({n + 1 + i})" for i in range(n)]
    operands = ", ".join(
        [*(f"own{i}" for i in range(n)), "indices", *(f"new{i}" for i in range(n))]
    )
    attributes = [
        f"update_window_dims={numbers(case.window_positions)}",
        f"inserted_window_dims={numbers(sorted(case.inserted))}",
        f"scatter_dims_to_operand_dims={numbers(case.scatter_dims)}",
        f"index_vector_dim={case.vector_dim}",
    ]
    if case.batching:
        attributes.append(f"input_batching_dims={numbers(case.batching)}")
        attributes.append(f"scatter_indices_batching_dims={numbers(case.batch_index)}")
    lines = "\n".join(parameters)
    return f"""HloModule scattered

combine {{
{body}
}}

ENTRY main {{
{lines}
  ROOT got = {result} scatter({operands}), {", ".join(attributes)}, to_apply=combine
}}
"""


def arguments(case: Case) -> list[Any]:
    rng = np.random.default_rng(case.seed)

    def values(dims: list[int]) -> Any:
        whole = rng.integers(-3, 4, dims)
        if case.dtype == "complex64":
            return (whole + 1j * rng.integers(-3, 4, dims)).astype(case.dtype)
        return whole.astype(case.dtype)

    low = 0 if case.index_type.startswith("u") else -2
    indices = rng.integers(low, 6, case.index_dims).astype(case.index_type)
    if case.index_type == "uint32" and indices.size:
        indices.flat[0] = rng.choice([0, 0xFFFFFFFF])
    return [
        *(values(case.dims) for _ in range(case.targets)),
        indices,
        *(values(case.update_dims) for _ in range(case.targets)),
    ]


def reference(case: Case, args: list[Any]) -> list[Any]:
    """The definition, element by element: windows in order, whole windows inside or skipped."""
    n = case.targets
    targets = [a.copy() for a in args[:n]]
    indices, updates = args[n], args[n + 1 :]
    counting = [d for d in range(len(case.update_dims)) if d not in case.window_positions]
    combine = COMBINERS[case.combiner]
    for at in itertools.product(*(range(c) for c in case.counts)):
        start = [0] * len(case.dims)
        for number, dim in enumerate(case.scatter_dims):
            where = list(at)
            if case.vector_is_a_dimension:
                where.insert(case.vector_dim, number)
            start[dim] = int(indices[tuple(where)])
        for dim, index_dim in zip(case.batching, case.batch_index, strict=True):
            inside = case.vector_is_a_dimension and index_dim > case.vector_dim
            start[dim] = at[index_dim - inside]
        ends = [s + w for s, w in zip(start, case.window, strict=True)]
        if any(s < 0 or e > n for s, e, n in zip(start, ends, case.dims, strict=True)):
            continue
        pick: list[Any] = [slice(None)] * len(case.update_dims)
        for dim, position in zip(counting, at, strict=True):
            pick[dim] = position
        box = tuple(slice(s, e) for s, e in zip(start, ends, strict=True))
        for target, update in zip(targets, updates, strict=True):
            target[box] = combine(target[box], update[tuple(pick)].reshape(case.window))
    return targets


@settings(max_examples=60, deadline=None)
@given(cases())
def test_any_dimension_numbers(case):
    args = arguments(case)
    wanted = reference(case, args)
    for results in run_text(hlo_of(case), args, args[: case.targets], "scatter-loop"):
        for want, got in zip(wanted, results, strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32", "uint8", "complex64"])
@pytest.mark.parametrize("op", ["set", "add", "multiply", "min"])
def test_jax_updates_are_bit_equal(dtype, op):
    """Repeated, negative and out-of-range indices inside a loop."""
    if dtype == "complex64" and op == "min":
        pytest.skip("complex numbers have no order")

    def fn(x: jax.Array, at: jax.Array, new: jax.Array) -> Any:
        def step(x: jax.Array, shift: jax.Array) -> Any:
            x = getattr(x.at[at + shift], op)(new, mode="drop")
            return x, x[0]

        return lax.scan(step, x, jnp.arange(4))

    rng = np.random.default_rng(3)
    x = jnp.asarray(rng.uniform(0.5, 2, (9, 5)) * 3, dtype)
    new = jnp.asarray(rng.uniform(0.5, 2, (6, 5)) * 3, dtype)
    wanted, results = run_program(fn, (x, np.array([3, -4, 3, 8, 7, -9]), new), "scatter-loop")
    for got in results:
        for a, b in zip(jax.tree.leaves(wanted), jax.tree.leaves(got), strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_a_scatter_amid_a_fusion():
    """The operand is made inside the fusion, and read twice there."""

    def fn(x: jax.Array, at: jax.Array) -> Any:
        rows = jnp.sin(x)
        counts = jnp.zeros(16, jnp.float32).at[at].add(rows[at % 8] * 0.5)
        return counts * 2.0 + counts[::-1], rows

    x = np.linspace(0, 1, 8, dtype=np.float32)
    at = np.array([1, 5, 5, 15, 16, 40, -1], np.int32)
    wanted, results = run_program(fn, (x, at), "scatter-loop")
    for got in results:
        assert compare_outputs(wanted, got).equal


def test_the_gradient_of_a_gather_in_a_loop():
    def fn(x: jax.Array, at: jax.Array) -> Any:
        def loss(x: jax.Array) -> jax.Array:
            def step(total: jax.Array, at: jax.Array) -> Any:
                return total + jnp.sum(jnp.sin(x[at]) * total), None

            return lax.scan(step, jnp.float32(0.1), at)[0]

        return jax.value_and_grad(loss)(x)

    x = np.linspace(-1, 1, 30, dtype=np.float32).reshape(10, 3)
    at = np.arange(24, dtype=np.int32).reshape(6, 4) % 11
    wanted, results = run_program(fn, (x, at), "scatter-loop")
    for got in results:
        assert compare_outputs(wanted, got).equal
