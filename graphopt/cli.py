"""The ``graphopt`` command: parses and calls, nothing else."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Union

import tyro
from rich.console import Console

from graphopt.errors import exit_status
from graphopt.evaluate.commands.store import Store
from graphopt.evaluate.commands.tuning import Queue, Tune
from graphopt.executing.commands import Fleet
from graphopt.extras import require
from graphopt.learn.collecting.commands import Collect, Fill
from graphopt.policy.registry import DEFAULT


@dataclass(frozen=True)
class Demo:
    """Measure real programs with XLA's default and with the plugin."""

    policy: str = DEFAULT
    """Policy to install."""
    graphs: tuple[str, ...] = ()
    """Names of programs; all if none is given."""
    workloads: str = "demo"
    """Program set: demo, fuzz, corpus, train, validation, held-out, tuning or pkg.module:WORKLOADS."""
    budget_s: float = 4.0
    """Seconds of timing per program."""
    out: Path | None = None
    """Write the rows as JSON here."""
    markdown: bool = False
    """Print the table as Markdown."""

    def run(self) -> int:
        """Exit status 1 if any result is wrong; one that cannot be verified is not."""
        from graphopt.evaluate.commands.demo import run_demo

        rows = run_demo(
            self.policy, self.graphs, self.workloads, self.budget_s, self.out, self.markdown
        )
        return 0 if all(row.equal or row.chaotic for row in rows) else 1


@dataclass(frozen=True)
class Fuzz:
    """Try random legal decisions, each in a child process, and compare results."""

    graphs: tuple[str, ...] = ()
    """Names of programs; all if none is given."""
    workloads: str = "fuzz"
    """Program set: fuzz, devices, demo, generated, corpus, train, ... or pkg.module:WORKLOADS."""
    trials: int = 400
    """Decision vectors in all."""
    seed: int = 0
    """First seed."""
    timeout_s: float = 120.0
    """A trial that takes longer counts as a hang."""
    workers: int = 2
    """Child processes at once."""
    devices: int | None = None
    """CPU devices of each process, all used by the set devices: by default 8 for that set, else 1."""
    lazy: bool = False
    """Random programs of lazy tensors instead, `trials` of them, against NumPy."""
    loops: bool = False
    """With --lazy: random loops, following earlier traces against recording anew."""

    def run(self) -> int:
        """Exit status 1 if any trial fails."""
        if self.lazy:
            from graphopt.evaluate.fuzzing.lazy import fuzz_lazy
            from graphopt.evaluate.fuzzing.lazy_loops import fuzz_lazy_loops

            fuzz = fuzz_lazy_loops if self.loops else fuzz_lazy
            return 1 if fuzz(self.trials, self.seed) else 0
        from graphopt.evaluate.fuzzing.progress import run_fuzz

        report = run_fuzz(
            self.workloads, self.graphs, self.trials, self.seed, self.timeout_s, self.workers,
            devices=self.devices,
        )  # fmt: skip
        return 1 if report.failures else 0


@dataclass(frozen=True)
class Capture:
    """Print the graphs that XLA sees for a builder pkg.module:ATTRIBUTE (or a built-in program)."""

    workload: Annotated[str, tyro.conf.Positional]
    """pkg.module:builder, the name of a built-in program, or with --lazy a script."""
    hlo: bool = False
    """Print the HLO text too."""
    add: bool = False
    """Keep the graphs in the corpus directory, as a program of your own."""
    split: Literal["train", "validation", "held-out"] = "train"
    """Split that --add puts the program into."""
    dir: Path | None = None
    """Corpus directory; $GRAPHOPT_CORPUS or the user's cache directory by default."""
    lazy: bool = False
    """Run a script and save the graphs of its lazy tensors."""
    out: Path = Path("graphs")
    """Directory for the graphs of a script."""

    def run(self) -> int:
        """The script's exit status; otherwise always 0."""
        if self.lazy:
            from graphopt.evaluate.commands.run import capture_lazy

            return capture_lazy(self.workload, self.out)
        from graphopt.evaluate.commands.capture import add_program, print_graphs

        if self.add:
            add_program(self.workload, self.split, self.dir)
        else:
            print_graphs(self.workload, self.hlo)
        return 0


@dataclass(frozen=True)
class Corpus:
    """The corpus of programs: list, show NAME, stats, capture, check (splits), verify (rewrites)."""

    action: Annotated[
        Literal["list", "show", "stats", "capture", "check", "verify"], tyro.conf.Positional
    ] = "list"
    """What to do."""
    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Names of programs; all if none is given."""
    split: Literal["", "train", "validation", "held-out"] = ""
    """Only the programs of this split."""
    dir: Path | None = None
    """Corpus directory; $GRAPHOPT_CORPUS or the user's cache directory by default."""
    json: bool = False
    """Print JSON."""
    markdown: bool = False
    """Print tables as Markdown."""
    workers: int = 2
    """Child processes at once."""

    def run(self) -> int:
        """Exit status 1 if a capture, a check or a comparison fails."""
        from graphopt.evaluate.commands.corpus import Query, run_corpus

        query = Query(self.names, self.split, self.dir, self.json, self.markdown, self.workers)
        return run_corpus(self.action, query)


@dataclass(frozen=True)
class Evaluate:
    """Measure a policy and tuning on many programs, each in a process of its own."""

    workloads: str = "demo"
    """Program set: demo, fuzz, corpus, train, validation, held-out, tuning or pkg.module:WORKLOADS."""
    graphs: tuple[str, ...] = ()
    """Names of programs; all if none is given."""
    policy: str = DEFAULT
    """Policy of the zero-shot column; empty for none; ``stored`` for the winners of the store."""
    budget_s: float = 60.0
    """Seconds of tuning per program; 0 for none."""
    zero_shot: bool = False
    """No tuning; the policy beside the heuristic: --budget-s 0 --rival heuristic."""
    rival: str = ""
    """Another policy that is measured in the same process, for comparison; empty for none."""
    limit_s: float = 300.0
    """Longest time of one program beyond its budget."""
    seed: int = 0
    """Seed of the tuner."""
    store: str | None = None
    """Path or URL of the tuner's store; a fresh one in the results by default."""
    out: Path = Path("report")
    """Folder of report.json, report.md and the plots."""
    executor: str = "local"
    """Which machines measure: local, ray:auto, ray:HOST:PORT or ray://HOST:PORT."""

    def run(self) -> int:
        """Exit status 1 if any program failed; one that cannot be verified has not."""
        from graphopt.evaluate.commands.evaluate import evaluate_and_show
        from graphopt.evaluate.evaluation.plan import Plan, has_failed

        report = evaluate_and_show(
            Plan(
                self.workloads,
                self.graphs,
                self.policy,
                0.0 if self.zero_shot else self.budget_s,
                self.seed,
                self.store,
                self.out,
                self.rival or ("heuristic" if self.zero_shot else ""),
                self.limit_s,
                self.executor,
            )
        )
        return 1 if any(has_failed(row) for row in report["workloads"]) else 0


@dataclass(frozen=True)
class Explain:
    """Say what a policy changes in a program, and why, and measure it: default beside chosen."""

    workload: Annotated[str, tyro.conf.Positional]
    """pkg.module:builder, or the name of a built-in program."""
    policy: str = DEFAULT
    """Policy whose decisions are explained."""
    html: Path | None = None
    """Write one self-contained page here."""
    json: bool = False
    """Print JSON instead of text."""
    measure_s: float = 2.0
    """Seconds of timing; 0 runs nothing."""

    def run(self) -> int:
        """Always exit status 0."""
        from graphopt.evaluate.commands.explain import explain_workload

        print(explain_workload(self.workload, self.policy, self.html, self.json, self.measure_s))
        return 0


@dataclass(frozen=True)
class Bench:
    """Measure the plugin itself: identity rewrites and overhead."""

    what: Annotated[str, tyro.conf.Positional] = "all"
    """identity, overhead, scaling or all."""
    budget_s: float = 4.0
    """Seconds of timing per program."""
    graphs: tuple[str, ...] = ()
    """For overhead: names of programs of the demo or of benchmarks.third_party; all if none is given."""
    out: Path = Path("report/bench")
    """Directory for what overhead writes."""
    executor: str = "local"
    """Which machine is measured: local, ray:auto, ray:HOST:PORT or ray://HOST:PORT."""

    def run(self) -> int:
        """Exit status 0; elsewhere, that of the command there."""
        from graphopt.evaluate.bench import run_bench
        from graphopt.evaluate.commands.elsewhere import bench_elsewhere

        if self.executor != "local":
            return bench_elsewhere(self.executor, self.what, self.budget_s, self.graphs, self.out)

        run_bench(self.what, self.budget_s, out=self.out, graphs=self.graphs)
        return 0


@dataclass(frozen=True)
class Doctor:
    """Say whether graphopt works on this machine."""

    calibrate: bool = False
    """Measure what things cost on this machine, some five seconds, and keep it in the store."""

    def run(self) -> int:
        """Exit status 1 if something needed is missing, or nothing could be measured."""
        if self.calibrate:
            from graphopt.evaluate.commands.calibrate import run_calibration

            return 0 if run_calibration() else 1
        from graphopt.evaluate.commands.doctor import diagnose
        from graphopt.progress import waiting

        with waiting(Console(), "compiling small programs"):
            text, healthy = diagnose()
        print(text)
        return 0 if healthy else 1


@dataclass(frozen=True)
class Run:
    """Run a script or module with the plugin installed: graphopt run script.py ARGS."""

    script: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """script.py ARGS, or -m module ARGS."""

    def run(self) -> int:
        """The script's exit status."""
        from graphopt.evaluate.commands.run import run_script

        return run_script(list(self.script))


@dataclass(frozen=True)
class Train:
    """Train a policy: graphopt train FLAGS, the same as train-policy FLAGS (--help lists them)."""

    flags: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Flags of train-policy."""

    def run(self) -> int:
        """The exit status of train-policy."""
        from graphopt.learn.cli import main as train_policy

        return train_policy(self.flags)


@dataclass(frozen=True)
class Advantages:
    """Learn what alternatives gain from duels: graphopt advantages FLAGS (--help lists them)."""

    flags: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Flags of the command."""

    def run(self) -> int:
        """Exit status 0, or 130 if interrupted."""
        from graphopt.learn.advantages.command import main as learn

        return learn(self.flags)


@dataclass(frozen=True)
class Ship:
    """Make a trained policy the one that install() loads, and write its model card."""

    run_dir: Annotated[Path, tyro.conf.Positional]
    """Directory of the training run."""
    report: Path | None = None
    """Folder of graphopt evaluate --zero-shot on the held-out programs."""

    def run(self) -> int:
        """Always exit status 0."""
        require("shipping a policy", "train")
        from graphopt.evaluate.commands.ship import ship

        print(f"model card: {ship(self.run_dir, self.report)}")
        return 0


Commands = Union[  # noqa: UP007 - tyro reads the union at run time
    Demo,
    Run,
    Fill,
    Collect,
    Train,
    Advantages,
    Ship,
    Tune,
    Queue,
    Evaluate,
    Fuzz,
    Capture,
    Corpus,
    Explain,
    Bench,
    Fleet,
    Doctor,
    Store,
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status."""
    argv = list(sys.argv[1:] if arguments is None else arguments)

    def run() -> int:
        """The command with its options; others parse what follows `run`, `train` and `advantages`."""
        if argv[:1] == ["run"]:
            return Run(tuple(argv[1:])).run()
        if argv[:1] == ["train"]:
            return Train(tuple(argv[1:])).run()
        if argv[:1] == ["advantages"]:
            return Advantages(tuple(argv[1:])).run()
        return tyro.cli(Commands, prog="graphopt", args=argv).run()

    return exit_status("graphopt", run)
