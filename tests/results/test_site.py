"""The site of the documents: its pages exist, and its reference holds all that is public."""

import inspect
import re
import typing
from types import SimpleNamespace

import pytest
import yaml

import graphopt
import graphopt.env
import graphopt.errors
import graphopt.lazy
import graphopt.tasks
from benchmarks import site
from graphopt.env.rewards import SOURCES
from graphopt.forms.table import FORMS
from graphopt.hlo.legal.rules import ALL_RULES
from graphopt.hlo.restructure.table import RESTRUCTURES
from graphopt.learn.background.refusals import REFUSALS
from graphopt.policy.alternatives.alternative import KINDS
from graphopt.policy.heuristic.steps import STEPS

DOCS = site.ROOT / "docs"
PYTHON = (DOCS / "reference" / "python.md").read_text()


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, whose tags name Python objects."""


def pages(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    entries = nav.values() if isinstance(nav, dict) else nav
    return [page for entry in entries for page in pages(entry)]


def test_every_page_of_the_navigation_exists_and_stands_there_once():
    nav = pages(yaml.load((site.ROOT / "mkdocs.yml").read_text(), Loader)["nav"])
    assert len(nav) == len(set(nav))
    assert [page for page in nav if not (DOCS / page).exists() and page not in site.PAGES] == []


def test_every_result_and_every_note_can_be_reached():
    nav = (site.ROOT / "mkdocs.yml").read_text()
    assert all(f"results/{page.name}" in nav for page in (DOCS / "results").glob("*.md"))
    index = (DOCS / "notes" / "index.md").read_text()
    notes = {page.name for page in (DOCS / "notes").glob("*.md")} - {"index.md"}
    assert notes == set(re.findall(r"\]\((.+?\.md)\)", index))


def test_the_reference_holds_every_public_name():
    shown = set(re.findall(r"^::: [\w.]*?(\w+)$", PYTHON, re.MULTILINE))
    assert set(graphopt.__all__) - {"__version__"} <= shown
    members = re.findall(r"members: \[(.+)\]", PYTHON)
    tasks = {name for names in members for name in names.split(", ")}
    assert set(graphopt.tasks.__all__) <= tasks | shown


@pytest.mark.parametrize(
    "module", [graphopt, graphopt.errors, graphopt.tasks, graphopt.env, graphopt.lazy]
)
def test_every_public_name_is_documented(module):
    own = [n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__]
    names = getattr(module, "__all__", [name for name in own if not name.startswith("_")])
    values = {name: getattr(module, name) for name in names}
    assert len(values) > 5
    for name, value in values.items():
        if inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value):
            assert (inspect.getdoc(value) or "").strip(), (
                f"{module.__name__}.{name} has no docstring"
            )


def test_every_command_has_its_help_on_the_site():
    from graphopt import cli

    commands = {command.__name__.lower() for command in typing.get_args(cli.Commands)}
    assert commands - {"train"} <= set(site.command_names())


def test_tables_of_the_reference_hold_every_row():
    text = site.rules()
    tables = (ALL_RULES, FORMS, KINDS, REFUSALS, SOURCES.values())
    names = [row.name for table in tables for row in table]
    assert len(names) > 70
    assert [name for name in names if f"| `{name}` |" not in text] == []
    rows = site.rows()
    assert [row.name for row in RESTRUCTURES[1:] if f"| `{row.name}` |" not in rows] == []
    assert rows.count("\n## ") == 1 + len({row.forbids.__module__ for row in RESTRUCTURES[1:]})
    assert all(name in site.heuristic() for name in STEPS)


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("[examples](../examples)", "examples"),
        ("[note](../docs/tuning.md)", "[note](../docs/tuning.md)"),
        ("[gone](../gone)", "[gone](../gone)"),
    ],
)
def test_links_out_of_the_documents_become_text(link, shown):
    page = SimpleNamespace(file=SimpleNamespace(src_uri="lazy.md"))
    config = SimpleNamespace(docs_dir=str(DOCS))
    assert site.on_page_markdown(f"See {link}.", page, config, None) == f"See {shown}."
