"""The layering: who may import whom, and what importing graphopt must not do."""

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import graphopt

PACKAGE = Path(graphopt.__file__).parent

# Lowest first. A module imports from its own layer and from lower ones, nothing else.
LAYERS = (
    "errors",
    "extras",
    "files",
    "locations",
    "jax_private",
    "version",
    "outcomes",
    "xla_hook",
    "machine",
    "hlo",
    "costs",
    "store",
    "measure",
    "placement",
    "corpus",
    "render",
    "env",
    "policy",
    "learn",
    "own_jit",
    "plugin",
    "devices",
    "lazy",
    "evaluate",
    "graphopt",  # the package's own __init__: what users import
    "cli",
    "__main__",
)
PRIVATE_HOME = "jax_private"
# A string that is nothing but such a name is for import_module; prose may mention private names.
DOTTED_NAME = re.compile(r"[\w.]+")
PRIVATE_NAME = re.compile(r"jax\._src\b|jaxlib\._")


def module_name(path: Path) -> str:
    """The dotted name of a source file: graphopt, graphopt.cli, graphopt.hlo.graph.graph."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(("graphopt", *(part for part in parts if part != "__init__")))


SOURCES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def layer(module: str) -> str:
    """The layer a dotted name belongs to; names of `graphopt` itself belong to its __init__."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in LAYERS else "graphopt"


def imports(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[str, int]]:
    """Every module that `tree` imports, anywhere in it, as a full dotted name, with its line.

    What a `from` import takes is added to the name: it may be a submodule.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = module.split(".")
                up = up[: len(up) - node.level + is_package]
                base = ".".join([*up, base] if base else up)
            yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)


def imports_upwards(source: str, module: str, is_package: bool) -> list[str]:
    own = LAYERS.index(layer(module))
    return [
        f"{module}:{line} imports {name}, which is above {LAYERS[own]}"
        for name, line in imports(ast.parse(source), module, is_package)
        if name.split(".")[0] == "graphopt" and LAYERS.index(layer(name)) > own
    ]


def private_uses(source: str, module: str) -> list[str]:
    """Imports, attribute chains and name strings that reach into jax's private modules."""
    tree = ast.parse(source)
    found = [(name, line) for name, line in imports(tree, module, False)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.append((ast.unparse(node), node.lineno))
        elif isinstance(node, ast.Constant) and DOTTED_NAME.fullmatch(str(node.value)):
            found.append((str(node.value), node.lineno))
    return [f"{module}:{line} uses {name}" for name, line in found if PRIVATE_NAME.match(name)]


@pytest.mark.parametrize("module", SOURCES)
def test_a_module_belongs_to_a_layer(module):
    top = module.split(".")[1:2]
    assert not top or top[0] in LAYERS, f"give {top[0]} a place in LAYERS"


@pytest.mark.parametrize("module", SOURCES)
def test_imports_go_down(module):
    path = SOURCES[module]
    assert imports_upwards(path.read_text(), module, path.name == "__init__.py") == []


@pytest.mark.parametrize("module", [name for name in SOURCES if layer(name) != PRIVATE_HOME])
def test_private_jax_names_stay_in_one_module(module):
    assert private_uses(SOURCES[module].read_text(), module) == []


@pytest.mark.parametrize(
    ("module", "source", "allowed"),
    [
        ("graphopt.hlo.rewrite", "from graphopt.machine import Unit", True),
        ("graphopt.hlo.rewrite", "from graphopt.hlo import graph", True),
        ("graphopt.hlo.rewrite", "from . import graph", True),
        ("graphopt.hlo.rewrite", "import graphopt.env", False),
        ("graphopt.hlo.rewrite", "def f():\n    from graphopt import env", False),
        ("graphopt.hlo.rewrite", "from ..env import rewards", False),
        ("graphopt.hlo.rewrite", "from .. import learn", False),
        ("graphopt.hlo.rewrite", "from graphopt import install", False),
        ("graphopt.hlo.rewrite", "import numpy, jax", True),
        ("graphopt.xla_hook", "from graphopt import jax_private", True),
        ("graphopt.machine.machine", "from graphopt.hlo.module.opcodes import DTYPES", False),
        ("graphopt", "from graphopt.plugin import install", True),
        ("graphopt", "from graphopt.cli import main", False),
        ("graphopt.cli", "import graphopt", True),
    ],
)
def test_the_import_check_itself(module, source, allowed):
    assert (imports_upwards(source, module, is_package=False) == []) is allowed


@pytest.mark.parametrize(
    ("source", "allowed"),
    [
        ("import jax\njax.extend.xla", True),
        ("'''Prose about jax._src.cache_key is fine.'''", True),
        ("import jax._src.core", False),
        ("from jax._src import core", False),
        ("from jax import _src", False),
        ("from jaxlib import _hlo", False),
        ("import jax\njax._src.core.Tracer", False),
        ("import_module('jaxlib._hlo')", False),
    ],
)
def test_the_private_name_check_itself(source, allowed):
    assert (private_uses(source, "graphopt.example") == []) is allowed


def test_importing_graphopt_has_no_side_effects():
    script = textwrap.dedent("""
        import sys
        import jax
        import jax.extend.xla
        from jax._src import cache_key, xla_bridge, xla_transform

        def refuse(*args, **kwargs):
            raise AssertionError("importing graphopt registered an HLO transformation")

        register = "register_hlo_module_transformation"
        for module in (jax.extend.xla, xla_transform):
            assert callable(getattr(module, register))
            setattr(module, register, refuse)
        key_hook = cache_key.custom_hook

        import graphopt

        assert not xla_bridge._backends, "a backend was initialized"
        assert cache_key.custom_hook is key_hook, "the cache-key hook was replaced"
        if gymnasium := sys.modules.get("gymnasium"):
            registered = [name for name in gymnasium.registry if "graphopt" in name.lower()]
            assert not registered, registered
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout + done.stderr == "", "importing graphopt printed something"
