"""What the site of the documents shows beside the pages in ``docs``: pages made when it is built.

The command line comes from the commands' own help, rules and rows from their tables. mkdocs calls
`on_files` and `on_page_markdown`; see ``mkdocs.yml``. ``python -m benchmarks.site PAGE`` prints a page.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

Row = tuple[str, ...]
"""A name, and what is said of it."""

ROOT: Final = Path(__file__).resolve().parents[1]
WIDTH: Final = "84"


def help_of(*command: str) -> str:
    """What a command prints when it is asked for help."""
    settings = {**os.environ, "COLUMNS": WIDTH, "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run(
        [sys.executable, "-m", *command, "--help"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=settings,
        check=True,
    )
    return done.stdout.rstrip()


def command_names() -> list[str]:
    """Of `graphopt`, in the order of its own help; `train` is `train-policy`."""
    return [name for name in re.findall(r"• ([\w-]+)", help_of("graphopt")) if name != "train"]


def commands() -> str:
    """The page on the command line."""
    parts = ["# Command line", "`python -m graphopt` is the same as `graphopt`."]
    for name in command_names():
        parts += [f"## graphopt {name}", f"```text\n{help_of('graphopt', name)}\n```"]
    parts += ["## train-policy", f"```text\n{help_of('graphopt.learn.cli')}\n```"]
    parts += ["## benchmarks.results", f"```text\n{help_of('benchmarks.results', 'add')}\n```"]
    return "\n\n".join(parts) + "\n"


def rules() -> str:
    """The page on rules, alternatives, forms, refusals, rewards and units."""
    lines = [
        "# Rules and units",
        "",
        "What `explain` and `report()` name. Every rule says why a decision is not allowed.",
        "",
        *_section("Rules of decisions", ("rule", "why"), _rules()),
        *_section("Interactions of decisions", ("rule", "what is done"), _interactions()),
        *_section("Rules of rows", ("rule", "why"), _rules_of_rows()),
        *_section("Alternatives", ("alternative", "its site"), _alternatives()),
        *_section("Forms of operations", ("form", "what it does"), _forms()),
        *_section("Refused by tuning in the background", ("reason", "why"), _refusals()),
        *_section("Rewards", ("source", "cost of a vector", "deterministic"), _rewards()),
        *_section("Execution units of this machine", ("unit", "kind"), _units()),
    ]
    return "\n".join(lines) + "\n"


def _section(title: str, headings: Row, rows: Iterator[Row]) -> list[str]:
    body = [f"| `{row[0]}` | {' | '.join(row[1:])} |" for row in rows]
    rule = "| --- " * len(headings) + "|"
    return [f"## {title}", "", f"| {' | '.join(headings)} |", rule, *body, ""]


def _rules() -> Iterator[Row]:
    from graphopt.hlo.legal.rules import ALL_RULES

    seen = set()
    for rule in ALL_RULES:
        if rule.name not in seen:
            seen.add(rule.name)
            yield rule.name, rule.message


def _alternatives() -> Iterator[Row]:
    from graphopt.policy.alternatives.alternative import KINDS

    yield from ((kind.name, kind.site) for kind in KINDS)


def _interactions() -> Iterator[Row]:
    from graphopt.hlo.plan.interactions import SETTLED

    yield from SETTLED.items()


def _rules_of_rows() -> Iterator[Row]:
    from graphopt.hlo.restructure.table import RULES

    yield from RULES.items()


def _forms() -> Iterator[Row]:
    from graphopt.forms.table import FORMS

    for form in FORMS:
        yield form.name, form.summary


def _refusals() -> Iterator[Row]:
    from graphopt.learn.background.refusals import REFUSALS

    yield from ((refusal.name, refusal.message) for refusal in REFUSALS)


def _rewards() -> Iterator[Row]:
    from graphopt.env.rewards import SOURCES

    for source in SOURCES.values():
        yield source.name, source.cost, "yes" if source.deterministic else "no"


def _units() -> Iterator[Row]:
    from graphopt.machine import probe

    for unit in probe().units:
        yield unit.name, unit.kind.name.lower()


def rows() -> str:
    """The page on rows of restructuring: the table, and what their modules say of them."""
    from graphopt.hlo.restructure.table import RESTRUCTURES

    modules: dict[str, list[str]] = {}
    for row in RESTRUCTURES[1:]:
        modules.setdefault(row.forbids.__module__, []).append(row.name)
    table = (
        (row.name, row.summary, "bit-equal" if row.exact else "equal to rounding")
        for row in RESTRUCTURES[1:]
    )
    lines = [
        "# Rows of restructuring",
        "",
        "What may be [written instead](../restructuring.md) of an operation.",
        "",
        *_section("All rows", ("row", "what is written", "results"), table),
    ]
    for module, names in modules.items():
        lines += [f"## {', '.join(names)}", "", inspect.getdoc(sys.modules[module]) or "", ""]
    return "\n".join(lines) + "\n"


def packages() -> str:
    """The page on the packages of graphopt, and what each may import."""
    from benchmarks.layers import page

    return page()


def metrics() -> str:
    """The page on the metrics of training."""
    from graphopt.learn.training.metrics import page

    return page()


def families() -> str:
    """The page on the families of the corpus."""
    from graphopt.corpus import load_corpus
    from graphopt.evaluate.commands.corpus import family_rows

    columns = ("family", "split", "programs", "gradients", "loops")
    lines = ["# Families of the corpus", "", f"| {' | '.join(columns)} |", "| --- " * 5 + "|"]
    for row in family_rows(load_corpus()):
        lines.append("| " + " | ".join(str(row[column]) for column in columns) + " |")
    return "\n".join(lines) + "\n"


def heuristic() -> str:
    """The page on the steps of the heuristic."""
    from graphopt.policy.heuristic_page import page

    return page()


def forms() -> str:
    """The page on forms of operations."""
    from graphopt.forms.page import page

    return page()


PAGES: Final[dict[str, Callable[[], str]]] = {
    "forms.md": forms,
    "heuristic.md": heuristic,
    "metrics.md": metrics,
    "reference/commands.md": commands,
    "reference/families.md": families,
    "reference/packages.md": packages,
    "reference/rows.md": rows,
    "reference/rules.md": rules,
}
"""Path in the site -> what makes it."""


def on_files(files: Any, config: Any) -> Any:
    """Adds the generated pages; called by mkdocs."""
    from mkdocs.structure.files import File

    for path, make in PAGES.items():
        files.append(File.generated(config, path, content=make()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Completes tables, and leaves the text of links to files beside ``docs``; called by mkdocs.

    Where the repository is browsed such links work; the site does not hold what they lead to. Of tables of
    results, pages in the repository have some rows, and those of the site all.
    """
    if page.file.src_uri.startswith("results/"):
        from benchmarks.results.pages import with_all_rows
        from benchmarks.results.record import load_all

        markdown = with_all_rows(markdown, load_all())
    docs = Path(config.docs_dir)
    folder = (docs / page.file.src_uri).parent

    def outside(link: re.Match[str]) -> str:
        target = (folder / link[2].partition("#")[0]).resolve()
        return link[1] if target.exists() and not target.is_relative_to(docs) else link[0]

    return re.sub(r"\[([^\]]+)\]\((\.\./[^)\s]+)\)", outside, markdown)


if __name__ == "__main__":
    asked = sys.argv[1:] or [""]
    if asked[0] not in PAGES:
        sys.exit(f"usage: python -m benchmarks.site PAGE, where PAGE is one of {', '.join(PAGES)}")
    print(PAGES[asked[0]](), end="")
