"""The layering: who may import whom, and what importing graphopt must not do."""

import ast
import re
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import graphopt
from benchmarks import layers
from benchmarks.layers import LAYERS

PACKAGE = Path(graphopt.__file__).parent

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


def import_graph(sources: dict[str, tuple[str, bool]]) -> dict[str, set[str]]:
    """Module -> modules that it imports, late and type-only imports counted.

    Args:
        sources: module -> its text, and whether it is a package's __init__.
    """
    graph: dict[str, set[str]] = {}
    for module, (text, is_package) in sources.items():
        names = {name for name, _ in imports(ast.parse(text), module, is_package)}
        found = {name if name in sources else name.rpartition(".")[0] for name in names}
        graph[module] = {name for name in found if name in sources} - {module}
    return graph


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that reach each other: strongly connected components of more than one."""
    reached = {}
    for start in graph:
        seen: set[str] = set()
        stack = [start]
        while stack:
            new = graph[stack.pop()] - seen
            seen |= new
            stack += new
        reached[start] = seen
    groups = {frozenset({m, *(o for o in reached[m] if m in reached[o])}) for m in graph}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def too_many(paths: Iterable[Path], limit: int) -> list[str]:
    """Folders of more modules than a limit, __init__ not counted."""
    counts = Counter(path.parent for path in paths if path.name != "__init__.py")
    return [f"{folder}: {count}" for folder, count in counts.items() if count > limit]


def too_long(texts: dict[str, str], limit: int) -> list[str]:
    """Modules of more lines than a limit."""
    counts = {module: text.count("\n") for module, text in texts.items()}
    return [f"{module}: {count} lines" for module, count in counts.items() if count > limit]


def test_no_modules_import_each_other():
    sources = {
        module: (path.read_text(), path.name == "__init__.py") for module, path in SOURCES.items()
    }
    assert circles(import_graph(sources)) == []


def test_folders_and_modules_are_small():
    assert too_many(SOURCES.values(), 16) == []
    assert too_long({module: path.read_text() for module, path in SOURCES.items()}, 400) == []


def beside(module: str, imported: str, depth: int) -> str | None:
    """The package beside the module's, at a depth of the tree, that an import belongs to."""
    own, other = module.split(".")[:-1], imported.split(".")[:-1]
    same = own[:depth] == other[:depth] and len(own) > depth and len(other) > depth
    return other[depth] if same and own[depth] != other[depth] else None


def test_the_table_of_packages_is_complete_and_in_order():
    packages = {"/".join(m.split(".")[1:]) for m, p in SOURCES.items() if p.name == "__init__.py"}
    assert set(layers.packages()) == packages - {""}
    tops = [package for package in layers.packages() if "/" not in package]
    assert tops == [name for name in LAYERS if name in tops]
    assert set(layers.BESIDE) == {package for package in packages if "/" in package}
    rows = re.findall(r"^\| `([\w/]+)` \| (.+) \| .+ \|$", layers.page(), re.MULTILINE)
    assert [name for name, purpose in rows if purpose.strip()] == layers.packages()


def test_packages_import_what_the_table_lets_them():
    sources = {
        module: (path.read_text(), path.name == "__init__.py") for module, path in SOURCES.items()
    }
    wrong = []
    for module, names in import_graph(sources).items():
        module = f"{module}.__init__" if sources[module][1] else module
        for name in names:
            name = f"{name}.__init__" if sources[name][1] else name
            for depth in range(2, module.count(".")):
                package = beside(module, name, depth)
                own = "/".join(module.split(".")[1 : depth + 1])
                if package is not None and package not in layers.BESIDE.get(own, ()):
                    wrong.append(f"{module} imports {package}, which the table does not let it")
    assert wrong == []


def test_what_lies_beside_a_package():
    assert beside("graphopt.hlo.plan.joins", "graphopt.hlo.graph.graph", 2) == "graph"
    assert beside("graphopt.hlo.plan.joins", "graphopt.hlo.plan.items", 2) is None
    assert beside("graphopt.hlo.plan.joins", "graphopt.machine.units", 2) is None


def test_the_circle_check_itself():
    late = "def f():\n    from graphopt.b import g"
    typed = "if TYPE_CHECKING:\n    from graphopt import a"
    sources = {"graphopt": ("", True), "graphopt.a": (late, False), "graphopt.b": (typed, False)}
    assert circles(import_graph(sources)) == [["graphopt.a", "graphopt.b"]]
    sources["graphopt.b"] = ("import numpy", False)
    assert circles(import_graph(sources)) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def test_the_size_checks_themselves():
    paths = [Path(f"folder/m{i}.py") for i in range(3)] + [Path("folder/__init__.py")]
    assert too_many(paths, 3) == [] and too_many(paths, 2) == ["folder: 3"]
    assert too_long({"m": "x\n" * 5}, 5) == [] and too_long({"m": "x\n" * 6}, 5) == ["m: 6 lines"]


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
