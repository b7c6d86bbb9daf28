"""The results of the benchmark as a table, the largest gaps first."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import geometric_mean
from typing import Any


def table(results: Iterable[dict[str, Any]]) -> str:
    """A Markdown table, and what all of it comes to."""
    found = [r for r in results if "us" in r]
    failed = [r for r in results if "us" not in r]
    lines = [
        "| operation | size | other, us | default, us | graphopt, us | other / graphopt "
        "| default / graphopt |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(_line(r) for r in sorted(found, key=_gap)),
        "",
        *_sums(found),
        *(f"failed: {r['name']}, {r['size']}: {r['error']}" for r in failed),
    ]
    return "\n".join(lines)


def _gap(result: dict[str, Any]) -> float:
    """Small where the other library is faster by much; without one, where the default is."""
    return float(result.get("other/graphopt", result["default/graphopt"])[0])


def _line(result: dict[str, Any]) -> str:
    us = result["us"]
    times = [f"{us[way]:,.1f}" if way in us else "" for way in ("other", "default", "graphopt")]
    ratios = [_interval(result.get(key)) for key in ("other/graphopt", "default/graphopt")]
    wrong = "" if result["equal"] else " WRONG"
    return f"| {result['name']}{wrong} | {result['size']} | {' | '.join((*times, *ratios))} |"


def _interval(ratio: list[float] | None) -> str:
    return "" if ratio is None else f"{ratio[0]:.2f} ({ratio[1]:.2f}-{ratio[2]:.2f})"


def _sums(found: list[dict[str, Any]]) -> Iterable[str]:
    for key, name in (
        ("other/graphopt", "the other library"),
        ("default/graphopt", "XLA's default"),
    ):
        for library in ("torch", "numpy"):
            ratios = [r[key][0] for r in found if key in r and r["library"] == library]
            if ratios:
                yield (
                    f"over {name}, {len(ratios)} cases beside {library}: geometric mean "
                    f"{geometric_mean(ratios):.2f}x, lowest {min(ratios):.2f}x, "
                    f"{sum(r < 0.5 for r in ratios)} below 0.5x"
                )
    slower = [r for r in found if r["default/graphopt"][2] < 0.97]
    if slower:
        yield "slower than XLA's default: " + ", ".join(f"{r['name']} {r['size']}" for r in slower)
    wrong = [f"{r['name']} {r['size']}" for r in found if not r["equal"]]
    yield f"results beyond rounding: {', '.join(wrong) or 'none'}"
