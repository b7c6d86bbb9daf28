"""Pages of results, rendered from templates: every figure in them comes from a table in ``docs/data``.

A template is Markdown with ``{{ TABLE VERB ... }}`` in it, such as ``{{ third-party geomean speedup }}``.
`VERBS` is the table of verbs; arguments like ``jax=0.11.2`` choose rows.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, Final

from benchmarks.results.kinds import KINDS, Column, Kind, ratio
from benchmarks.results.record import ROOT, Result, Row, load_all
from graphopt.errors import ConfigError

TEMPLATES: Final = Path(__file__).resolve().parent / "templates"
PAGES: Final = ROOT / "docs" / "results"
PLOTS: Final = "plots"
"""Folder of plots beside the pages."""
_DIRECTIVE: Final = re.compile(r"\{\{ *(.+?) *\}\}")
_FENCED: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_SOME: Final = re.compile(r' (?:"columns=[^"]*"|columns=\S+|(?:ends|rows)=\d+)')
"""What makes a table shorter or narrower than it is on the site."""
_MARK: Final = re.compile(r"^(All \d+ rows: .+) <!-- (.+) -->$", re.MULTILINE)
_WIDTH: Final = 118
_MADE: Final = (
    "<!-- Made by `make results` from benchmarks/results/templates/{}: edit that. -->\n\n"
)


@dataclass(frozen=True)
class Asked:
    """One directive of a template.

    Attributes:
        result: the table, its rows already chosen.
        words: what follows the verb, ``key=value`` aside.
        options: those that chose no rows.
        text: what stands between the braces.
    """

    result: Result
    words: tuple[str, ...]
    options: Mapping[str, str]
    text: str = ""

    @property
    def kind(self) -> Kind:
        """Of the table."""
        return KINDS[self.result.kind]

    def column(self, key: str) -> Column:
        """Raises ConfigError where the kind has no such column."""
        for column in self.kind.columns:
            if column.key == key:
                return column
        raise ConfigError(
            what=f"no column {key} in tables of kind {self.result.kind}",
            where=self.result.name,
            fix=f"Columns: {', '.join(c.key for c in self.kind.columns)}.",
        )

    def numbers(self) -> list[float]:
        """Values of the column that is named first."""
        self.column(self.words[0])
        values = [row[self.words[0]] for row in self.result.rows if self.words[0] in row]
        if not values:
            raise ConfigError(
                what=f"no row has {self.words[0]}", where=self.result.name, fix="Measure it."
            )
        return values

    def show(self, value: Any) -> str:
        """A value as the column that is named first shows it."""
        return self.column(self.words[0]).show(value)


def _geomean(asked: Asked) -> str:
    return asked.show(geometric_mean(asked.numbers()))


def _value(asked: Asked) -> str:
    row_name, key = asked.words
    for row in asked.result.rows:
        if row[asked.kind.label] == row_name:
            return (
                str(row[key]) if asked.result.kind == "table" else asked.column(key).show(row[key])
            )
    raise ConfigError(
        what=f"no row {row_name}", where=asked.result.name, fix="Name one that the table has."
    )


def _above(asked: Asked) -> str:
    return str(sum(value > float(asked.words[1]) for value in asked.numbers()))


def _below(asked: Asked) -> str:
    return str(sum(value < float(asked.words[1]) for value in asked.numbers()))


def _best(asked: Asked) -> str:
    """Names and figures of the rows with the largest values."""
    key, count = asked.words
    rows = sorted((row for row in asked.result.rows if key in row), key=lambda row: -row[key])
    names = [f"`{row[asked.kind.label]}` {asked.show(row[key])}" for row in rows[: int(count)]]
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else names[0]


def _markdown(headings: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *body]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _table(asked: Asked) -> str:
    """The columns of the kind, or ``columns=``; all rows, or some, and a mark where the site has all."""
    rows = _chosen(asked)
    if asked.result.kind == "table":
        keys = list(asked.result.rows[0])
        keys = asked.options["columns"].split(",") if "columns" in asked.options else keys
        headings = [asked.options.get("first", ""), *keys[1:]]
        body = [[str(row[k]) for k in keys] for row in rows]
    else:
        columns = _columns(asked)
        headings = [c.heading for c in columns]
        body = [[_cell(c, row) for c in columns] for row in rows]
    table = _markdown(headings, body)
    return table if len(rows) == len(asked.result.rows) else f"{table}\n\n{_mark(asked)}"


def _chosen(asked: Asked) -> list[Row]:
    """The ``ends=`` of the list by ratio, the first ``rows=``, or all."""
    rows = list(asked.result.rows)
    if "ends" in asked.options:
        count = int(asked.options["ends"])
        rows = sorted(rows, key=lambda row: -row[asked.kind.ratio])
        return rows if len(rows) <= 2 * count else [*rows[:count], *rows[-count:]]
    return rows[: int(asked.options.get("rows", len(rows)))]


def _mark(asked: Asked) -> str:
    """Where the site shows all rows; says where they are, too."""
    where = f"All {len(asked.result.rows)} rows: `docs/data/{asked.result.name}.json`."
    return f"{where} <!-- {_SOME.sub('', asked.text)} -->"


def with_all_rows(page: str, results: Mapping[str, Result]) -> str:
    """A page with whole tables, folded up, where a mark stands."""

    def whole(found: re.Match[str]) -> str:
        verb, asked = parse(found[2], results)
        table = VERBS[verb](asked)
        count = len(asked.result.rows)
        return f'<details markdown="1"><summary>All {count} rows</summary>\n\n{table}\n\n</details>'

    return _MARK.sub(whole, page)


def _columns(asked: Asked) -> list[Column]:
    if "columns" in asked.options:
        return [asked.column(key) for key in asked.options["columns"].split(",")]
    shown = [c for c in asked.kind.columns if c.heading]
    same = {"equal": True}
    rows = asked.result.rows
    return [
        c for c in shown
        if any(c.key in row for row in rows)
        and not all(c.key in same and row.get(c.key) == same[c.key] for row in rows)
    ]  # fmt: skip


def _cell(column: Column, row: Row) -> str:
    value = row.get(column.key)
    if value is None:
        return "-"
    low, high = (row.get(end) for end in column.interval) if column.interval else (None, None)
    if low is None or high is None or low == high:
        return column.show(value)
    return f"{column.show(value)} ({low:.2f}-{high:.2f})"


def _families(asked: Asked) -> str:
    """Geometric means by family of the ratios that are there, and the smallest of the first."""
    rows = asked.result.rows
    ways = [c for c in asked.kind.columns if c.interval and any(c.key in row for row in rows)]
    first = asked.words[0] if asked.words else ways[0].key
    body = []
    for family in dict.fromkeys(row["family"] for row in rows):
        own = [row for row in rows if row["family"] == family]
        means = [ratio(geometric_mean(row[c.key] for row in own if c.key in row)) for c in ways]
        smallest = ratio(min(row[first] for row in own))
        body.append([family, str(len(own)), *means, smallest])
    return _markdown(["family", "programs", *(c.heading for c in ways), "smallest"], body)


def _plot(asked: Asked) -> str:
    name = asked.options.get("as", asked.result.name)
    alt = f"{' '.join(asked.words) or asked.result.name}, as a plot"
    return f"![{alt}]({PLOTS}/{name}.svg)"


VERBS: Final[dict[str, Callable[[Asked], str]]] = {
    "about": lambda asked: asked.result.about,
    "command": lambda asked: asked.result.command,
    "note": lambda asked: asked.result.note,
    "date": lambda asked: asked.result.date,
    "count": lambda asked: str(len(asked.result.rows)),
    "geomean": _geomean,
    "smallest": lambda asked: asked.show(min(asked.numbers())),
    "largest": lambda asked: asked.show(max(asked.numbers())),
    "median": lambda asked: asked.show(median(asked.numbers())),
    "sum": lambda asked: asked.show(sum(asked.numbers())),
    "above": _above,
    "below": _below,
    "value": _value,
    "best": _best,
    "table": _table,
    "families": _families,
    "plot": _plot,
}
"""Verb -> what stands in its place."""


def parse(directive: str, results: Mapping[str, Result]) -> tuple[str, Asked]:
    """Verb and arguments of what stands between the braces.

    Raises:
        ConfigError: there is no such table or verb, or no row is left.
    """
    name, verb, *rest = shlex.split(directive)
    if name not in results or verb not in VERBS:
        raise ConfigError(
            what=f"{name} {verb}: no such {'verb' if name in results else 'table'}",
            where=f"{{{{ {directive} }}}}",
            fix=f"Tables: python -m benchmarks.results list; verbs: {', '.join(VERBS)}.",
        )
    result = results[name]
    pairs = dict(word.split("=", 1) for word in rest if "=" in word)
    chosen = {key: value for key, value in pairs.items() if key in result.rows[0]}
    rows = tuple(row for row in result.rows if all(str(row.get(k)) == v for k, v in chosen.items()))
    if not rows:
        raise ConfigError(what="no row is left", where=f"{{{{ {directive} }}}}", fix=f"{chosen}")
    words = tuple(word for word in rest if "=" not in word)
    options = {key: value for key, value in pairs.items() if key not in chosen}
    return verb, Asked(replace(result, rows=rows), words, options, directive)


def render(template: str, results: Mapping[str, Result]) -> str:
    """A template with every directive carried out."""

    def filled(found: re.Match[str]) -> str:
        verb, asked = parse(found[1], results)
        return VERBS[verb](asked)

    return _DIRECTIVE.sub(filled, template)


def plots_of(template: str, results: Mapping[str, Result]) -> dict[str, Asked]:
    """Name of a file -> what it plots, for every plot in a template."""
    found = (parse(directive, results) for directive in _DIRECTIVE.findall(template))
    return {
        asked.options.get("as", asked.result.name): asked for verb, asked in found if verb == "plot"
    }


def rendered(template: Path, results: Mapping[str, Result]) -> str:
    """The text of a page."""
    parts = _FENCED.split(render(template.read_text(), results))
    filled = [_broken(part) if part.startswith("```") else _filled(part) for part in parts]
    return _MADE.format(template.name) + "".join(filled)


def _broken(block: str) -> str:
    """A block of commands; long ones go on in the next line, with the backslash of the shell."""
    lines: list[str] = []
    for line in block.split("\n"):
        words = re.findall(r"(?:[^\s\"]|\"[^\"]*\")+", line)
        while len(line) > _WIDTH and len(words) > 1:
            count = len(words) - 1
            while count > 1 and len(" ".join(words[:count])) > _WIDTH - 6:
                count -= 1
            lines.append(f"{' '.join(words[:count])} \\")
            words = words[count:]
            words[0] = f"    {words[0]}"
            line = " ".join(words)
        lines.append(line)
    return "\n".join(lines)


def _filled(text: str) -> str:
    """Paragraphs broken anew, since figures took the place of directives; tables and the like as they are."""
    paragraphs = re.split(r"(\n\s*\n|\A\n+|\n+\Z)", text)
    return "".join(
        textwrap.fill(part, _WIDTH, break_long_words=False, break_on_hyphens=False)
        if (part[:1].isalnum() or part[:1] in '"`') and not _MARK.match(part)
        else part
        for part in paragraphs
    )


def render_all(only: Sequence[str] = (), folder: Path = PAGES) -> list[Path]:
    """Writes all pages and their plots; returns the paths of the pages."""
    from benchmarks.results.plots import draw

    results = load_all()
    written = []
    (folder / PLOTS).mkdir(parents=True, exist_ok=True)
    for template in sorted(TEMPLATES.glob("*.md")):
        if only and template.stem not in only:
            continue
        for name, asked in plots_of(template.read_text(), results).items():
            draw(asked, folder / PLOTS / f"{name}.svg")
        path = folder / template.name
        path.write_text(rendered(template, results))
        written.append(path)
    return written
