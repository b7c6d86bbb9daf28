"""From what a benchmark wrote or printed to the rows of a table.

`READERS` is tried from the top; the first that recognises a file reads it. A new benchmark is one more row.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.results import printed
from benchmarks.results.found import Found, Rows
from graphopt.errors import ConfigError

DIGITS: Final = 4
"""Significant digits that are kept of a float."""


@dataclass(frozen=True)
class Reader:
    """One format.

    Attributes:
        recognises: whether a file's content, parsed if it is JSON, is of this format.
        read: content -> what it says.
    """

    recognises: Callable[[Any], bool]
    read: Callable[[Any], Found]


def read(text: str) -> Found:
    """Rows of a file's text.

    Raises:
        ConfigError: no reader knows the format, or nothing in it was measured.
    """
    try:
        content: Any = json.loads(text)
    except ValueError:
        content = text
    for reader in READERS:
        if reader.recognises(content):
            found = reader.read(content)
            return Found(**{**found.__dict__, "rows": [_rounded(row) for row in found.rows]})
    raise ConfigError(
        what="a format that no reader knows",
        where="python -m benchmarks.results add",
        fix="Give what a benchmark wrote or printed; benchmarks/results/readers.py lists the formats.",
    )


def _rounded(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _short(value) for key, value in row.items() if value is not None}


def _short(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    return float(f"{value:.{DIGITS}g}")


def _first_row(*keys: str) -> Callable[[Any], bool]:
    """Recognises a list whose first row has these keys."""
    return lambda content: (
        isinstance(content, list) and bool(content) and set(keys) <= set(content[0])
    )


def _has(*keys: str) -> Callable[[Any], bool]:
    return lambda content: isinstance(content, dict) and set(keys) <= set(content)


def _evaluation(report: Any) -> Found:
    settings, machine = report["settings"], report["machine"]
    good = [row for row in report["workloads"] if row["status"] == "ok"]
    bad = [f"{r['name']} ({r['status']})" for r in report["workloads"] if r["status"] != "ok"]
    rows = [
        {
            **{key: row.get(key) for key in ("name", "family", "nodes", "evaluations", "max_rel_err")},
            "default_ms": 1e3 * row["default_s"],
            "policy": row.get("speedup_policy"),
            "rival": row.get("speedup_rival"),
            "tuned": row.get("speedup_tuned"),
            **{f"{way}_{end}": row.get(f"{way}_{end}")
               for way in ("policy", "rival", "tuned") for end in ("low", "high")},
            "chosen": row.get("policy_chosen"),
            "winner": row.get("winner"),
            "compile": _quotient(row.get("policy_compile_s"), row.get("default_compile_s")),
        }
        for row in good
    ]  # fmt: skip
    budget = f"--budget-s {settings['budget_s']:g}" if settings["budget_s"] else "--zero-shot"
    return Found(
        "evaluation",
        rows,
        f"graphopt evaluate --workloads {settings['workloads']} --policy {settings['policy']} {budget}",
        {key: report["versions"][key] for key in ("jax", "python")},
        f"{machine['name']}, {machine['cores']} cores",
        report["date"],
        settings["seed"],
        f"Not measured: {', '.join(bad)}." if bad else "",
    )


def _quotient(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _third_party(content: Any) -> Found:
    rows = [
        {
            "name": row["name"],
            "nodes": row["xla-default"]["nodes"],
            "identity": row["xla-default"]["speedup"],
            **{
                key: row["heuristic"][key]
                for key in ("default_ms", "speedup", "low", "high", "outcome", "max_rel_err")
            },
            "compile": row["heuristic"]["compile_ratio"],
            "equal": all(row[policy]["equal"] for policy in ("xla-default", "heuristic")),
        }
        for row in content
    ]
    command = "python benchmarks/third_party/roundtrip.py --out report/third-party.json"
    return Found("third-party", rows, command, {"jax": content[0]["jax"]})


def _reported(content: Any) -> Found:
    rows: Rows = []
    for row in content:
        ms = {way: 1e3 * seconds for way, seconds in row["run_s"].items()}
        best = next((way for way in ("tuned", "policy", "heuristic") if way in ms), None)
        if best is None or not {"old", "default"} <= set(ms):
            continue
        rows.append(
            {
                "name": row["name"],
                **{f"{way}_ms": value for way, value in ms.items()},
                "speedup": ms["default"] / ms[best],
                "over_old": ms["old"] / ms[best],
                "compile": row["compile_s"][best] / row["compile_s"]["default"],
                "equal": not row["failed"] and all(e <= 1 for e in row["error"].values()),
            }
        )
    modes = ",".join(way for way in content[0]["run_s"] if way != "old")
    command = f"python -m benchmarks.reported --modes {modes} --json report/reported.json"
    return Found("reported", rows, command)


def _operations(content: Any) -> Found:
    rows = [
        {
            "name": row["name"],
            "size": row["size"],
            **{f"{way}_us": row["us"].get(way) for way in ("default", "graphopt")},
            **_paired(row["default/graphopt"]),
            **_beside_torch(row),
            "equal": row["equal"],
        }
        for row in content["results"].values()
        if "error" not in row
    ]
    failed = [name for name, row in content["results"].items() if "error" in row]
    versions = {name: version for name, version in content["versions"].items() if version}
    note = f"Not measured: {', '.join(failed)}." if failed else ""
    return Found("operations", rows, "python -m benchmarks.operations", versions, note=note)


def _beside_torch(row: Mapping[str, Any]) -> dict[str, float]:
    """Of operations that PyTorch has; others were timed beside NumPy."""
    if row.get("library") != "torch" or "other/graphopt" not in row:
        return {}
    return {"other_us": row["us"]["other"], "over_other": row["other/graphopt"][0]}


def _paired(
    interval: list[float], keys: tuple[str, str, str] = ("speedup", "low", "high")
) -> dict[str, float]:
    return dict(zip(keys, interval, strict=True))


def _models(content: Any) -> Found:
    rows = [
        {
            "name": name,
            **{f"{way}_ms": value for way, value in row["ms"].items()},
            **_paired(row["default"]),
            "over_torch": row["torch"][0] if "torch" in row else None,
            "compile_default_s": row["compile_s"][0],
            "compile_s": row["compile_s"][1],
            "equal": row["equal"],
        }
        for name, row in content["models"].items()
    ]
    return Found("models", rows, "python -m benchmarks models", {"jax": content["jax"]})


def _overhead(content: Any) -> Found:
    rows = [
        {
            "name": row["program"],
            "xla_ms": 1e3 * row["xla_s"],
            "first_ms": 1e3 * row["first_s"],
            "first": row["first_s"] / row["xla_s"],
            "again_ms": 1e3 * row["again_s"],
            "again": row["again_s"] / row["xla_s"],
        }
        for row in content
    ]
    return Found("overhead", rows, "graphopt bench overhead")


def _devices(content: Any) -> Found:
    keys = ("devices", "jax", "outcome", "default_ms", "speedup", "low", "high", "equal")
    good = [row for row in content if "error" not in row]
    bad = [f"{row['program']} on {row['devices']}" for row in content if "error" in row]
    rows = [{"name": row["program"], **{key: row[key] for key in keys}} for row in good]
    note = f"Failed: {', '.join(bad)}." if bad else ""
    command = "python -m benchmarks.several_devices --json report/devices.json"
    return Found("devices", rows, command, _jax(good), note=note)


def _jax(rows: Rows) -> dict[str, str]:
    found = ", ".join(dict.fromkeys(row["jax"] for row in rows))
    return {"jax": found} if found else {}


def _training_loops(content: Any) -> Found:
    keys = ("default_ms", "speedup", "low", "high", "outcome", "equal")
    rows = [
        {
            "name": row["name"],
            "jax": content["jax"],
            **{key: row[key] for key in keys},
            "aliased_kb": row["aliased"][0] / 1e3,
            "kept_kb": row["aliased"][1] / 1e3,
        }
        for row in content["rows"]
    ]
    command = "python -m benchmarks.training_loops --out report/training_loops.json"
    return Found("training-loops", rows, command, {"jax": content["jax"]})


def _demo(content: Any) -> Found:
    rows: Rows = []
    for row in content:
        times = row["times"]
        rows.append(
            {
                "name": row["name"],
                "nodes": row["nodes"],
                "default_ms": 1e3 * times["baseline_s"],
                **{key: times[key] for key in ("speedup", "low", "high")},
                "compile": row["compile_s"] / row["compile_default_s"],
                "outcome": row["outcome"],
                "max_rel_err": row["relative"],
                "equal": row["equal"],
            }
        )
    return Found("demo", rows, "graphopt demo --out report/demo.json")


def _counts(run: Any) -> Found:
    rows = [{"name": what, "count": count} for what, count in run["counts"].items()]
    return Found("counts", rows, run["command"])


def _throughput(run: Any) -> Found:
    alone = run["rows"][0]["per_s"]
    keys = ("requests", "seconds", "per_s", "busy", "start_s")
    rows = [
        {"name": str(row["nodes"]), **{key: row[key] for key in keys}, "gain": row["per_s"] / alone}
        for row in run["rows"]
    ]
    return Found("throughput", rows, "python -m benchmarks.fleet throughput")


def _simulation(run: Any) -> Found:
    keys = ("duels_per_s", "rows_per_s", "machine_busy", "driver_busy", "store_busy")
    rows = [
        {"name": f"{row['drivers']}, {row['machines']:,}", **{key: row[key] for key in keys}}
        for row in run["rows"]
    ]
    return Found("simulation", rows, "python -m benchmarks.fleet simulation")


def _stores(content: Any) -> Found:
    keys = ("median_ms", "p99_ms", "most_ms", "count")
    rows = [
        {"name": f"{row['store']}: {row['what']}", **{key: row[key] for key in keys}}
        for row in content
    ]
    return Found("stores", rows, "python -m benchmarks.stores")


UNTUNED: Final = ("beside_untuned", "untuned_low", "untuned_high")


def _background(run: Any) -> Found:
    rows: Rows = []
    for row in run["rows"]:
        turn = row["in_turn"]
        ms = (step["ms"] for step in row["runs"])
        rows.append(
            {
                "name": row["program"],
                **dict(zip(("first_ms", "second_ms", "third_ms"), ms, strict=True)),
                **_paired(turn["beside_untuned"], UNTUNED),
                **_paired(turn["beside_default"]),
                "tuning_s": row["tuning"]["seconds"],
                "equal": turn["equal"],
            }
        )
    return Found("background", rows, "python -m benchmarks.background", {"jax": run["jax"]})


def _holds(pattern: str) -> Callable[[Any], bool]:
    return lambda content: isinstance(content, str) and bool(re.search(pattern, content, re.M))


_BACKGROUND: Final = _first_row("in_turn", "tuning")

READERS: Final = (
    Reader(_has("workloads", "settings", "machine"), _evaluation),
    Reader(_first_row("xla-default", "heuristic"), _third_party),
    Reader(_first_row("run_s", "call_s"), _reported),
    Reader(_first_row("xla_s", "first_s", "again_s"), _overhead),
    Reader(_first_row("program", "devices"), _devices),
    Reader(_first_row("times", "clusters_before"), _demo),
    Reader(_has("results", "versions"), _operations),
    Reader(_has("models", "jax"), _models),
    Reader(_has("rows", "policy", "jax"), _training_loops),
    Reader(_has("counts", "command"), _counts),
    Reader(_has("rows", "gain"), _throughput),
    Reader(_has("rows", "service_times"), _simulation),
    Reader(_first_row("store", "what", "median_ms"), _stores),
    Reader(lambda content: _has("rows")(content) and _BACKGROUND(content["rows"]), _background),
    Reader(_holds(printed.FUZZED.pattern), printed.fuzzing),
    Reader(_holds(r"^\| library \| tests ended in both \|"), printed.libraries),
    Reader(_holds(r"^\| program \| explained \| installed \| error \|$"), printed.explained),
    Reader(
        _holds(r"^\| program \| default, ms \| without, ms \| in parts, ms \|"), printed.recurrences
    ),
    Reader(_holds(r"^\|[ :|-]+\|$"), printed.table),
)
"""In this order: printed tables of any columns come last."""
