"""Policies on disk: a directory with ``spec.json``, ``weights.npz`` and an orbax copy of the weights.

``weights.npz`` is what is loaded for use: plain arrays, read by numpy without pickle, so that a stranger's
checkpoint can be wrong but cannot run code. ``orbax/`` holds the same weights for training tools. The
specification says which features, decisions and jaxlib the weights belong to; loading names the first entry
that does not fit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import GraphOptError
from graphopt.machine import machine_key
from graphopt.policy.heuristic.steps import STEPS
from graphopt.policy.network import features
from graphopt.policy.network.config import ModelConfig, parameter_shapes
from graphopt.policy.network.decision_space import (
    ALL_ROWS,
    DECODED,
    MAX_PLAIN_VALUES,
    VALUE_FEATURES,
    KnownRows,
)
from graphopt.policy.network.files import (
    ORBAX,
    WEIGHTS,
    Entries,
    check_parameters,
    read_checkpoint,
    read_weights,
    refused,
    version_of,
    write_checkpoint,
)
from graphopt.policy.network.gated import Gate, GuardedPolicy
from graphopt.policy.network.learned import LearnedPolicy
from graphopt.policy.network.numpy_network import NumpyPolicy

FORMAT: Final = 1
OLDEST_JAXLIB: Final = "0.10.2"
"""Whether a newer one keeps what rewriting rests on is tried before the first rewrite, with any policy."""

_MAX_WIDTH: Final = 4096


@dataclass(frozen=True)
class PolicySpec:
    """What the weights of a checkpoint belong to.

    Attributes:
        model: sizes of the network.
        min_gain: see `LearnedPolicy.min_gain`.
        steps: optimizer steps taken.
        trained_on: fingerprints of the graphs it was trained on.
        machine: key of the machine whose times it learned from.
        jaxlib: oldest that its decisions are for.
        metrics: validation metrics at the end of training.
        operations: rows of the operation embedding.
        gate: when the heuristic's decisions give way to others; None: the network decides alone.
        rows: what the network knows of `restructure`; other rows are masked for it.
        heuristic: steps of the heuristic whose decisions it learned to judge and to start from.
    """

    model: ModelConfig
    min_gain: float
    steps: int = 0
    trained_on: tuple[str, ...] = ()
    machine: str = field(default_factory=machine_key)
    jaxlib: str = OLDEST_JAXLIB
    metrics: Mapping[str, float] = field(default_factory=dict)
    operations: tuple[str, ...] = features.OP_NAMES
    gate: Gate | None = None
    rows: KnownRows = ALL_ROWS
    heuristic: tuple[str, ...] = STEPS


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A loaded policy.

    Attributes:
        spec: what it is.
        parameters: float32 arrays by name.
        digest: hex digest of everything that determines its decisions.
        path: where it was read.
    """

    spec: PolicySpec
    parameters: dict[str, NDArray[np.float32]]
    digest: str
    path: Path

    def policy(self) -> LearnedPolicy:
        """The policy, ready to decide."""
        network = NumpyPolicy(self.spec.model, self.parameters)
        return LearnedPolicy(network, self.spec.min_gain, rows=self.spec.rows)

    def decider(self) -> LearnedPolicy | GuardedPolicy:
        """What decides for users: the policy behind its gate, where it has one."""
        policy = self.policy()
        return policy if self.spec.gate is None else GuardedPolicy(policy, self.spec.gate)


def save(path: Path, spec: PolicySpec, parameters: Mapping[str, NDArray[np.float32]]) -> None:
    """Writes a checkpoint; an existing one at `path` is replaced at once, never half.

    Raises:
        PolicyError: the parameters are not those of `spec.model`, or the directory cannot be written.
    """
    check_parameters(parameters, _shapes(spec), str(path))
    write_checkpoint(path, parameters, lambda weights: _to_json(spec, weights))


def load(path: Path) -> Checkpoint:
    """Reads and checks a checkpoint.

    Raises:
        PolicyError: it is not there, damaged, or made for other features, decisions or versions; the
            first entry that does not fit is named.
    """
    spec, weights, digest = read_checkpoint(path, _from_json)
    parameters = read_weights(weights, _shapes(spec), path)
    return Checkpoint(
        replace(spec, operations=features.OP_NAMES), _remap(parameters, spec), digest, path
    )


def load_orbax(path: Path) -> dict[str, NDArray[np.float32]]:
    """The orbax copy of a checkpoint's weights, checked against the specification.

    Raises:
        PolicyError: as `load`.
    """
    checkpoint = load(path)
    import orbax.checkpoint as ocp

    like = {name: np.zeros_like(value) for name, value in checkpoint.parameters.items()}
    with ocp.StandardCheckpointer() as checkpointer:
        restored = checkpointer.restore((path / ORBAX).absolute(), like)
    out = {name: np.asarray(value) for name, value in restored.items()}
    check_parameters(out, _shapes(checkpoint.spec), str(path / ORBAX))
    return out


def _to_json(spec: PolicySpec, weights: bytes) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "features": {
            "version": features.VERSION,
            "numeric": features.numeric_names(),
            "operations": spec.operations,
            "dtypes": features.DTYPE_NAMES,
        },
        "decisions": {
            "fields": DECODED,
            "values": VALUE_FEATURES,
            "restructure": asdict(spec.rows),
        },
        "heuristic": spec.heuristic,
        "jaxlib": {"min": spec.jaxlib},
        "model": asdict(spec.model),
        "min_gain": spec.min_gain,
        **({} if spec.gate is None else {"gate": asdict(spec.gate)}),
        "machine": spec.machine,
        "steps": spec.steps,
        "metrics": dict(spec.metrics),
        "trained_on": spec.trained_on,
        "weights": {"file": WEIGHTS, "sha256": hashlib.sha256(weights).hexdigest()},
    }


def _from_json(data: Any, path: Path) -> tuple[PolicySpec, str]:
    """The specification and the checksum of the weights; refuses what does not fit this graphopt."""
    entry = Entries(data, path)
    entry.expect("format", FORMAT)
    entry.expect("features.version", features.VERSION)
    entry.expect("features.numeric", list(features.numeric_names()))
    entry.expect("features.dtypes", list(features.DTYPE_NAMES))
    entry.expect("decisions.fields", list(DECODED))
    entry.expect("decisions.values", list(VALUE_FEATURES))
    oldest = entry.get("jaxlib.min", str)
    installed = metadata.version("jaxlib")
    if version_of(installed) < version_of(oldest):
        raise refused(path, "jaxlib", f"is {oldest} or newer, installed is {installed}")
    spec = PolicySpec(
        model=_model(entry),
        min_gain=float(entry.get("min_gain", (int, float))),
        steps=entry.get("steps", int),
        trained_on=tuple(entry.strings("trained_on")),
        machine=entry.get("machine", str),
        jaxlib=oldest,
        metrics={
            k: float(v)
            for k, v in entry.get("metrics", dict).items()
            if isinstance(v, (int, float))
        },
        operations=tuple(entry.strings("features.operations")),
        gate=_gate(entry),
        rows=_rows(entry),
        heuristic=tuple(entry.strings("heuristic")),
    )
    if "unknown" not in spec.operations:
        raise refused(path, "features.operations", "has no row for unknown operations")
    return spec, entry.get("weights.sha256", str)


_KINDS: Final[dict[str, type | tuple[type, ...]]] = {
    "int": int,
    "float": (int, float),
    "bool": bool,
}


def _gate(entry: Entries) -> Gate | None:
    if "gate" not in entry.data:
        return None
    number = (int, float)
    return Gate(float(entry.get("gate.switch", number)), entry.get("gate.own", bool))


def _rows(entry: Entries) -> KnownRows:
    columns = tuple(entry.strings("decisions.restructure.columns"))
    trained = tuple(entry.strings("decisions.restructure.trained"))
    first = ALL_ROWS.columns[0]
    if columns[:1] != (first,) or not len(set(columns)) == len(columns) <= MAX_PLAIN_VALUES:
        what = f"is not {first!r} and up to {MAX_PLAIN_VALUES - 1} other names"
        raise refused(entry.path, "decisions.restructure.columns", what)
    if first not in trained or not set(trained) <= set(columns):
        what = f"is not {first!r} and other names of columns"
        raise refused(entry.path, "decisions.restructure.trained", what)
    return KnownRows(columns, trained)


def _model(entry: Entries) -> ModelConfig:
    sizes = {}
    for column in fields(ModelConfig):
        kind = _KINDS[str(column.type)]
        value = entry.get(f"model.{column.name}", kind)
        if abs(value) > _MAX_WIDTH:
            raise refused(entry.path, f"model.{column.name}", "is out of range")
        sizes[column.name] = value
    unknown = set(entry.get("model", dict)) - set(sizes)
    if unknown:
        raise refused(entry.path, f"model.{min(unknown)}", "is unknown to this graphopt")
    try:
        return ModelConfig(**sizes)
    except GraphOptError as error:
        raise refused(entry.path, "model", error.what) from error


def _shapes(spec: PolicySpec) -> dict[str, tuple[int, ...]]:
    shapes = parameter_shapes(spec.model)
    shapes["op_embedding"] = (len(spec.operations), spec.model.op_width)
    return shapes


def _remap(
    parameters: dict[str, NDArray[np.float32]], spec: PolicySpec
) -> dict[str, NDArray[np.float32]]:
    """Moves the rows of the operation embedding to where this graphopt has the operations."""
    row = {name: index for index, name in enumerate(spec.operations)}
    unknown = row["unknown"]
    rows = [row.get(name, unknown) for name in features.OP_NAMES]
    return {**parameters, "op_embedding": parameters["op_embedding"][rows]}
