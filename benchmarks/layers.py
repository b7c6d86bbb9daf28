"""The layers of graphopt, and the page of its packages: what each is for, and what it may import.

The site of the documents asks for the page; ``python -m benchmarks.site reference/packages.md`` prints it.
`tests/test_layers.py` holds every module to these tables. What a package is for is said by its docstring.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).resolve().parents[1] / "graphopt"

LAYERS: Final = (
    "errors",
    "closing",
    "progress",
    "extras",
    "files",
    "locations",
    "signals",
    "jax_private",
    "version",
    "outcomes",
    "xla_hook",
    "machine",
    "hlo",
    "costs",
    "forms",
    "store",
    "executing",
    "measure",
    "placement",
    "corpus",
    "render",
    "policy",
    "tasks",
    "env",
    "learn",
    "own_jit",
    "policy_guard",
    "plugin",
    "devices",
    "lazy",
    "evaluate",
    "graphopt",  # the package's own __init__: what users import
    "cli",
    "__main__",
)
"""Lowest first. A module imports from its own layer and from lower ones, nothing else."""

BESIDE: Final[dict[str, tuple[str, ...]]] = {
    "hlo/module": (),
    "hlo/graph": ("module",),
    "hlo/restructure": ("graph", "module"),
    "hlo/restructure/rows": ("writing",),
    "hlo/restructure/rows/loops": ("turned",),
    "hlo/restructure/rows/turned": (),
    "hlo/restructure/writing": (),
    "hlo/legal": ("graph", "module", "restructure"),
    "hlo/plan": ("graph", "module", "restructure"),
    "hlo/emit": ("graph", "module", "plan"),
    "hlo/replace": ("emit", "graph", "legal", "module", "plan", "restructure"),
    "forms/convolutions": (),
    "forms/convolutions/methods": (),
    "forms/element_loops": ("traced",),
    "forms/doubles": ("functions",),
    "forms/functions": (),
    "forms/rows": ("doubles", "functions"),
    "forms/scan_parts": ("traced",),
    "forms/traced": (),
    "store/schema": (),
    "store/schema/migrations": (),
    "store/schema/migrations/versions": (),
    "store/engines": ("schema",),
    "measure/bank": ("children",),
    "measure/calibrating": ("children", "compiling"),
    "measure/capabilities": ("children", "comparing", "compiling"),
    "measure/children": ("bank", "comparing", "compiling"),
    "measure/comparing": (),
    "measure/compiling": (),
    "corpus/fuzzing": (),
    "corpus/placement": (),
    "corpus/programs": (),
    "corpus/programs/learning": (),
    "corpus/programs/science": (),
    "policy/alternatives": ("heuristic",),
    "policy/heuristic": (),
    "policy/heuristic/loops": ("support",),
    "policy/heuristic/memory": ("support",),
    "policy/heuristic/reduce": ("support",),
    "policy/heuristic/support": (),
    "policy/network": ("heuristic", "proposals"),
    "policy/advantages": ("alternatives", "heuristic", "network"),
    "policy/placement": (),
    "policy/proposals": ("heuristic",),
    "learn/advantages": (),
    "learn/background": ("tune",),
    "learn/collecting": ("search", "tune"),
    "learn/placement": (),
    "learn/search": (),
    "learn/training": ("collecting", "search"),
    "learn/tune": ("search",),
    "lazy/core": (),
    "lazy/ops": ("core",),
    "lazy/record": ("core", "ops"),
    "lazy/runtime": ("core", "record"),
    "lazy/runtime/steps": ("core", "record", "runtime"),
    "lazy/array": ("core", "ops", "record", "runtime"),
    "lazy/namespace": ("array", "core", "ops", "record", "runtime"),
    "lazy/transforms": ("core", "namespace", "ops", "record", "runtime"),
    "lazy/tools": ("core", "record", "runtime"),
    "evaluate/commands": ("evaluation", "fuzzing"),
    "evaluate/evaluation": (),
    "evaluate/fuzzing": (),
}
"""Package inside a layer -> packages beside it that it may import; those above its folder, it may anyway."""


def packages() -> list[str]:
    """All packages, ``hlo/graph``, layers in their order, each before what is inside it."""
    folders = [p.parent.relative_to(PACKAGE) for p in PACKAGE.rglob("__init__.py")]
    names = [folder.as_posix() for folder in folders if folder.parts]
    order = {name: place for place, name in enumerate((*LAYERS, *BESIDE))}
    return sorted(names, key=lambda name: (order[name.split("/")[0]], order[name]))


def purpose(package: str) -> str:
    """The first paragraph of a package's docstring."""
    text = ast.get_docstring(ast.parse((PACKAGE / package / "__init__.py").read_text())) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("``", "`")


def page() -> str:
    """The page as Markdown."""
    return "\n".join([_HEAD, *_rows()]) + "\n"


_HEAD = """# Packages

The layers of `graphopt/`, lowest first. A layer imports those above it in this table, and never one below.
Inside a layer, the last column says which of its other packages a package imports. Single modules at the
top belong to layers of their own.

| package | what it is for | may import |
|---|---|---|"""


def _rows() -> Iterator[str]:
    for name in packages():
        beside = BESIDE.get(name)
        may = "the layers above" if beside is None else ", ".join(f"`{b}`" for b in beside) or "-"
        yield f"| `{name}` | {purpose(name)} | {may} |"
