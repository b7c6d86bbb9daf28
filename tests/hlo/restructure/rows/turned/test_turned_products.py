"""Products of a few vectors have a row for each, and all that is computed of them follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.captures import MACHINE, capture
from support.restructured import everywhere, native, run_program, run_text

from graphopt.hlo import Graph, apply_restructures, build_graph, rewrite
from graphopt.hlo.restructure import CODE, RESTRUCTURES
from graphopt.hlo.restructure.rows.turned.regions import Region, region_of
from graphopt.jax_private import hlo_from_text
from graphopt.measure import compare_outputs, compile_with

NAME = "dot-turned"
Fn = Callable[..., Any]


def table(*dims: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """Numbers whose products with a vector of ones are about one."""
    return (np.random.default_rng(sum(dims)).normal(size=dims) / dims[-1]).astype(dtype)


X, Y, B = table(50, 6), table(50), table(4, 6)


def chains(x: Any, y: Any, b: Any) -> Any:
    """Several chains descend a logistic regression."""

    def slope(b: Any) -> Any:
        return x.T @ (jax.nn.sigmoid(x @ b) - y) + 0.1 * b

    return jax.lax.fori_loop(0, 9, lambda _, b: b - 0.1 * jax.vmap(slope)(b), b)


def losses(x: Any, y: Any, b: Any) -> Any:
    """The result is summed up too, and compared."""

    def loss(b: Any) -> Any:
        scores = x @ b
        return jnp.where(scores > 0.1, scores * y, jnp.logaddexp(0.0, scores)).sum()

    def step(b: Any, _: None) -> Any:
        value, slope = jax.vmap(jax.value_and_grad(loss))(b)
        return b - 0.05 * slope, value

    return jax.lax.scan(step, b, None, length=7)


def two(w: Any, x: Any, u: Any, b: Any) -> Any:
    """Two products begin one region."""

    def step(_: Any, b: Any) -> Any:
        both = lambda b: w @ jnp.tanh(x @ b + u @ jnp.cos(b))  # noqa: E731
        return 0.9 * b + 0.1 * jax.vmap(both)(b)

    return jax.lax.fori_loop(0, 6, step, b)


def own_data(x: Any, y: Any, b: Any) -> Any:
    """Every chain has data of its own, which are turned where they enter."""

    def step(_: Any, b: Any) -> Any:
        return b - 0.1 * jax.vmap(lambda b, y: x.T @ (jnp.tanh(x @ b) - y))(b, y + b[:, :1])

    return jax.lax.fori_loop(0, 5, step, b)


def ensemble(w: Any, b: Any) -> Any:
    """Members with matrices of their own: a batch of products."""

    def step(_: Any, b: Any) -> Any:
        member = lambda w, b: jax.vmap(lambda b: w.T @ jnp.sin(w @ b))(b)  # noqa: E731
        return b * 0.9 + 0.1 * jax.vmap(member)(w, b)

    return jax.lax.fori_loop(0, 5, step, b)


def gates(w: Any, u: Any, b: Any) -> Any:
    """A recurrent cell: parts of products, and parts put together."""

    def cell(b: Any) -> Any:
        keep, reset, new = jnp.split(w @ b, 3)
        fresh = jnp.tanh(new + jax.nn.sigmoid(reset) * (u @ b))
        both = jnp.concatenate([jax.nn.sigmoid(keep), fresh])
        return 0.5 * both[:6] * b + 0.5 * both[6:]

    return jax.lax.fori_loop(0, 6, lambda _, b: jax.vmap(cell)(b), b)


def padded(x: Any, b: Any) -> Any:
    """Every other element of a product, with others around and between them."""

    def step(_: Any, b: Any) -> Any:
        def one(b: Any) -> Any:
            z = jnp.tanh(x @ b)
            spread = jax.lax.pad(z[1::2], jnp.float32(0.5), [(1, 3, 1)])
            return 0.9 * b + x.T @ (spread[:50] * z) - x.T[:, 3:47] @ z[2:46]

        return jax.vmap(one)(b)

    return jax.lax.fori_loop(0, 5, step, b)


def normalised(w: Any, x: Any, b: Any) -> Any:
    """Long sums, which XLA makes in two steps; between them there are as many rows as vectors."""

    def net(b: Any) -> Any:
        z = x @ b
        z = (z - z.mean()) / jnp.sqrt(z.var() + 1e-3)
        return w @ jax.nn.softmax(z) + 0.1 * b

    return jax.lax.fori_loop(0, 5, lambda _, b: jax.vmap(net)(b), b)


def once(x: Any, y: Any, b: Any) -> Any:
    """No loop at all."""
    return jnp.exp(x @ b.T - y[:, None]).T @ x


PROGRAMS: dict[str, tuple[Fn, tuple[Any, ...]]] = {
    "chains": (chains, (X, Y, B)),
    "f64": (chains, tuple(v.astype(np.float64) for v in (X, Y, B))),
    "losses": (losses, (X, Y, B)),
    "two": (two, (table(6, 50), X, table(50, 6), B)),
    "own data": (own_data, (X, table(4, 50), B)),
    "ensemble": (ensemble, (table(3, 40, 6), table(3, 4, 6))),
    "gates": (gates, (table(18, 6), table(6, 6), B)),
    "padded": (padded, (X, B)),
    "normalised": (normalised, (table(6, 70), table(70, 6), B)),
    "as many rows as vectors": (normalised, (table(6, 128), table(128, 6), B)),
    "once": (once, (X, Y, B)),
}


def turned(fn: Fn, *args: Any) -> tuple[Graph, Graph]:
    """The graph of a program before and after all its products are turned that may be."""
    graph = capture(fn, *args).graph
    return graph, apply_restructures(graph, everywhere(graph, NAME).restructure).graph


def of_shape(graph: Graph, *dims: int) -> list[str]:
    """Names of all operations whose result has these dimensions."""
    return [op.name for i, op in enumerate(graph.ops) if graph.dim_lists[i] == list(dims)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_stay_the_same(name: str) -> None:
    fn, args = PROGRAMS[name]
    wanted, results = run_program(fn, args, NAME)
    for got in results:
        assert compare_outputs(wanted, got).equal


@pytest.mark.parametrize("name", ["chains", "losses", "once"])
def test_nothing_is_left_in_the_old_order(name: str) -> None:
    fn, args = PROGRAMS[name]
    before, after = turned(fn, *args)
    old, new = of_shape(before, 50, 4), of_shape(after, 4, 50)
    assert len(old) > 2 and set(old) <= set(new)
    assert not of_shape(after, 50, 4)


def test_all_products_of_a_region_are_turned_together():
    fn, args = PROGRAMS["two"]
    graph = capture(fn, *args).graph
    dots = np.flatnonzero(graph.masks.restructure[:, CODE[NAME]])
    region = region_of(graph, int(dots[0]))
    assert isinstance(region, Region) and region.dots == tuple(dots.tolist())
    codes = graph.default.restructure.copy()
    codes[dots[0]] = CODE[NAME]
    after = apply_restructures(graph, codes).graph
    assert of_shape(after, 4, 50).count("dot") == 2


def test_what_the_loop_keeps_is_turned_ahead_of_it():
    """Two products share one copy."""
    graph = capture(chains, X, Y, B).graph
    decisions = everywhere(graph, NAME)
    for name in ("dot-rows", "invariants"):
        free = graph.masks.restructure[:, CODE[name]] & (decisions.restructure == 0)
        assert free.any()
        decisions.restructure[free] = CODE[name]
    after = apply_restructures(graph, decisions.restructure).graph
    fused = after.default.fuse
    moved = [i for i, op in enumerate(after.ops) if op.name == "transpose" and not fused[i]]
    assert [(after.dim_lists[i], after.executions[i]) for i in moved] == [([6, 50], 1)]


def one_result(rows: int, columns: int, of: Callable[[Any], Any]) -> str | None:
    """The rule that forbids to turn a product of a matrix and some vectors, of which `of` is computed."""
    graph = capture(lambda x, b: of(x @ b), table(rows, 8), table(8, columns)).graph
    dot = next(i for i, op in enumerate(graph.ops) if op.name == "dot")
    found = region_of(graph, dot)
    return found if isinstance(found, str) else None


@pytest.mark.parametrize(
    "rows, columns, of, rule",
    [
        (30, 4, lambda z: jnp.tanh(z).sum(0), None),
        (30, 4, lambda z: jnp.tanh(z).max(1), None),
        (40, 4, lambda z: jnp.tanh(z).T @ z, None),
        (4, 40, lambda z: jnp.tanh(z).sum(0), "turned-shape"),
        (40, 40, lambda z: jnp.tanh(z).sum(0), "turned-shape"),
        (80, 33, lambda z: jnp.tanh(z).sum(0), "turned-shape"),
        (40, 4, jnp.tanh, "turned-exit"),
        (40, 4, lambda z: jnp.tanh(z)[3:9].sum(0), None),
        (40, 4, lambda z: jnp.concatenate([z[30:], jnp.sin(z[:9])]).sum(0), None),
        (30, 5, lambda z: jnp.pad(z, ((1, 1), (2, 1)), constant_values=2.0).sum(0), None),
        (40, 4, lambda z: jnp.tanh(z)[3:7].sum(0), None),
        (70, 3, lambda z: (z / z.sum(0)).max(0), None),
        (30, 4, lambda z: (z[3:7] + z[3:7].T).sum(0), "turned-exit"),
        (40, 4, lambda z: jnp.sort(z, 0)[:3].sum(0), "turned-exit"),
        (30, 4, lambda z: (z + z[::-1]).sum(0), "turned-exit"),
    ],
)
def test_where_a_region_ends(rows: int, columns: int, of: Any, rule: str | None) -> None:
    assert one_result(rows, columns, of) == rule


def test_an_array_of_the_same_shape_from_elsewhere_forbids_it():
    graph = capture(lambda x, b, w: (x @ b * w).sum(0), X, B.T, table(50, 4)).graph
    dot = next(i for i, op in enumerate(graph.ops) if op.name == "dot")
    assert region_of(graph, dot) == "turned-entry"


def test_integers_stay_as_they_are():
    x, b = np.ones((40, 6), np.int32), np.ones((6, 4), np.int32)
    graph = capture(lambda x, b: (x @ b).sum(0), x, b).graph
    assert not graph.masks.restructure[:, CODE[NAME]].any()


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_programs_beside_other_rows(data: st.DataObject) -> None:
    fn, args = _random(data.draw)
    default = compile_with(fn, args)
    graph = build_graph(max(default.modules, key=len), MACHINE)
    wanted = default()
    decisions = graph.default.copy()
    replacing = [code for code, row in enumerate(RESTRUCTURES) if row.replaces]
    for node in np.flatnonzero(graph.masks.restructure[:, 1:].any(axis=1)).tolist():
        legal = [code for code in replacing if graph.masks.restructure[node, code]]
        decisions.restructure[node] = data.draw(st.sampled_from(legal))
    for chosen in (decisions, native(graph, decisions)):
        written = rewrite(graph, chosen).data
        got = compile_with(fn, args, lambda _, written=written: written)()
        assert compare_outputs(wanted, got).equal


def _random(draw: Any) -> tuple[Fn, tuple[Any, ...]]:
    """A loop whose body computes of several vectors at once; roundings do not grow in it."""
    count, rows, columns = draw(st.sampled_from([(2, 17, 3), (4, 40, 6), (3, 64, 40), (8, 33, 16)]))
    act = draw(
        st.sampled_from(
            [jnp.tanh, jax.nn.relu, jax.nn.softplus, lambda z: z - z.mean(), jax.nn.softmax]
        )
    )
    kinds = draw(
        st.lists(
            st.sampled_from(["slope", "layer", "gate", "loss", "batch", "parts", "norm"]),
            min_size=1,
            max_size=3,
        )
    )
    x, v, y = table(rows, columns), table(columns, rows), table(rows)

    def one(kind: str, b: Any) -> Any:
        if kind == "slope":
            return b - 0.1 * jax.vmap(lambda b: x.T @ (act(x @ b) - y))(b)
        if kind == "layer":
            return 0.9 * b + 0.1 * jax.vmap(lambda b: v @ act(x @ b + y))(b)
        if kind == "gate":
            z = x @ b.T
            return 0.9 * b + 0.1 * jnp.where(x[:, :1] > 0.0, z, act(z)).T @ x
        if kind == "loss":
            return b - 0.1 * jax.vmap(jax.grad(lambda b: (act(x @ b) * y).sum()))(b)
        if kind == "parts":
            half = rows // 2

            def parts(b: Any) -> Any:
                z = x @ b
                ends = jnp.concatenate([act(z[-half:]), z[:half]])
                return v @ jnp.pad(ends, (0, rows - 2 * half))

            return 0.9 * b + 0.1 * jax.vmap(parts)(b)
        if kind == "norm":
            norm = lambda z: act((z - z.mean()) / jnp.sqrt(z.var() + 0.1))  # noqa: E731
            return 0.9 * b + 0.1 * jax.vmap(lambda b: v @ norm(x @ b))(b)
        weights = jnp.stack([x, -x])
        return 0.9 * b + 0.1 * jax.vmap(lambda w: (w.T @ act(w @ b.T)).T)(weights).mean(0)

    def fn(b: Any) -> Any:
        def step(b: Any, _: None) -> Any:
            for kind in kinds:
                b = jnp.clip(one(kind, b), -3.0, 3.0)
            return b, b.sum(-1)

        return jax.lax.scan(step, b, None, length=5)

    return fn, (table(count, columns),)


ORDERED = """\
HloModule ordered, is_scheduled=true

ENTRY main {
  x = f32[50,6]{1,0} parameter(0)
  w = f32[50,6]{1,0} parameter(1)
  b = f32[6,4]{1,0} parameter(2)
  first = f32[50,4]{1,0} dot(x, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  other = f32[6,4]{1,0} negate(b)
  second = f32[50,4]{1,0} dot(w, other), lhs_contracting_dims={1}, rhs_contracting_dims={0}, CONTROL
  both = f32[50,4]{1,0} add(first, second)
  ROOT out = f32[4,6]{1,0} dot(both, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
}
"""


@pytest.mark.parametrize("rows", [3, 4])
def test_regions_that_meet_in_a_transposition(rows: int) -> None:
    """What turns one of them for the other turns it still when both are turned."""
    text = MEETING.replace("ROWS", str(rows))
    graph = build_graph(hlo_from_text(text), MACHINE)
    assert graph.masks.restructure[:, CODE[NAME]].sum() == 2
    args = [table(40, 6), table(6, 4), table(6, rows)]
    both = jnp.tanh(args[0] @ args[1])[:rows].T, (args[0] @ args[2])[:4]
    wanted = (both[0] + both[1]).sum(0)
    for (got,) in run_text(text, args, [wanted], NAME):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


MEETING = """\
HloModule meeting, is_scheduled=true

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  x = f32[40,6]{1,0} parameter(0)
  b = f32[6,4]{1,0} parameter(1)
  d = f32[6,ROWS]{1,0} parameter(2)
  zero = f32[] constant(0)
  first = f32[40,4]{1,0} dot(x, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  tanh = f32[40,4]{1,0} tanh(first)
  part = f32[ROWS,4]{1,0} slice(tanh), slice={[0:ROWS], [0:4]}
  turned = f32[4,ROWS]{1,0} transpose(part), dimensions={1,0}
  second = f32[40,ROWS]{1,0} dot(x, d), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  other = f32[4,ROWS]{1,0} slice(second), slice={[0:4], [0:ROWS]}
  both = f32[4,ROWS]{1,0} add(turned, other)
  ROOT out = f32[ROWS]{0} reduce(both, zero), dimensions={0}, to_apply=add
}
"""


@pytest.mark.parametrize("control, legal", [("control-predecessors={first}", 0), ("", 2)])
def test_a_region_is_turned_as_a_whole_or_not_at_all(control: str, legal: int) -> None:
    text = ORDERED.replace(", CONTROL", f", {control}" if control else "")
    graph = build_graph(hlo_from_text(text), MACHINE)
    assert graph.masks.restructure[:, CODE[NAME]].sum() == legal


COLUMN_MAJOR_RESULT = """\
HloModule columns, is_scheduled=true

ENTRY main {
  x = f32[50,6]{1,0} parameter(0)
  b = f32[6,4]{1,0} parameter(1)
  d = f32[50,4]{1,0} dot(x, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f32[4,50]{0,1} transpose(d), dimensions={1,0}
}
"""


def test_a_result_by_columns_keeps_its_layout():
    graph = build_graph(hlo_from_text(COLUMN_MAJOR_RESULT), MACHINE)
    dot = next(i for i, op in enumerate(graph.ops) if op.name == "dot")
    assert region_of(graph, dot) == "turned-exit"
