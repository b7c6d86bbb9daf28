"""Which modules of the queue cannot be tuned apart from their programs: a table of reasons with names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from graphopt.errors import GraphOptError, MeasureError
from graphopt.hlo import Graph, build_graph
from graphopt.hlo.module.index import ModuleIndex, device_count, has_donation, parse
from graphopt.learn.tune.api import MIN_NODES
from graphopt.measure.capabilities.own import own_capabilities
from graphopt.measure.compiling.stub import signature
from graphopt.store import Store

_CALLBACK: Final = "xla_ffi_python_cpu_callback"
"""In names of custom calls that go back to Python code of the program."""


@dataclass(frozen=True)
class Refusal:
    """One reason to leave a module alone.

    Attributes:
        name: under which it appears in the queue.
        message: the reason in words.
        applies: whether it holds for a module, given its bytes, its index and the store.
    """

    name: str
    message: str
    applies: Callable[[bytes, ModuleIndex, Store], bool]


def _several_devices(data: bytes, module: ModuleIndex, store: Store) -> bool:
    return device_count(module) > 1


def _host_callback(data: bytes, module: ModuleIndex, store: Store) -> bool:
    return any(
        _CALLBACK in instruction.proto.custom_call_target
        for computation in module.computations.values()
        for instruction in computation.by_id.values()
        if instruction.opcode == "custom-call"
    )


def _types(data: bytes, module: ModuleIndex, store: Store) -> bool:
    try:
        signature(data)
    except MeasureError:
        return True
    return False


def _donated(data: bytes, module: ModuleIndex, store: Store) -> bool:
    return has_donation(module) and not own_capabilities(store).donation


REFUSALS: Final = (
    Refusal(
        "several-devices", "it runs on several devices together, never alone", _several_devices
    ),
    Refusal("host-callback", "it calls Python code of its program", _host_callback),
    Refusal("types", "an input or a result is a token, or of a type that NumPy lacks", _types),
    Refusal(
        "donated-buffers",
        "this jaxlib drops donated buffers of rewritten modules, and what that costs shows only in "
        "the program: tune it with graphopt.tune",
        _donated,
    ),
)
"""In the order in which they are looked at."""


def graph_of(data: bytes, store: Store) -> Graph | str:
    """The graph of a module that can be tuned alone, else why it cannot: name and reason."""
    try:
        module = parse(data)
        for refusal in REFUSALS:
            if refusal.applies(data, module, store):
                return f"{refusal.name}: {refusal.message}"
        graph = build_graph(data, allow_donation=True)
    except GraphOptError as error:
        return f"{getattr(error, 'rule', 'unreadable')}: {error.what}"
    if len(graph) < MIN_NODES:
        return f"small: {len(graph)} nodes, nothing to decide"
    return graph
