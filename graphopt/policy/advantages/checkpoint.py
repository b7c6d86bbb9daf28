"""Policies over alternatives on disk, in the format of `graphopt.policy.network.checkpoint`.

``spec.json`` has the kind `ADVANTAGES`, names columns, kinds and sizes, and says how the policy decides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import GraphOptError
from graphopt.machine import machine_key
from graphopt.policy.advantages.alternative_columns import ALTERNATIVE_COLUMNS, KIND_NAMES
from graphopt.policy.advantages.config import AdvantageConfig, parameter_shapes
from graphopt.policy.advantages.decider import AdvantagePolicy, Rule
from graphopt.policy.advantages.node_columns import (
    DTYPE_NAMES,
    NODE_COLUMNS,
    OP_NAMES,
    PROGRAM_COLUMNS,
    STATE_COLUMNS,
    VERSION,
)
from graphopt.policy.advantages.numpy_network import NumpyAdvantages
from graphopt.policy.heuristic.steps import STEPS
from graphopt.policy.network.files import (
    KIND,
    WEIGHTS,
    Entries,
    check_parameters,
    read_checkpoint,
    read_weights,
    refused,
    version_of,
    write_checkpoint,
)

ADVANTAGES: Final = "advantages"
"""Kind of these checkpoints."""

FORMAT: Final = 1
OLDEST_JAXLIB: Final = "0.10.2"

_MAX_WIDTH: Final = 4096

_COLUMNS: Final[dict[str, list[str]]] = {
    "nodes": [column.name for column in NODE_COLUMNS],
    "state": list(STATE_COLUMNS),
    "program": [column.name for column in PROGRAM_COLUMNS],
    "alternatives": list(ALTERNATIVE_COLUMNS),
    "dtypes": list(DTYPE_NAMES),
}
"""Columns that must be the same; operations and kinds are matched by name."""

_EMBEDDED: Final = {
    "op_embedding": ("operations", OP_NAMES),
    "kind_embedding": ("kinds", KIND_NAMES),
}
"""Embeddings whose rows go by name; the first row is for what is not known."""


@dataclass(frozen=True)
class AdvantageSpec:
    """What the weights of a checkpoint belong to.

    Attributes:
        model: sizes of the network.
        rule: how the policy decides.
        trained_on: families of programs that it was trained on.
        duels: duels that it was trained on.
        machine: key of the machine whose times it learned from.
        jaxlib: oldest that its decisions are for.
        metrics: what was measured of it on families that it had not seen.
        operations: rows of the operation embedding.
        kinds: rows of the embedding of kinds.
        heuristic: steps of the heuristic from whose decisions it learned to go on.
    """

    model: AdvantageConfig
    rule: Rule
    trained_on: tuple[str, ...] = ()
    duels: int = 0
    machine: str = field(default_factory=machine_key)
    jaxlib: str = OLDEST_JAXLIB
    metrics: Mapping[str, float] = field(default_factory=dict)
    operations: tuple[str, ...] = OP_NAMES
    kinds: tuple[str, ...] = KIND_NAMES
    heuristic: tuple[str, ...] = STEPS


@dataclass(frozen=True, eq=False)
class AdvantageCheckpoint:
    """A loaded policy over alternatives.

    Attributes:
        spec: what it is.
        parameters: float32 arrays by name, embeddings in the order of this graphopt's tables.
        digest: hex digest of everything that determines its decisions.
        path: where it was read.
    """

    spec: AdvantageSpec
    parameters: dict[str, NDArray[np.float32]]
    digest: str
    path: Path

    def decider(self) -> AdvantagePolicy:
        """The policy, ready to decide."""
        return AdvantagePolicy(NumpyAdvantages(self.spec.model, self.parameters), self.spec.rule)


def save_advantages(
    path: Path, spec: AdvantageSpec, parameters: Mapping[str, NDArray[np.float32]]
) -> None:
    """Writes a checkpoint; an existing one at `path` is replaced at once, never half.

    Raises:
        PolicyError: the parameters are not those of `spec.model`, or the directory cannot be written.
    """
    check_parameters(parameters, _shapes(spec), str(path))
    write_checkpoint(path, parameters, lambda weights: _to_json(spec, weights))


def load_advantages(path: Path) -> AdvantageCheckpoint:
    """Reads and checks a checkpoint.

    Raises:
        PolicyError: it is not there, damaged, of another kind, or made for other columns or versions; the
            first entry that does not fit is named.
    """
    spec, weights, digest = read_checkpoint(path, _from_json)
    parameters = read_weights(weights, _shapes(spec), path)
    for name, (attribute, own) in _EMBEDDED.items():
        theirs = {row: index for index, row in enumerate(getattr(spec, attribute))}
        parameters[name] = parameters[name][[theirs.get(row, 0) for row in own]]
    return AdvantageCheckpoint(spec, parameters, digest, path)


def _shapes(spec: AdvantageSpec) -> dict[str, tuple[int, ...]]:
    shapes = parameter_shapes(spec.model)
    for name, (attribute, _) in _EMBEDDED.items():
        shapes[name] = (len(getattr(spec, attribute)), shapes[name][1])
    return shapes


def _to_json(spec: AdvantageSpec, weights: bytes) -> dict[str, Any]:
    return {
        KIND: ADVANTAGES,
        "format": FORMAT,
        "columns": {"version": VERSION, **_COLUMNS},
        "operations": spec.operations,
        "kinds": spec.kinds,
        "heuristic": spec.heuristic,
        "jaxlib": {"min": spec.jaxlib},
        "model": asdict(spec.model),
        "rule": asdict(spec.rule),
        "machine": spec.machine,
        "duels": spec.duels,
        "metrics": dict(spec.metrics),
        "trained_on": spec.trained_on,
        "weights": {"file": WEIGHTS, "sha256": hashlib.sha256(weights).hexdigest()},
    }


def _from_json(data: Any, path: Path) -> tuple[AdvantageSpec, str]:
    """The specification and the checksum of the weights; refuses what does not fit this graphopt."""
    entry = Entries(data, path)
    entry.expect(KIND, ADVANTAGES)
    entry.expect("format", FORMAT)
    entry.expect("columns.version", VERSION)
    for name, columns in _COLUMNS.items():
        entry.expect(f"columns.{name}", columns)
    oldest = entry.get("jaxlib.min", str)
    installed = metadata.version("jaxlib")
    if version_of(installed) < version_of(oldest):
        raise refused(path, "jaxlib", f"is {oldest} or newer, installed is {installed}")
    spec = AdvantageSpec(
        model=_made(AdvantageConfig, "model", entry),
        rule=_made(Rule, "rule", entry),
        trained_on=tuple(entry.strings("trained_on")),
        duels=entry.get("duels", int),
        machine=entry.get("machine", str),
        jaxlib=oldest,
        metrics={
            k: float(v) for k, v in entry.get("metrics", dict).items() if isinstance(v, int | float)
        },
        operations=tuple(entry.strings("operations")),
        kinds=tuple(entry.strings("kinds")),
        heuristic=tuple(entry.strings("heuristic")),
    )
    for name, own in (("operations", OP_NAMES), ("kinds", KIND_NAMES)):
        if getattr(spec, name)[:1] != own[:1]:
            raise refused(path, name, f"does not begin with {own[0]!r}")
    return spec, entry.get("weights.sha256", str)


_TYPES: Final[dict[str, Any]] = {"int": int, "float": (int, float), "bool": bool, "str": str}


def _made(kind: Any, name: str, entry: Entries) -> Any:
    """An instance of a dataclass of numbers and strings, from the entries under a name."""
    values: dict[str, Any] = {}
    for column in fields(kind):
        where = f"{name}.{column.name}"
        if str(column.type).startswith("tuple"):
            values[column.name] = tuple(entry.strings(where))
            continue
        value = entry.get(where, _TYPES[str(column.type)])
        if isinstance(value, int | float) and not abs(value) <= _MAX_WIDTH:
            raise refused(entry.path, where, "is out of range")
        values[column.name] = value
    unknown = set(entry.get(name, dict)) - set(values)
    if unknown:
        raise refused(entry.path, f"{name}.{min(unknown)}", "is unknown to this graphopt")
    try:
        return kind(**values)
    except GraphOptError as error:
        raise refused(entry.path, name, error.what) from error
