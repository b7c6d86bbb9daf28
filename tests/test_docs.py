"""Every Python block of the pages in docs/ runs, but for those that say above why they cannot."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
NOT_RUN = re.compile(r"<!-- not run: .+ -->\n\Z")
"""What stands above a block that cannot run here, with the reason."""

FIRST = "several-devices.md"
"""Its block sets the number of devices, which must come before jax is used."""

SMALLER = {
    'load_corpus("train")': 'load_corpus("train", names={"echo_state_ridge"})',
    "budget_s=60": "budget_s=2, evaluations=2",
    '"why.html"': "WHY",
}
"""What a test has no time for -> what it runs instead."""

PRELUDE = """
import json, sys
WHY, blocks = sys.argv[1], json.load(sys.stdin)

def names():
    import jax, jax.numpy as jnp
    import numpy as np
    import graphopt
    from graphopt.measure import compile_with
    def fn(x):
        return jnp.tanh(x) @ jnp.cos(x).T + x.sum(axis=1)
    scatter = lambda a, i: a.at[i].add(jnp.sin(a[i]), unique_indices=True)
    module = compile_with(scatter, (jnp.ones(64), jnp.arange(4))).modules[0]
    return {"fn": fn, "args": (np.ones((32, 32), np.float32),), "data": module, "graphopt": graphopt}

if __name__ == "__main__":
    for number, (place, code) in enumerate(blocks):
        if number == 0:  # nothing may use jax before it
            import numpy as np
            scope = {"fn": lambda x: (x @ x).sum(), "args": (np.ones((64, 64), np.float32),)}
        else:
            scope = names()
        scope["WHY"] = WHY
        exec(compile(code, place, "exec"), scope)
        print("ran", place, flush=True)
"""


def blocks() -> list[tuple[str, str, bool]]:
    """(page and line, code, whether it runs) of every Python block."""
    out = []
    for page in sorted(PAGES, key=lambda p: (p.name != FIRST, p.name)):
        text = page.read_text()
        for found in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            place = f"{page.relative_to(DOCS)}:{text.count(chr(10), 0, found.start()) + 1}"
            out.append((place, found[1], not NOT_RUN.search(text[: found.start()])))
    return out


def test_python_blocks_run(tmp_path):
    wanted = [(place, code) for place, code, runs in blocks() if runs]
    for long, short in SMALLER.items():
        assert any(long in code for _, code in wanted), f"no page says {long}"
        wanted = [(place, code.replace(long, short)) for place, code in wanted]
    script = tmp_path / "blocks.py"
    script.write_text(PRELUDE)
    places = {name: str(tmp_path / name) for name in ("GRAPHOPT_STORE", "GRAPHOPT_CORPUS")}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "why.html")],
        input=json.dumps(wanted),
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, **places},
    )
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    ran = re.findall(r"^ran (.+)$", done.stdout, re.MULTILINE)
    assert ran == [place for place, _ in wanted]
    assert (tmp_path / "why.html").stat().st_size > 1000


def test_few_blocks_do_not_run():
    assert sum(not runs for _, _, runs in blocks()) <= 2


def test_lines_are_short():
    """Tables and addresses cannot be broken."""
    for page in [*PAGES, DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md"]:
        long = [line for line in page.read_text().splitlines() if len(line) > 120]
        assert all(line.startswith("|") for line in long), (page.name, long)
