"""``graphopt run``: a script behaves as it does without graphopt, and a report follows."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.processes import environment, run_python

import graphopt
from graphopt.cli import main
from graphopt.evaluate.commands.run import run_script

SCRIPT = textwrap.dedent("""
    import sys
    import helper_beside_the_script
    from support.small_programs import STATE, is_native, named

    def greet():
        return helper_beside_the_script.GREETING

    if __name__ == "__main__":
        compiled = named("cart").lower(STATE).compile()
        compiled(STATE)
        print(greet(), sys.argv[1:], "native" if is_native(compiled) else "plain")
        print("to stderr", file=sys.stderr)
        sys.exit(7)
""")


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    """Import paths and the plugin as they were before."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    graphopt.reset_report()
    yield
    graphopt.uninstall()
    graphopt.reset_report()


@pytest.fixture
def script(tmp_path: Path):
    """Writes a script and returns its path."""

    def write(code: str, name: str = "script.py") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(code))
        return path

    return write


def graphopt_run(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "graphopt", "run", *map(str, arguments), cwd=cwd)


# In a process of its own.


def test_a_script_runs_as_main_and_the_report_goes_to_stderr(script, tmp_path):
    path = script(SCRIPT, "folder/script.py")
    script("GREETING = 'hello'", "folder/helper_beside_the_script.py")
    done = graphopt_run("folder/script.py", "--flag", "a b", "--help", cwd=tmp_path)
    assert path.is_file()
    assert done.stdout == "hello ['--flag', 'a b', '--help'] native\n"
    assert done.returncode == 7, done.stderr
    before, _, report = done.stderr.partition("to stderr\n")
    assert "graphopt" not in before
    assert "jit_cart: rewritten" in report
    assert "policy checkpoint cpu" in report


def test_a_module_runs_as_main(script, tmp_path):
    script("", "package/__init__.py")
    script(
        """
        import sys
        from package import constants
        print(__name__, sys.argv[1:], constants.ANSWER)
        """,
        "package/tool.py",
    )
    script("ANSWER = 42", "package/constants.py")
    done = graphopt_run("-m", "package.tool", "-m", "x", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "__main__ ['-m', 'x'] 42\n"
    assert "modules seen" in done.stderr


def test_an_uncaught_error_shows_its_traceback_and_the_report(script):
    path = script("""
        def broken():
            raise ValueError("the user's own mistake")

        broken()
    """)
    done = graphopt_run(path)
    assert done.returncode == 1
    assert "ValueError: the user's own mistake" in done.stderr
    assert "in broken" in done.stderr
    assert "modules seen" in done.stderr


def test_scripts_may_start_processes_of_their_own(script):
    path = script("""
        import multiprocessing

        def double(x):
            return 2 * x

        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(double, [1, 2]))
    """)
    done = graphopt_run(path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[2, 4]\n"


# In this process.


def test_the_script_sees_its_own_arguments(script, capsys):
    path = script("import sys; print(sys.argv[1:], __name__, __file__ == sys.argv[0])")
    before = list(sys.argv)
    assert run_script([str(path), "1", "--two"]) == 0
    assert capsys.readouterr().out == "['1', '--two'] __main__ True\n"
    assert sys.argv == before


@pytest.mark.parametrize(
    ("code", "status", "message"),
    [
        ("", 0, ""),
        ("raise SystemExit", 0, ""),
        ("raise SystemExit(None)", 0, ""),
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('no data')", 1, "no data\n"),
    ],
)
def test_the_exit_status_is_passed_on(script, capsys, code, status, message):
    path = script(code)
    assert main(["run", str(path)]) == status
    errors = capsys.readouterr().err
    assert errors.startswith(message)
    assert "graphopt (policy checkpoint cpu): 0 modules seen" in errors


def test_errors_of_the_script_are_its_own(script, capsys):
    path = script("def fails():\n    raise ZeroDivisionError('mine')\nfails()")
    assert run_script([str(path)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert [line for line in lines if "File " in line] == [
        f'  File "{path}", line 3, in <module>', f'  File "{path}", line 2, in fails',
    ]  # fmt: skip
    assert lines.index("ZeroDivisionError: mine") < min(
        i for i, line in enumerate(lines) if "modules seen" in line
    )
    assert graphopt.report().policy is None


def test_an_interrupted_script_ends_like_one(script, capsys):
    path = script("raise KeyboardInterrupt")
    assert main(["run", str(path)]) == 130
    assert "modules seen" in capsys.readouterr().err


def test_the_plugin_is_gone_afterwards(script):
    assert run_script([str(script("import graphopt; print(graphopt.report().policy)"))]) == 0
    assert graphopt.report().policy is None


def test_the_policy_is_installed_while_the_script_runs(script, capsys):
    path = script("import graphopt; print(graphopt.report().policy)")
    assert run_script([str(path)], policy="xla-default") == 0
    assert capsys.readouterr().out == "xla-default\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no_such_script.py"], "there is no script no_such_script.py"),
        (["."], "there is no script ."),
        ([], "no script to run"),
        (["-m"], "no script to run"),
        (["-m", "no_such_module"], "no_such_module"),
    ],
)
def test_a_missing_script_is_a_clear_error(capsys, arguments, message):
    assert main(["run", *arguments]) == 2
    errors = capsys.readouterr().err
    (line,) = (line for line in errors.splitlines() if line.startswith("graphopt: "))
    assert message in line
    assert "Traceback" not in errors
    assert graphopt.report().policy is None


def test_help_is_about_graphopt_run(capsys):
    try:
        status = main(["run", "--help"])
    except SystemExit as exit_:
        status = exit_.code
    assert not status
    assert "script" in capsys.readouterr().out


def test_a_closed_pipe_is_no_error(script):
    path = script("""
        for number in range(100_000):
            print("line", number)
    """)
    process = subprocess.Popen(
        [sys.executable, "-m", "graphopt", "run", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
    )
    with process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "line 0\n"
        process.stdout.close()
        errors = process.stderr.read()
    assert process.returncode == 0, errors
    assert "Traceback" not in errors


def test_the_command_is_also_a_module():
    done = run_python("-m", "graphopt", "run")
    assert done.returncode == 2
    assert done.stderr.startswith("graphopt: no script to run")
