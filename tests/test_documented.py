"""Every public name is documented: what a package's ``__all__`` holds, with methods and constants."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path

import pytest

import graphopt

PACKAGE = Path(graphopt.__file__).parent


def dotted(path: Path) -> str:
    """The name of a module by its file."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def has_all(path: Path) -> bool:
    """Whether a module says what of it is public."""
    return any(
        isinstance(node, ast.Assign | ast.AnnAssign) and "__all__" in ast.unparse(node)
        for node in tree_of(path).body
    )


@cache
def tree_of(path: Path) -> ast.Module:
    """A source file, parsed once."""
    return ast.parse(path.read_text())


def constants(tree: ast.Module) -> Iterator[str]:
    """Names that a module assigns with a text below, which documents them."""
    for node, below in zip(tree.body, tree.body[1:], strict=False):
        text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if text and isinstance(below.value.value, str):
            targets = (
                node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            )
            yield from (t.id for target in targets for t in names_in(target))


def names_in(target: ast.expr | None) -> list[ast.Name]:
    """The names of ``a = ...`` and of ``a, b = ...``."""
    found = target.elts if isinstance(target, ast.Tuple) else [target]
    return [name for name in found if isinstance(name, ast.Name)]


SOURCES = sorted(PACKAGE.rglob("*.py"))
PUBLIC = [dotted(path) for path in SOURCES if has_all(path)]


@cache
def documented_constants() -> dict[str, list[str]]:
    """Constant -> modules that assign it, and say what it is."""
    found: dict[str, list[str]] = {}
    for path in SOURCES:
        for name in constants(tree_of(path)):
            found.setdefault(name, []).append(dotted(path))
    return found


def is_said(name: str, value: object) -> bool:
    """Whether a module that assigns a constant says what it is."""
    return any(
        getattr(importlib.import_module(home), spelled, None) is value
        for spelled in (name, f"{name}_")
        for home in documented_constants().get(spelled, ())
    )


def members(cls: type) -> Iterator[tuple[str, object]]:
    """Public methods and properties that a class itself defines."""
    for name, value in vars(cls).items():
        if isinstance(value, property | cached_property | classmethod | staticmethod):
            value = getattr(value, "fget", None) or getattr(value, "func", None) or value.__func__
        if not name.startswith("_") and inspect.isroutine(value) and value.__name__ == name:
            yield name, value


def undocumented(module: object) -> list[str]:
    """Names of a module, or of its classes, that nothing is said of."""
    missing = []
    for name in module.__all__:
        value = getattr(module, name)
        if not (inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value)):
            if not name.startswith("__") and not is_said(name, value):
                missing.append(name)
            continue
        if not (inspect.getdoc(value) or "").strip():
            missing.append(name)
        if inspect.isclass(value) and value.__module__.startswith("graphopt"):
            for member, function in members(value):
                inherited = inspect.getdoc(getattr(value, member, None))
                if not (inspect.getdoc(function) or inherited or "").strip():
                    missing.append(f"{name}.{member}")
    return missing


def test_packages_say_what_is_public():
    assert len(PUBLIC) > 30
    assert {"graphopt", "graphopt.env", "graphopt.lazy", "graphopt.tasks"} <= set(PUBLIC)


@pytest.mark.parametrize("name", [*PUBLIC, "graphopt.errors"])
def test_every_public_name_is_documented(name):
    module = importlib.import_module(name)
    if not hasattr(module, "__all__"):
        own = (n for n, v in vars(module).items() if getattr(v, "__module__", "") == name)
        module.__all__ = [n for n in own if not n.startswith("_")]
    assert undocumented(module) == []


def shown() -> list[str]:
    """Dotted names that the page of the reference shows."""
    page = (PACKAGE.parent / "docs" / "reference" / "python.md").read_text()
    return re.findall(r"^::: ([\w.]+)$", page, re.MULTILINE)


@pytest.mark.parametrize("dotted_name", shown())
def test_every_name_of_the_reference_is_documented(dotted_name):
    home, _, name = dotted_name.rpartition(".")
    value = getattr(importlib.import_module(home), name)
    assert (inspect.getdoc(value) or "").strip()
    if inspect.isclass(value):
        silent = [m for m, f in members(value) if not inspect.getdoc(getattr(value, m, f))]
        assert silent == []


def test_the_check_itself():
    class Shown:
        """A class."""

        def told(self):
            """A method."""

        def silent(self):
            pass

        @property
        def unsaid(self):
            return 1

    def plain():
        pass

    class Module:
        """Stands for a module."""

    Module.__all__ = ["Shown", "plain", "NOWHERE_ASSIGNED"]
    Shown.__module__ = "graphopt.example"
    Module.Shown, Module.plain, Module.NOWHERE_ASSIGNED = Shown, staticmethod(plain), 3
    assert undocumented(Module) == ["Shown.silent", "Shown.unsaid", "plain", "NOWHERE_ASSIGNED"]
    tree = ast.parse("A = 1\n'''of a'''\nB = 2\nc, d = 1, 2\n'''both'''")
    assert list(constants(tree)) == ["A", "c", "d"]
