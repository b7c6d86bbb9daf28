"""Measured tables: what benchmarks write is read, filed and shown, and pages hold no figure of their own."""

import json
import re
import shlex
from dataclasses import replace

import pytest

from benchmarks.results.__main__ import Add, add
from benchmarks.results.kinds import KINDS
from benchmarks.results.pages import (
    PAGES,
    PLOTS,
    TEMPLATES,
    plots_of,
    render,
    rendered,
    with_all_rows,
)
from benchmarks.results.record import DATA, ROOT, Result, load, load_all, save
from graphopt.errors import ConfigError

REPORT = {
    "machine": {"name": "CPU", "cores": 2},
    "versions": {"jax": "0.11.2", "python": "3.13"},
    "settings": {"workloads": "held-out", "policy": "shipped", "budget_s": 0, "seed": 3},
    "date": "2026-11-24",
    "workloads": [
        {"name": "a", "family": "f", "nodes": 5, "default_s": 2e-3, "speedup_policy": 4.0,
         "policy_low": 3.9, "policy_high": 4.1, "max_rel_err": 0.0, "status": "ok"},
        {"name": "b", "family": "f", "nodes": 7, "default_s": 1e-3, "speedup_policy": 1.0,
         "policy_low": 1.0, "policy_high": 1.0, "max_rel_err": 1e-7, "status": "ok"},
        {"name": "c", "status": "timeout: took too long"},
    ],
}  # fmt: skip
WAYS = {
    "outcome": "rewritten", "nodes": 9, "equal": True, "max_rel_err": 0.0, "speedup": 2.0, "low": 1.9,
    "high": 2.1, "default_ms": 1.0, "compile_ratio": 1.1,
}  # fmt: skip
FORMATS = {
    "evaluation": json.dumps(REPORT),
    "third-party": json.dumps(
        [{"name": "lib-x", "jax": "0.11.2", "xla-default": WAYS, "heuristic": WAYS}]
    ),
    "reported": json.dumps(
        [{"name": "p", "run_s": {"old": 1e-3, "default": 4e-3, "tuned": 2e-3}, "call_s": {},
          "compile_s": {"default": 1.0, "tuned": 2.0}, "error": {"tuned": 0.5}, "failed": {}}]
    ),
    "overhead": json.dumps([{"program": "p", "xla_s": 1.0, "first_s": 0.1, "again_s": 0.001}]),
    "devices": json.dumps(
        [{"program": "p", "devices": 2, "jax": "0.11.2", "outcome": "kept", "default_ms": 1.0,
          "speedup": 1.0, "low": 0.9, "high": 1.1, "equal": True},
         {"program": "q", "devices": 2, "error": "x"}]
    ),
    "operations": json.dumps(
        {"versions": {"jax": "0.11.2", "torch": None},
         "results": {"o, large": {"name": "o", "size": "large", "us": {"default": 2.0, "graphopt": 1.0},
                                  "default/graphopt": [2.0, 1.9, 2.1], "equal": True},
                     "q, large": {"name": "q", "size": "large", "error": "no"}}}
    ),
    "models": json.dumps(
        {"jax": "0.11.2", "models": {"m": {"ms": {"default": 2.0, "graphopt": 1.0}, "equal": True,
                                           "default": [2.0, 1.9, 2.1], "compile_s": [1.0, 2.0]}}}
    ),
    "throughput": json.dumps(
        {"gain": 4.0, "rows": [{"nodes": 1, "requests": 8, "start_s": 1.0, "seconds": 16.0, "per_s": 0.5,
                                "busy": 1.0}]}
    ),
    "simulation": json.dumps(
        {"service_times": {}, "rows": [{"machines": 1000, "drivers": 4, "duels_per_s": 9.0, "rows_per_s": 9.0,
                                        "machine_busy": 0.5, "driver_busy": 1.0, "store_busy": 0.1}]}
    ),
    "stores": json.dumps(
        [{"store": "SQLite", "what": "write", "median_ms": 0.1, "p99_ms": 0.2, "most_ms": 0.3, "count": 9}]
    ),
    "background": json.dumps(
        {"jax": "0.11.2", "rows": [{"program": "p", "runs": [{"ms": 3.0}, {"ms": 3.0}, {"ms": 1.0}],
                                    "tuning": {"seconds": 9.0}, "in_turn": {
                                        "beside_untuned": [3.0, 2.9, 3.1], "equal": True,
                                        "beside_default": [4.0, 3.9, 4.1]}}]}
    ),
    "counts": json.dumps({"command": "python -m benchmarks.fleet equality", "counts": {"compared": 9}}),
    "fuzzing": "> 12 trials on 3 programs in 2 s: 11 ok, 0 wrong, 0 compile error, 0 run error, "
    "0 abort, 1 hang",
    "libraries": "fetched\n| library | tests ended in both | passed in both | failed with | failed without "
    "| only with graphopt | CPU s without | CPU s with | ratio | modules |\n" + "| --- " * 10 + "|\n"
    "| optax 0.2 | 300 (stopped) | 299 | 1 | 1 | 0 | 20 | 30 | 1.50 | 912 modules seen: 399 rewritten |\n",
    "explained": "| program | explained | installed | error |\n| --- | --- | --- | --- |\n"
    "| p | 2.00x | 2.10x | 5% |\n| q | cannot run | 1.00x | |\n",
    "recurrences": "| program | default, ms | without, ms | in parts, ms | over the default | over without "
    "| error |\n" + "| --- " * 7 + "|\n| lstm | 4.100 | 3.900 | 3.000 | 1.37x | 1.30x | 2.0e-07 |\n",
    "table": "text\n\n| what | us |\n|---|---|\n| one | 1.5 |\n\nmore",
}  # fmt: skip
FIGURE = re.compile(r"\d\s*(?:x\b|%|ms\b|us\b|ns\b)|\b\d+\.\d+\b")
"""A ratio, a share, a time or a decimal number."""
NAMES = re.compile(
    r"```.*?```|`[^`\n]*`|\{\{.*?\}\}|\]\([^)]*\)|\b\d+\.\d+\.\d+\b|95 % bootstrap", re.S
)
"""What holds digits and is no figure: commands, code, directives, addresses, versions, the level."""


@pytest.mark.parametrize("kind", FORMATS)
def test_what_a_benchmark_writes_becomes_a_valid_table(kind, tmp_path):
    written = tmp_path / "written"
    written.write_text(FORMATS[kind])
    command = "python -m benchmarks lazy" if kind == "table" else ""
    result = add(Add(written, "some-name", command=command, machine="CPU, 2 cores"), tmp_path)
    assert result.kind == kind
    assert load("some-name", tmp_path) == result
    assert (
        result.versions["jax"]
        and result.command
        and len(result.rows) == (2 if kind == "evaluation" else 1)
    )


def test_what_could_not_be_measured_is_said(tmp_path):
    written = tmp_path / "report.json"
    written.write_text(FORMATS["evaluation"])
    result = add(Add(written, "x"), tmp_path)
    assert "c (timeout" in result.note and result.seed == 3 and result.date == "2026-11-24"
    assert "--workloads held-out" in result.command and str(tmp_path) not in result.source


def test_rows_that_are_measured_again_are_replaced_and_others_kept(tmp_path):
    written = tmp_path / "w.json"
    rows = json.loads(FORMATS["devices"])[:1]
    for jax, speedup in (("0.11.2", 1.5), ("0.10.2", 2.0), ("0.11.2", 3.0)):
        written.write_text(json.dumps([{**rows[0], "jax": jax, "speedup": speedup}]))
        result = add(Add(written, "d", append=True, machine="CPU"), tmp_path)
    assert {row["jax"]: row["speedup"] for row in result.rows} == {"0.10.2": 2.0, "0.11.2": 3.0}
    assert result.versions["jax"] == "0.11.2, 0.10.2"


def test_a_report_adds_a_row_to_the_figures_over_commits(tmp_path):
    first = {"name": "old", "date": "2026-11-01", "machine": "CPU", "speedup": 1.5}
    save(Result("h", "history", "c", "m", {"jax": "1"}, "2026-11-01", "s", (first,)), tmp_path)
    written = tmp_path / "report.json"
    written.write_text(FORMATS["evaluation"])
    for _ in range(2):
        add(Add(written, "x", commit="new", history="h"), tmp_path)
    history = load("h", tmp_path)
    assert [row["name"] for row in history.rows] == ["old", "new"] and history.date == "2026-11-24"
    assert history.rows[1]["speedup"] == 2.0 and history.rows[1]["smallest"] == 1.0
    written.write_text(FORMATS["overhead"])
    with pytest.raises(ConfigError, match="no ratios"):
        add(Add(written, "x", history="h", machine="CPU"), tmp_path)


@pytest.mark.parametrize("text", ["", "{}", "nothing measured here"])
def test_other_files_are_refused(text, tmp_path):
    written = tmp_path / "other"
    written.write_text(text)
    with pytest.raises(ConfigError, match="no reader"):
        add(Add(written, "x"), tmp_path)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"name": "Not This"}, "name"),
        ({"kind": "other"}, "kind"),
        ({"command": " "}, "command"),
        ({"date": "yesterday"}, "date"),
        ({"versions": {}}, "version of jax"),
        ({"rows": ()}, "no rows"),
        ({"rows": ({"name": "a"},)}, "has no default_ms"),
        ({"rows": ({"name": "a", "default_ms": "fast"},)}, "default_ms of row 0"),
    ],
)
def test_a_table_checks_itself(change, what):
    good = Result(
        "x",
        "evaluation",
        "c",
        "m",
        {"jax": "1"},
        "2026-11-24",
        "s",
        ({"name": "a", "default_ms": 1.0},),
    )
    with pytest.raises(ConfigError, match=what):
        replace(good, **change)


def test_all_filed_tables_are_valid_and_written_as_they_would_be():
    results = load_all()
    assert len(results) > 10
    for name, result in results.items():
        assert result.name == name and (DATA / f"{name}.json").read_text() == result.text()
        assert "/tmp" not in result.text() and str(ROOT) not in result.text()


def test_figures_in_text_come_from_the_rows():
    rows = (
        {"name": "a", "default_ms": 1.0, "policy": 4.0},
        {"name": "b", "default_ms": 1.0, "policy": 1.0},
    )
    result = Result("t", "evaluation", "c", "m", {"jax": "1"}, "2026-11-24", "s", rows)
    text = "{{ t geomean policy }} of {{ t count }}, {{t value b policy}}, {{ t best policy 1 }}"
    assert render(text, {"t": result}) == "2.00x of 2, 1.00x, `a` 4.00x"
    assert render("{{ t above policy 2 }} {{ t below policy 2 }}", {"t": result}) == "1 1"
    assert "| a | 1 | 4.00x |" in render(
        "{{ t table columns=name,default_ms,policy name=a }}", {"t": result}
    )


def test_long_commands_are_broken_as_a_shell_reads_them(tmp_path):
    pattern = "|".join(f"operation{n}" for n in range(8))
    command = (
        f'python -m benchmarks.operations --only "{pattern} or so" --size medium --budget-s 0.15'
    )
    rows = ({"name": "a", "default_ms": 1.0, "policy": 4.0},)
    result = Result("t", "evaluation", command, "m", {"jax": "1"}, "2026-11-24", "s", rows)
    template = tmp_path / "page.md"
    template.write_text("```\n{{ t command }}\nshort --option\n```\n")
    page = rendered(template, {"t": result})
    block = page.split("```")[1].strip()
    assert max(map(len, block.splitlines())) <= 120 and "\nshort --option" in block
    assert shlex.split(block.replace("\\\n", " ").splitlines()[0]) == shlex.split(command)


def test_where_a_page_has_some_rows_the_site_has_all():
    rows = tuple(
        {"name": name, "default_ms": 1.0, "policy": gain}
        for name, gain in (("a", 1.0), ("b", 3.0), ("c", 2.0), ("d", 0.5))
    )
    result = Result("t", "evaluation", "c", "m", {"jax": "1"}, "2026-11-24", "s", rows)
    page = render("{{ t table columns=name,policy ends=1 }}", {"t": result})
    assert re.findall(r"^\| (\w) \|", page, re.MULTILINE) == ["b", "d"]
    assert "All 4 rows: `docs/data/t.json`." in page
    whole = with_all_rows(page, {"t": result})
    table = whole[whole.index("<details") :]
    assert re.findall(r"^\| (\w) \|", table, re.MULTILINE) == ["a", "b", "c", "d"]
    assert "<!--" not in whole
    some = render("{{ t table columns=name,policy rows=3 }}", {"t": result})
    assert re.findall(r"^\| (\w) \|", some, re.MULTILINE) == ["a", "b", "c"]
    all_rows = render("{{ t table columns=name,policy rows=4 }}", {"t": result})
    assert all_rows == with_all_rows(all_rows, {"t": result})


@pytest.mark.parametrize(
    "directive", ["u count", "t sing", "t geomean colour", "t count name=c", "t value c policy"]
)
def test_directives_that_mean_nothing_are_errors(directive):
    rows = ({"name": "a", "default_ms": 1.0, "policy": 4.0},)
    result = Result("t", "evaluation", "c", "m", {"jax": "1"}, "2026-11-24", "s", rows)
    with pytest.raises(ConfigError):
        render(f"{{{{ {directive} }}}}", {"t": result})


@pytest.mark.parametrize("template", sorted(TEMPLATES.glob("*.md")), ids=lambda path: path.stem)
def test_pages_of_results_are_what_the_data_say(template):
    assert (PAGES / template.name).read_text() == rendered(template, load_all()), "make results"


@pytest.mark.parametrize("template", sorted(TEMPLATES.glob("*.md")), ids=lambda path: path.stem)
def test_plots_show_the_rows_that_are_filed(template):
    from benchmarks.results.plots import digest

    for name, asked in plots_of(template.read_text(), load_all()).items():
        assert digest(asked) in (PAGES / PLOTS / f"{name}.svg").read_text(), "make results"


@pytest.mark.parametrize("template", sorted(TEMPLATES.glob("*.md")), ids=lambda path: path.stem)
def test_templates_state_no_figure_themselves(template):
    found = FIGURE.findall(NAMES.sub("", template.read_text()))
    assert not found, "a figure comes from docs/data: {{ TABLE VERB ... }}"


def test_no_page_of_results_is_written_by_hand():
    assert {p.name for p in PAGES.glob("*.md")} == {p.name for p in TEMPLATES.glob("*.md")}


def test_every_kind_names_its_rows_and_its_figure():
    for kind in KINDS.values():
        assert kind.columns[0].type is str
        assert not kind.ratio or any(column.key == kind.ratio for column in kind.columns)
