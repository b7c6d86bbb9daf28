"""The ways to run a program, each a function that makes some steps; in a process of their own."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

import graphopt.lazy as lt
from benchmarks.lazy_programs.programs import PROGRAMS, Program, State

STEPS: Final = 100
"""Steps of a run whose state at the end is looked at."""

SLOW_STEPS: Final = 5
"""The same where every operation is dispatched alone: a step of some programs takes 0.1 s."""

WARM_UP: Final = {"lazy": 14, "jit": 3, "eager": 2, "NumPy": 1, "PyTorch": 2}
"""Runs before the first that counts: lazy tensors run steps together after some hundred of them."""


def steps_of(way: str) -> int:
    """Steps that a run makes."""
    return SLOW_STEPS if way in ("eager", "PyTorch") else STEPS


def ways(program: Program) -> dict[str, Callable[[int], State]]:
    """Functions that make steps of a program and return its last state as NumPy arrays."""
    start = program.state(np.random.default_rng(0))
    jitted = jax.jit(lambda state: program.step(jnp, jax.grad, state))

    def lazily(state: State) -> State:
        with lt.step():
            return program.step(lt, lt.grad, state)

    found: dict[str, Callable[[int], State]] = {
        "lazy": lambda steps: _loop(lazily, tuple(map(lt.asarray, start)), steps),
        "jit": lambda steps: _loop(jitted, tuple(map(jnp.asarray, start)), steps),
        "eager": lambda steps: _loop(
            lambda state: program.step(jnp, jax.grad, state), tuple(map(jnp.asarray, start)), steps
        ),
    }
    if not program.differentiates:
        found["NumPy"] = lambda steps: _loop(lambda s: program.step(np, None, s), start, steps)
    with contextlib.suppress(ImportError):
        found["PyTorch"] = _by_torch(program, start)
    return found


def _loop(step: Callable[[State], State], state: State, steps: int) -> State:
    for _ in range(steps):
        state = step(state)
    return tuple(np.asarray(x) for x in state)


def _by_torch(program: Program, start: State) -> Callable[[int], State]:
    """The same under eager PyTorch, if it is installed, with the names of the array API."""
    torch, xp = import_module("torch"), import_module("array_api_compat.torch")

    def grad(function: Any, places: tuple[int, ...]) -> Any:
        return torch.func.grad(function, argnums=places)

    tensors = tuple(torch.from_numpy(np.array(x)) for x in start)
    return lambda steps: _loop(lambda state: program.step(xp, grad, state), tensors, steps)


def differs(results: dict[str, State]) -> list[str]:
    """Ways whose state is not that of ``jit`` after as many steps, beyond what rounding grows to."""
    wrong = []
    for name, state in results.items():
        for a, b in zip(state, results["jit"], strict=True):
            near = np.isclose(a, b, rtol=2e-2, atol=2e-2)
            if a.shape != b.shape or near.mean() < 0.95:
                wrong.append(name)
                break
    return wrong


def answer(mode: str) -> None:
    """Answers requests of the parent process, a line of JSON each.

    A request names a program and a way, or a program alone: then all ways run and are compared.
    """
    if mode == "off":
        lt.set_optimizer(None)
    known = {program.name: program for program in PROGRAMS}
    runs: dict[str, dict[str, Callable[[int], State]]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        program = known[request["program"]]
        if program.name not in runs:
            runs[program.name] = ways(program)
        print(json.dumps(_answer(runs[program.name], request.get("way"))), flush=True)


def _answer(run: dict[str, Callable[[int], State]], way: str | None) -> dict[str, Any]:
    if way is None:
        few = {name: call(20) for name, call in run.items()}
        many = {name: run[name](STEPS) for name in ("lazy", "jit")}
        for name, call in run.items():
            for _ in range(WARM_UP[name]):
                call(steps_of(name))
        return {"ways": list(run), "wrong": sorted({*differs(few), *differs(many)})}
    start = time.perf_counter()
    run[way](steps_of(way))
    return {"seconds": (time.perf_counter() - start) / steps_of(way)}
