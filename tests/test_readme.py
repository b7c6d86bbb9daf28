"""What the README tells a newcomer to type does what it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    return [code for named, code in found if named == language]


def test_there_are_exactly_two_commands_for_a_fresh_machine() -> None:
    install, commands = blocks("")
    assert install.strip() == "pip install graphopt"
    targets = [line.split("#")[0].strip() for line in commands.splitlines() if line.strip()]
    assert targets == ["make demo", "make test"]
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"demo", "test"} <= set(targets)


def test_the_python_lines_run_and_report(tmp_path: Path) -> None:
    lines = blocks("python")[0]
    user_code = (
        "import jax, jax.numpy as jnp\nprint(jax.jit(lambda x: jnp.tanh(x) * 2)(jnp.ones(8))[0])"
    )
    script = tmp_path / "first_steps.py"
    script.write_text(lines.replace("...  ", user_code + "  #"))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "1.523" in done.stdout
    assert re.search(r"graphopt \(policy [\w ]+\): [1-9]\d* modules seen", done.stdout)


def test_every_command_it_names_exists() -> None:
    named = set(re.findall(r"`graphopt ([a-z]+)", README))
    assert {"run", "explain", "doctor"} <= named
    for command in named - {"run"}:
        done = subprocess.run(
            [sys.executable, "-m", "graphopt", command, "--help"],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, (command, done.stderr)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_resolve(page: str) -> None:
    for target in re.findall(r"\]\(([^):#]+)(?:#[^)]*)?\)", (ROOT / page).read_text()):
        assert (ROOT / target).exists(), target


def test_it_fits_a_screen_and_states_no_figure_by_hand() -> None:
    assert len(README.splitlines()) <= 60
    assert not re.findall(r"\d\.\d+x|\d+ %", README), (
        "figures are in the picture, made from docs/data"
    )


def test_no_page_holds_a_long_paragraph_twice() -> None:
    for page in (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))):
        paragraphs = re.split(r"\n\s*\n", page.read_text())
        long = [p.strip() for p in paragraphs if len(p.strip()) > 100]
        assert len(long) == len(set(long)), page.name
