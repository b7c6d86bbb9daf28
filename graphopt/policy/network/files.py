"""Files of checkpoints that strangers may have made: specifications in JSON, weights as plain arrays.

Nothing in them is run, sizes are checked before arrays are read, and errors name the first entry that does
not fit.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import PolicyError
from graphopt.files import write_directory

S = TypeVar("S")

SPEC: Final = "spec.json"
WEIGHTS: Final = "weights.npz"
ORBAX: Final = "orbax"

KIND: Final = "kind"
"""Entry of the specification that says what kind of policy it is; none: it decides nodes."""

MAX_SPEC_BYTES: Final = 16 << 20
"""Largest specification that is read."""

_HEADER_BYTES: Final = 4096

_FIX: Final = "Use a checkpoint made with this version of graphopt, or train one with train-policy."


def refused(path: Path, name: str, problem: str) -> PolicyError:
    """The error of an entry that does not fit."""
    return PolicyError(what=f"{name} {problem}", where=f"checkpoint {os.fspath(path)}", fix=_FIX)


def kind_of(path: Path) -> str:
    """What kind of policy a checkpoint holds; empty for one that decides nodes, or that cannot be read."""
    try:
        if (path / SPEC).stat().st_size > MAX_SPEC_BYTES:
            return ""
        found = json.loads((path / SPEC).read_bytes())
    except (OSError, ValueError, RecursionError):
        return ""
    return str(found.get(KIND, "")) if isinstance(found, dict) else ""


class Entries:
    """Typed access to untrusted JSON by dotted names."""

    def __init__(self, data: Any, path: Path) -> None:
        self.data = data
        self.path = path

    def get(self, name: str, kind: type | tuple[type, ...]) -> Any:
        """The entry of a dotted name; refuses the file if it is missing or of another type."""
        value = self.data
        for part in name.split("."):
            if not isinstance(value, dict) or part not in value:
                raise refused(self.path, name, "is missing")
            value = value[part]
        is_number = isinstance(value, bool) and kind is not bool
        if not isinstance(value, kind) or is_number:
            raise refused(self.path, name, f"has type {type(value).__name__}")
        return value

    def strings(self, name: str) -> list[str]:
        """The same, for a list of strings."""
        values = self.get(name, list)
        if not all(isinstance(value, str) for value in values):
            raise refused(self.path, name, "is not a list of strings")
        return list(values)

    def expect(self, name: str, value: Any) -> None:
        """Refuses the file if the entry differs, and names the first element of a list that does."""
        found = self.get(name, type(value))
        if found == value:
            return
        if isinstance(value, list):
            pairs = zip([*found, None], [*value, None], strict=False)
            index, (theirs, ours) = next((i, p) for i, p in enumerate(pairs) if p[0] != p[1])
            raise refused(
                self.path, f"{name}[{index}]", f"is {theirs!r}, this graphopt has {ours!r}"
            )
        raise refused(self.path, name, f"is {found!r}, this graphopt has {value!r}")


def version_of(text: str) -> tuple[int, ...]:
    """The numbers of a version."""
    digits = (part for part in text.split(".") if part.isdecimal() and len(part) < 8)
    return tuple(int(part) for part in digits)


Shapes = Mapping[str, tuple[int, ...]]
"""Name -> shape of every parameter."""


def read_weights(data: bytes, shapes: Shapes, path: Path) -> dict[str, NDArray[np.float32]]:
    """Reads the arrays after checking that the archive holds what the specification promises."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            sizes = {info.filename: info.file_size for info in archive.infolist()}
        for name, shape in shapes.items():
            if sizes.get(f"{name}.npy", 0) > 4 * int(np.prod(shape)) + _HEADER_BYTES:
                raise refused(path, f"weights {name}", "is larger than the network's")
        if set(sizes) != {f"{name}.npy" for name in shapes}:
            odd = min(set(sizes) ^ {f"{name}.npy" for name in shapes})
            raise refused(path, f"weights {odd}", "is missing or too many")
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            parameters = {name: arrays[name] for name in shapes}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, NotImplementedError) as error:
        raise refused(path, WEIGHTS, f"cannot be read: {type(error).__name__}") from error
    check_parameters(parameters, shapes, str(path))
    return parameters


def check_parameters(
    parameters: Mapping[str, NDArray[np.float32]], shapes: Shapes, where: str
) -> None:
    """Refuses arrays that are not those of a network's shapes, or not finite."""
    odd = set(shapes) ^ set(parameters)
    problem = f"weights {min(odd)} is missing or too many" if odd else ""
    for name, shape in shapes.items():
        value = parameters.get(name)
        if value is None:
            continue
        if value.shape != shape or value.dtype != np.float32:
            problem = problem or f"weights {name} is {value.dtype} {value.shape}, expected {shape}"
        elif not np.isfinite(value).all():
            problem = problem or f"weights {name} holds a value that is not finite"
    if problem:
        raise PolicyError(what=problem, where=where, fix=_FIX)


def pack_weights(parameters: Mapping[str, NDArray[np.float32]]) -> bytes:
    """The bytes of `WEIGHTS`."""
    buffer = io.BytesIO()
    np.savez(buffer, **{name: parameters[name] for name in sorted(parameters)})  # type: ignore[arg-type]
    return buffer.getvalue()


def save_orbax(folder: Path, parameters: Mapping[str, NDArray[np.float32]]) -> None:
    """Writes the copy of the weights for training tools."""
    import orbax.checkpoint as ocp  # takes time to import, and only training writes

    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder.absolute(), dict(parameters))


def write_checkpoint(
    path: Path,
    parameters: Mapping[str, NDArray[np.float32]],
    describe: Callable[[bytes], Mapping[str, Any]],
) -> None:
    """Writes specification and weights; a checkpoint that is there is replaced at once, never half.

    Args:
        path: its directory.
        parameters: of the network.
        describe: the bytes of `WEIGHTS` -> the specification, ready for JSON.

    Raises:
        PolicyError: the directory cannot be written.
    """
    weights = pack_weights(parameters)

    def fill(folder: Path) -> None:
        (folder / WEIGHTS).write_bytes(weights)
        (folder / SPEC).write_text(json.dumps(describe(weights), indent=1) + "\n")
        save_orbax(folder / ORBAX, parameters)

    write_directory(path, fill)


def read_checkpoint(
    path: Path, parse: Callable[[Any, Path], tuple[S, str]]
) -> tuple[S, bytes, str]:
    """A specification, the bytes of its weights, and a hex digest of both.

    Args:
        path: directory of the checkpoint.
        parse: (JSON, path) -> the specification and the checksum that it gives of the weights.

    Raises:
        PolicyError: a file is not there, damaged or too large, or `parse` refuses it.
    """
    try:
        if (path / SPEC).stat().st_size > MAX_SPEC_BYTES:
            raise refused(path, SPEC, "is too large for a specification")
        text = (path / SPEC).read_bytes()
        weights = (path / WEIGHTS).read_bytes()
        spec, checksum = parse(json.loads(text), path)
    except (OSError, ValueError, RecursionError) as error:
        raise refused(path, SPEC, f"cannot be read: {type(error).__name__}") from error
    if hashlib.sha256(weights).hexdigest() != checksum:
        raise refused(path, "weights.sha256", "does not match the weights")
    return spec, weights, hashlib.sha256(text + weights).hexdigest()[:16]
