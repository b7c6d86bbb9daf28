"""Explanations: text, picture, and the page as a browser draws it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.captures import capture, captured, changed, nodes, normal, unit
from support.loops import kernel_by_kernel

import graphopt
from graphopt.cli import main
from graphopt.errors import DecisionError, PolicyError, WorkloadError
from graphopt.hlo import Graph
from graphopt.hlo.graph.source_lines import SourceLines, operation_path
from graphopt.machine import UnitKind
from graphopt.measure.analytic import AnalyticModel, AnalyticScorer
from graphopt.policy.heuristic.steps import heuristic
from graphopt.render import explain_decisions
from graphopt.render.modules import explain_module
from graphopt.render.moves import find_changes, summarise
from graphopt.render.parts import NO_REGION, time_text

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    """No measured kernels but the test's own."""
    monkeypatch.setenv("GRAPHOPT_STORE", str(tmp_path / "store.sqlite"))


def two_lines(x):
    first = jnp.tanh(x) * 2.0
    return jnp.sum(first * first, axis=1)


def native(graph: Graph):
    """The default decisions with every loop that may be native so."""
    index = unit(graph, UnitKind.NATIVE)
    loops = {n: index for n in nodes(graph, "while") if graph.masks.unit[n, index]}
    return changed(graph.default, unit=loops)


# Source lines.


def test_nodes_know_the_users_own_lines():
    graph = capture(two_lines, normal(8, 8)).graph
    lines = SourceLines(graph)
    found = {graph.ops[n].name: lines.of(n) for n in range(len(graph)) if lines.of(n)}
    assert found["tanh"].text == "first = jnp.tanh(x) * 2.0"
    assert found["reduce"].text == "return jnp.sum(first * first, axis=1)"
    assert found["tanh"].function == "two_lines"
    assert str(found["tanh"]) == f"test_render.py:{found['tanh'].line}"
    (tanh,) = nodes(graph, "tanh")
    assert operation_path(graph, tanh) == "tanh"


def test_nodes_without_metadata_have_no_line():
    graph = captured("cartpole_rollout").graph
    lines = SourceLines(graph)
    bare = [n for n, data in enumerate(graph.source.metadata) if not data]
    assert bare
    assert all(lines.of(n) is None for n in bare)


# What is explained.


def test_equal_decisions_move_nothing():
    graph = captured("cartpole_rollout").graph
    module = explain_module(graph, graph.default.copy())
    assert module.changes == [] and module.moves == []
    assert module.speedup == 1.0
    assert "nothing is decided otherwise" in explain_decisions(graph, graph.default).text()


def test_times_add_up():
    graph = captured("hmc_chain").graph
    scorer = AnalyticScorer(graph)
    module = explain_module(graph, native(graph))
    assert module.default.seconds == pytest.approx(scorer.default_s)
    before = sum(move.before_s for move in module.moves)
    after = sum(move.after_s for move in module.moves)
    assert module.default.seconds - module.chosen.seconds == pytest.approx(before - after)


def test_a_native_loop_is_one_move():
    graph = kernel_by_kernel(captured("cartpole_rollout")).graph
    module = explain_module(graph, native(graph))
    loops = [change.node for change in module.changes]
    moved = [move for move in module.moves if move.changes]
    assert len(moved) <= len(loops)
    assert [c.node for move in moved for c in move.changes if c.field == "unit"]
    assert "part of one native function" in " ".join(summarise(tuple(module.changes)))
    regions = {part.region for part in module.chosen.parts} - {NO_REGION}
    assert len(regions) == module.chosen.outcome.regions


def test_every_differing_part_is_in_exactly_one_move():
    graph = captured("transformer_block").graph
    rng = np.random.default_rng(0)
    module = explain_module(graph, graph.masks.sample(rng, graph.default, 0.2))
    for side, indices in (
        (module.default, [i for m in module.moves for i in m.before]),
        (module.chosen, [i for m in module.moves for i in m.after]),
    ):
        assert len(indices) == len(set(indices)) <= len(side.parts)
    kept = {
        (p.outputs, p.nodes, p.unit)
        for i, p in enumerate(module.chosen.parts)
        if i not in {i for m in module.moves for i in m.after}
    }
    assert kept <= {(p.outputs, p.nodes, p.unit) for p in module.default.parts}
    assert find_changes(graph, module.chosen) == module.changes
    settled = {rule for change in module.changes for rule in change.settled}
    assert settled <= set(module.chosen.outcome.overrides)


def test_times_may_come_from_elsewhere():
    graph = captured("layernorm").graph

    def times(outcome):
        return dict.fromkeys(outcome.clustering.clusters, 1.0)

    module = explain_module(graph, graph.default, times=times, clock="stop watch")
    assert module.default.seconds == module.default.outcome.clusters


def test_decisions_outside_the_masks_are_refused():
    graph = captured("layernorm").graph
    wrong = graph.default.copy()
    wrong.unit[:] = 99
    with pytest.raises(DecisionError):
        explain_decisions(graph, wrong)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.0, "2 s"), (0.0034, "3.4 ms"), (5.67e-5, "56.7 us"), (8e-7, "800 ns"), (0.0, "0 ns")],
)
def test_times_in_words(seconds, text):
    assert time_text(seconds) == text


# The user's entrance.


def test_explain_says_what_the_policy_changes():
    fn = captured("layernorm")
    explanation = graphopt.explain(fn.fn, *fn.args)
    text = str(explanation)
    assert "checkpoint cpu against XLA's default" in text
    assert "-> library" in text
    assert "demo.py:" in text
    assert explanation.image().shape == (300, 900, 3)
    unchanged = graphopt.explain(fn.fn, *fn.args, policy=None)
    assert (explanation.image() != unchanged.image()).any()


def test_explain_without_a_gain_says_so():
    explanation = graphopt.explain(lambda x: x + 1.0, jnp.ones(4))
    assert "expects no gain" in explanation.text()
    default = graphopt.explain(two_lines, jnp.ones((4, 4)), policy=None)
    assert "nothing is decided otherwise" in default.text()


def test_explain_takes_functions_as_policies():
    def everything_native(graph):
        return native(graph)

    fn = captured("recurrent_products")  # whose loop no jaxlib makes native by itself
    explanation = graphopt.explain(fn.fn, *fn.args, policy=everything_native)
    assert "everything_native" in explanation.policy
    assert explanation.modules[0].changes
    with pytest.raises(PolicyError):
        graphopt.explain(fn.fn, *fn.args, policy="nonsense")


def test_the_command(tmp_path, capsys):
    page = tmp_path / "out" / "why.html"
    assert main(["explain", "layernorm", "--html", str(page)]) == 0
    assert "library" in capsys.readouterr().out
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert main(["explain", "nonsense"]) == 2
    assert main(["explain", "layernorm", "--policy", "nonsense"]) == 2


def test_the_commands_error_names_the_workload():
    from graphopt.evaluate.commands.explain import explain_workload

    with pytest.raises(WorkloadError, match="nonsense"):
        explain_workload("nonsense", None, None)


# The page.


def page_data(page: str) -> dict:
    """The data inside a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(found[1])


def test_the_page_loads_nothing_and_cannot_be_broken_out_of():
    fn = captured("layernorm")

    def hostile(*args):
        return fn.fn(*args)

    hostile.__name__ = "</script><img src=x onerror=alert(1)>"
    page = graphopt.explain(hostile, *fn.args).html()
    assert "<img" not in page
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:)""", page)
    assert "http" not in page.replace("http-equiv", "")
    assert page_data(page)["title"] == hostile.__name__


def test_the_page_holds_every_part_and_node():
    graph = captured("hmc_chain").graph
    explanation = explain_decisions(graph, heuristic(graph), title="hmc")
    (module,) = page_data(explanation.html())["modules"]
    assert len(module["nodes"]["op"]) == len(graph)
    assert sum(p["s"] for p in module["chosen"]["parts"]) == pytest.approx(
        module["chosen"]["seconds"]
    )
    assert any("in-place" in text or "not-fusible" in text for text in module["nodes"]["forbidden"])


def browse(page: str, actions: str, tmp_path) -> dict:
    """What a script sees after `actions` in a page drawn by a browser."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    script = textwrap.dedent("""
        window.onerror = (message) => { document.body.dataset.error = message; };
        (async () => {
          const wait = () => new Promise((done) => setTimeout(done, 200));
          const count = (what) => document.querySelectorAll(what).length;
          const seen = {};
          %s
          document.body.replaceChildren(JSON.stringify(seen));
          document.body.dataset.done = "yes";
        })();
    """)
    path = tmp_path / "page.html"
    path.write_text(page.replace("</body>", f"<script>{script % actions}</script></body>"))
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile",
         "--window-size=1400,1000", "--virtual-time-budget=20000", "--dump-dom", path.as_uri()],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    body = re.search(r"<body([^>]*)>(.*?)</body>", done.stdout, re.DOTALL)
    assert body and 'data-done="yes"' in body[1], done.stdout[-500:] + done.stderr[-500:]
    assert "data-error" not in body[1]
    return json.loads(body[2].replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&"))


def test_a_browser_draws_searches_folds_and_selects(tmp_path):
    graph = captured("scan_many_carries_grad").graph  # more than 2,000 nodes
    page = explain_decisions(graph, heuristic(graph), title="many carries").html()
    seen = browse(
        page,
        """
        seen.title = document.querySelector("h1").textContent;
        seen.moves = count("tr.move");
        seen.strips = count(".bar i");
        document.getElementById("collapse").click();
        seen.collapsed = count("details.computation[open]");
        document.getElementById("expand").click(); await wait();
        seen.folds = count(".fold");
        seen.rows = count(".part");
        document.querySelector(".fold").click();
        seen.unfolded = count(".part") - seen.rows;
        document.getElementById("changes").click(); await wait();
        seen.same = count(".part.same");
        document.getElementById("changes").click();
        const search = document.getElementById("search");
        search.value = "multiply DEMO.py"; search.dispatchEvent(new Event("input")); await wait();
        seen.hits = count(".part");
        search.value = "no such thing"; search.dispatchEvent(new Event("input")); await wait();
        seen.misses = count(".part");
        document.querySelector("tr.move").click();
        seen.selected = count(".part.chosen");
        seen.operations = count("aside .node");
        seen.details = document.querySelector("aside").textContent;
        const zoom = document.getElementById("zoom");
        zoom.value = "3"; zoom.dispatchEvent(new Event("input"));
        seen.zoomed = document.querySelector(".strip > div").style.width;
        """,
        tmp_path,
    )
    assert seen["title"] == "many carries"
    assert seen["moves"] >= 1 and seen["strips"] > 100
    assert seen["collapsed"] == 0
    assert seen["folds"] > 0 and seen["unfolded"] >= 8
    assert seen["same"] == 0
    assert seen["rows"] > seen["hits"] > 0
    assert seen["misses"] == 0
    assert seen["selected"] == 1 and seen["operations"] >= 1
    assert "not allowed" in seen["details"]
    assert seen["zoomed"] == "800%"


# The analytic model below it all.


def test_the_model_orders_obvious_choices():
    loop = kernel_by_kernel(captured("cartpole_rollout")).graph
    model, scorer = AnalyticModel(loop), AnalyticScorer(loop)
    from graphopt.measure.plans import planned

    assert model.total_seconds(planned(loop, native(loop))) < 0.5 * scorer.default_s

    def recomputed(x):
        y = jnp.sin(x) @ jnp.ones((256, 256), x.dtype)
        z = jnp.exp(jnp.sin(jnp.cos(y)))
        return jax.lax.slice(z, (0, 0), (255, 256)) - jax.lax.slice(z, (1, 0), (256, 256))

    graph = capture(recomputed, normal(256, 256)).graph
    fused = graph.default.copy()
    fused.fuse[graph.masks.fuse[:, 1]] = True
    written = graph.default.copy()
    written.fuse[graph.masks.fuse[:, 0]] = False
    exp = nodes(graph, "exponential")
    assert exp
    model = AnalyticModel(graph)
    once = changed(fused, fuse={exp[-1]: 0}, unit={exp[-1]: 0})
    seconds = [model.total_seconds(planned(graph, d)) for d in (once, fused)]
    assert seconds[0] < seconds[1]
