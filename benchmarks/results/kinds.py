"""What kinds of tables there are: their columns, and how each is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

Show = Callable[[Any], str]


def ratio(value: float) -> str:
    """A speed-up."""
    return f"{value:.2f}x"


def number(value: float) -> str:
    """Three or four significant digits, thousands apart."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def share(value: float) -> str:
    """A part of one, in percent."""
    return f"{100 * value:.2g} %" if value < 0.1 else f"{100 * value:.0f} %"


def error(value: float) -> str:
    """A relative difference."""
    return "0" if value == 0 else f"{value:.0e}"


def yes(value: bool) -> str:
    """Whether results agree."""
    return "equal" if value else "DIFFERENT"


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        key: in the rows.
        heading: in the table; empty for columns that are kept but not shown.
        show: value -> text.
        type: of its values.
        optional: rows may lack it, or hold null.
        interval: keys of the ends of the value's 95 % interval, shown in brackets.
    """

    key: str
    heading: str = ""
    show: Show = str
    type: type | tuple[type, ...] = (int, float)
    optional: bool = False
    interval: tuple[str, str] | None = None


def _text(key: str, heading: str = "", optional: bool = False) -> Column:
    return Column(key, heading, str, str, optional)


def _ratio(
    key: str, heading: str, ends: tuple[str, str] | None = None, optional: bool = False
) -> Column:
    return Column(key, heading, ratio, optional=optional, interval=ends)


def _value(key: str, heading: str = "", show: Show = number, optional: bool = False) -> Column:
    return Column(key, heading, show, optional=optional)


def _equal() -> Column:
    return Column("equal", "results", yes, bool, optional=True)


@dataclass(frozen=True)
class Kind:
    """Tables that one benchmark makes.

    Attributes:
        columns: in the order of the table; the first names the row.
        ratio: key of the figure that stands for a row in plots and summaries; empty if none does.
        split: key whose values are shown apart in plots, such as the version of jax.
    """

    columns: tuple[Column, ...]
    ratio: str = ""
    split: str = ""

    @property
    def label(self) -> str:
        """Key of the column that names a row."""
        return self.columns[0].key

    @property
    def interval(self) -> tuple[str, str] | None:
        """Keys of the ends of the ratio's interval."""
        return next((c.interval for c in self.columns if c.key == self.ratio), None)


SPEEDUP: Final = _ratio("speedup", "speed-up", ("low", "high"))

KINDS: Final[dict[str, Kind]] = {
    "evaluation": Kind(
        (
            _text("name", "program"),
            _text("family", "family", optional=True),
            _value("nodes", "nodes", optional=True),
            _value("default_ms", "default ms"),
            _ratio("policy", "`install()`", ("policy_low", "policy_high"), optional=True),
            _ratio("rival", "heuristic", ("rival_low", "rival_high"), optional=True),
            _ratio("tuned", "tuned", ("tuned_low", "tuned_high"), optional=True),
            _value("evaluations", "candidates", optional=True),
            _text("chosen", "chosen", optional=True),
            _value("max_rel_err", "max error", error, optional=True),
        ),
        "policy",
    ),
    "families": Kind(
        (
            _text("name", "family"),
            _value("programs", "programs"),
            _ratio("speedup", "geometric mean"),
            _ratio("smallest", "smallest"),
            _ratio("largest", "largest"),
            _text("best", "largest of"),
        ),
        "speedup",
    ),
    "third-party": Kind(
        (
            _text("name", "program"),
            _value("nodes", "nodes"),
            _value("default_ms", "default ms", optional=True),
            _ratio("identity", "unchanged", optional=True),
            SPEEDUP,
            _text("outcome", "outcome"),
            _value("max_rel_err", "max error", error),
            _equal(),
        ),
        "speedup",
    ),
    "reported": Kind(
        (
            _text("name", "program"),
            _value("old_ms", "jax 0.4.31, ms"),
            _value("default_ms", "default, ms"),
            _value("heuristic_ms", "heuristic, ms", optional=True),
            _value("policy_ms", "`install()`, ms", optional=True),
            _value("tuned_ms", "tuned, ms", optional=True),
            _ratio("speedup", "over the default"),
            _ratio("over_old", "over 0.4.31"),
            _ratio("compile", "compile time"),
            _equal(),
        ),
        "speedup",
    ),
    "operations": Kind(
        (
            _text("name", "operation"),
            _text("size", "size", optional=True),
            _value("other_us", "PyTorch us", optional=True),
            _value("default_us", "default us"),
            _value("graphopt_us", "`install()`"),
            SPEEDUP,
            _ratio("over_other", "over PyTorch", optional=True),
            _equal(),
        ),
        "speedup",
    ),
    "models": Kind(
        (
            _text("name", "model"),
            _value("torch_ms", "PyTorch ms", optional=True),
            _value("default_ms", "default ms"),
            _value("graphopt_ms", "`install()`"),
            SPEEDUP,
            _ratio("over_torch", "over PyTorch", optional=True),
            _value("compile_default_s", "compile s"),
            _value("compile_s", "with graphopt"),
            _equal(),
        ),
        "speedup",
    ),
    "overhead": Kind(
        (
            _text("name", "program"),
            _value("xla_ms", "XLA ms"),
            _value("first_ms", "first ms"),
            _value("first", "share", share),
            _value("again_ms", "again ms"),
            _value("again", "share", share),
        ),
    ),
    "devices": Kind(
        (
            _text("name", "program"),
            _value("devices", "devices"),
            _text("jax", "jax"),
            _text("outcome", "outcome"),
            _value("default_ms", "default ms"),
            SPEEDUP,
            _equal(),
        ),
        "speedup",
        "jax",
    ),
    "training-loops": Kind(
        (
            _text("name", "loop"),
            _text("jax", "jax"),
            _value("default_ms", "default ms"),
            SPEEDUP,
            _text("outcome", "outcome"),
            _value("aliased_kb", "donated kB", optional=True),
            _value("kept_kb", "kept kB", optional=True),
            _equal(),
        ),
        "speedup",
        "jax",
    ),
    "demo": Kind(
        (
            _text("name", "program"),
            _value("nodes", "nodes"),
            _value("default_ms", "default ms"),
            SPEEDUP,
            _ratio("compile", "compile time"),
            _value("max_rel_err", "max error", error),
            _equal(),
        ),
        "speedup",
    ),
    "explained": Kind(
        (
            _text("name", "program"),
            _ratio("explained", "explained"),
            _ratio("speedup", "installed"),
            _value("error", "error", share),
        ),
        "speedup",
    ),
    "recurrences": Kind(
        (
            _text("name", "program"),
            _value("default_ms", "default, ms"),
            _value("without_ms", "without, ms"),
            _value("parts_ms", "in parts, ms"),
            _ratio("speedup", "over the default"),
            _ratio("gain", "over without"),
            _value("error", "error", error),
        ),
        "gain",
    ),
    "fuzzing": Kind(
        (
            _text("name", "command"),
            _text("jax", "jax", optional=True),
            _value("trials", "trials"),
            _value("programs", "programs"),
            _value("ok", "ok"),
            _value("wrong", "wrong"),
            _value("failed", "failed, died or hung"),
            _text("date", "date"),
        ),
    ),
    "libraries": Kind(
        (
            _text("name", "library"),
            _value("tests", "tests", optional=True),
            _value("passed", "passed"),
            _value("failed", "failed"),
            _value("failed_without", "failed without", optional=True),
            _value("ours", "only with graphopt"),
            _value("cpu_without_s", "CPU s without", optional=True),
            _value("cpu_with_s", "CPU s with", optional=True),
            _ratio("ratio", "CPU with / without", optional=True),
            _value("seen", "modules seen"),
            _value("rewritten", "rewritten"),
        ),
    ),
    "history": Kind(
        (
            _text("name", "commit"),
            _text("date", "date"),
            _text("machine", "machine"),
            _ratio("speedup", "`install()`"),
            _ratio("rival", "heuristic", optional=True),
            _ratio("smallest", "smallest", optional=True),
        ),
        "speedup",
    ),
    "speedups": Kind(
        (
            _text("name", "case"),
            _value("before", "before", optional=True),
            _value("after", "after", optional=True),
            SPEEDUP,
        ),
        "speedup",
    ),
    "throughput": Kind(
        (
            _text("name", "nodes"),
            _value("requests", "requests"),
            _value("seconds", "seconds"),
            _value("per_s", "requests a second"),
            _ratio("gain", "beside one"),
            _value("busy", "nodes busy", share),
            _value("start_s", "first answers, s"),
        ),
        "gain",
    ),
    "simulation": Kind(
        (
            _text("name", "drivers, machines"),
            _value("duels_per_s", "duels a second"),
            _value("rows_per_s", "rows a second"),
            _value("machine_busy", "machines busy", share),
            _value("driver_busy", "drivers busy", share),
            _value("store_busy", "store busy", share),
        ),
    ),
    "stores": Kind(
        (
            _text("name", "what"),
            _value("median_ms", "median ms"),
            _value("p99_ms", "99 of 100, ms"),
            _value("most_ms", "longest ms"),
            _value("count", "times"),
        ),
    ),
    "background": Kind(
        (
            _text("name", "program"),
            _value("first_ms", "first run, ms"),
            _value("second_ms", "second, ms"),
            _value("third_ms", "third, ms"),
            _ratio("beside_untuned", "third beside untuned", ("untuned_low", "untuned_high")),
            _ratio("speedup", "beside XLA's default", ("low", "high")),
            _value("tuning_s", "tuning, s"),
            _equal(),
        ),
        "speedup",
    ),
    "counts": Kind((_text("name", "what"), _value("count", "number"))),
    "table": Kind((_text("name", ""),)),
}
"""Name -> kind. `table` is for printed tables of any columns: they are shown as they were printed."""
