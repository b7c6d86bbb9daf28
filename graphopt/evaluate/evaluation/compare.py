"""A policy beside another one: per program and per family."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean
from typing import Any, Final

SLOWER: Final = 0.95
"""A program below this counts as slower."""

TIE: Final = 0.02
"""Families whose means differ by less, relatively, count as equal."""


def compare_markdown(report: dict[str, Any]) -> str:
    """Tables of `speedup_policy` against `speedup_rival`; rows without both are left out and counted."""
    both = [r for r in report["workloads"] if _has_both(r)]
    missing = [r["name"] for r in report["workloads"] if not _has_both(r)]
    if not both:
        return "no program has both speed-ups\n"
    settings = report["settings"]
    ours, rival = settings["policy"], settings.get("rival", "rival")
    lines = [
        f"policy: {ours}; rival: {rival}; speed-up over XLA's default",
        "",
        "| program | family | policy | interval | rival | interval | chosen | expected |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *(_program(row) for row in both),
        "",
        "| family | programs | policy | rival | smallest policy |",
        "| --- | --- | --- | --- | --- |",
        *(_family(family, rows) for family, rows in sorted(families(both).items())),
        "",
        total(both),
    ]
    if missing:
        lines.append(f"not measured: {', '.join(missing)}")
    return "\n".join(lines) + "\n"


def families(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Rows by family."""
    out: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        out.setdefault(str(row["family"]), []).append(row)
    return out


def total(rows: Sequence[dict[str, Any]]) -> str:
    """One line over all programs: means, the smallest, how many are slower, families won."""
    policy, rival = _mean(rows, "speedup_policy"), _mean(rows, "speedup_rival")
    slower = [r["name"] for r in rows if r["speedup_policy"] < SLOWER]
    pairs = [
        (_mean(group, "speedup_policy"), _mean(group, "speedup_rival"))
        for group in families(rows).values()
    ]
    won = sum(ours > (1 + TIE) * theirs for ours, theirs in pairs)
    lost = sum(theirs > (1 + TIE) * ours for ours, theirs in pairs)
    return (
        f"{len(rows)} programs: policy geometric mean {policy:.2f}x (smallest "
        f"{min(r['speedup_policy'] for r in rows):.2f}x), rival {rival:.2f}x (smallest "
        f"{min(r['speedup_rival'] for r in rows):.2f}x); below {SLOWER}x: "
        f"{', '.join(slower) or 'none'}; families won {won}, equal {len(pairs) - won - lost}, lost {lost}"
    )


def _has_both(row: dict[str, Any]) -> bool:
    found = (row.get("speedup_policy"), row.get("speedup_rival"))
    return row.get("status") == "ok" and None not in found


def _mean(rows: Sequence[dict[str, Any]], column: str) -> float:
    return geometric_mean([row[column] for row in rows])


def _program(row: dict[str, Any]) -> str:
    expected = row.get("policy_expected")
    return (
        f"| {row['name']} | {row['family']} | {row['speedup_policy']:.2f}x | "
        f"{row['policy_low']:.2f}-{row['policy_high']:.2f} | {row['speedup_rival']:.2f}x | "
        f"{row['rival_low']:.2f}-{row['rival_high']:.2f} | {row.get('policy_chosen') or 'default'} | "
        f"{f'{expected:.2f}x' if expected else ''} |"
    )


def _family(family: str, rows: Sequence[dict[str, Any]]) -> str:
    smallest = min(row["speedup_policy"] for row in rows)
    return (
        f"| {family} | {len(rows)} | {_mean(rows, 'speedup_policy'):.2f}x | "
        f"{_mean(rows, 'speedup_rival'):.2f}x | {smallest:.2f}x |"
    )
