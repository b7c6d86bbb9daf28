"""The JSON in ``backend_config``: partitions, library fusions, loop trip counts."""

from __future__ import annotations

import json
from functools import lru_cache
from math import prod
from typing import Any, Final

LIBRARY_FUSION: Final = "__ynn_fusion"
LIBRARY_CONFIG: Final = b'{"outer_dimension_partitions":[],"fusion_config":{"kind":"__ynn_fusion"}}'
"""Config of a kCustom fusion that the YNN kernel library executes."""


@lru_cache(maxsize=4096)
def _load(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data) if data else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def partitions(data: bytes) -> tuple[int, ...]:
    """Parts along each of the outer dimensions, major first; empty if the loop is not split."""
    return tuple(int(x) for x in _load(bytes(data)).get("outer_dimension_partitions", ()))


def partition_count(data: bytes) -> int:
    """Number of parallel parts of a loop fusion, 1 if it is not split."""
    return prod(partitions(data))


def is_library(data: bytes) -> bool:
    """True for the config of a YNN library fusion."""
    fusion = _load(bytes(data)).get("fusion_config", {})
    return isinstance(fusion, dict) and fusion.get("kind") == LIBRARY_FUSION


def trip_count(data: bytes) -> int | None:
    """Known trip count of a while loop, None if unknown."""
    known = _load(bytes(data)).get("known_trip_count", {})
    return int(known["n"]) if isinstance(known, dict) and "n" in known else None


def counter(data: bytes) -> tuple[int, int, int] | None:
    """The induction variable of a while loop: its place in the carried tuple, first value and step."""
    config = _load(bytes(data))
    known, step = config.get("known_induction_variable"), config.get("known_init_step")
    if not isinstance(known, dict) or not isinstance(step, dict):
        return None
    try:
        return int(known["tuple_index"]), int(step["init"]), int(step["step"])
    except (KeyError, ValueError):
        return None


def partition_config(parts: tuple[int, ...]) -> bytes:
    """Config of a loop fusion split into `parts`; empty bytes for an unsplit one."""
    if prod(parts) <= 1:
        return b""
    quoted = ",".join(f'"{part}"' for part in parts)
    return f'{{"outer_dimension_partitions":[{quoted}]}}'.encode()


def split_outer_dimensions(
    dims: tuple[int, ...], minor_to_major: tuple[int, ...], target: int
) -> tuple[int, ...]:
    """Splits a shape into about `target` parts along its outer dimensions.

    The same result as XLA's ``ShapePartitionAssigner``: every part is non-empty and the number of
    parts is at most `target`.
    """
    outer: list[int] = []
    size = 1
    for dimension in reversed(minor_to_major):
        outer.append(dims[dimension])
        size *= dims[dimension]
        if size >= target:
            break
    target = min(size, target)
    if target <= 1:
        return ()
    even = int(target ** (1.0 / len(outer)))
    counts = [min(extent, even) for extent in outer]
    if prod(counts) < target:
        for i, count in enumerate(counts):
            others = prod(counts) // count
            extra = min(outer[i] - count, target // others - count)
            counts[i] += max(0, extra)
    return tuple(counts)


@lru_cache(maxsize=65536)
def feasible_parts(dims: tuple[int, ...], minor_to_major: tuple[int, ...], target: int) -> int:
    """Number of parts that `split_outer_dimensions` really makes."""
    return prod(split_outer_dimensions(dims, minor_to_major, target))
