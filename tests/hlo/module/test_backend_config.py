"""The JSON in backend configurations, and splitting shapes as XLA does."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.captures import captured, proto_of

from graphopt.hlo.module import backend_config


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        (b"", ()),
        (b"{}", ()),
        (b'{"outer_dimension_partitions":[]}', ()),
        (b'{"outer_dimension_partitions":["4"]}', (4,)),
        (b'{"outer_dimension_partitions":["2","8"],"other":1}', (2, 8)),
        (backend_config.LIBRARY_CONFIG, ()),
        (b"not json", ()),
        (b"[1, 2]", ()),
        (b"\xff\xfe", ()),
    ],
)
def test_partitions(data, parts):
    assert backend_config.partitions(data) == parts
    assert backend_config.partition_count(data) == prod(parts)


@pytest.mark.parametrize("parts", [(2,), (1, 3), (4, 2), (64,)])
def test_partitions_are_written_as_they_are_read(parts):
    data = backend_config.partition_config(parts)
    assert backend_config.partitions(data) == parts
    assert not backend_config.is_library(data)


@pytest.mark.parametrize("parts", [(), (1,), (1, 1)])
def test_no_partitions_need_no_config(parts):
    assert backend_config.partition_config(parts) == b""


def test_library_fusions():
    assert backend_config.is_library(backend_config.LIBRARY_CONFIG)
    assert not backend_config.is_library(b'{"fusion_config":{"kind":"other"}}')
    assert not backend_config.is_library(b'{"fusion_config":3}')
    assert not backend_config.is_library(b"")


@pytest.mark.parametrize(
    ("data", "trips"),
    [
        (b'{"known_trip_count":{"n":"12"},"known_init_step":{"init":"0","step":"1"}}', 12),
        (b'{"known_trip_count":{}}', None),
        (b"{}", None),
        (b"", None),
    ],
)
def test_trip_counts(data, trips):
    assert backend_config.trip_count(data) == trips


@st.composite
def shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Dimensions and a minor-to-major order of them."""
    dims = draw(st.lists(st.integers(1, 40), min_size=1, max_size=5))
    order = draw(st.permutations(range(len(dims))))
    return tuple(dims), tuple(order)


@settings(deadline=None, derandomize=True)
@given(shapes(), st.integers(1, 70))
def test_a_split_leaves_no_part_empty(shape, target):
    """XLA aborts the process on a part without elements."""
    dims, minor_to_major = shape
    parts = backend_config.split_outer_dimensions(dims, minor_to_major, target)
    extents = [dims[d] for d in reversed(minor_to_major)]
    assert len(parts) <= len(extents)
    assert all(1 <= part <= extent for part, extent in zip(parts, extents, strict=False))
    assert prod(parts) <= max(1, target)
    assert backend_config.feasible_parts(dims, minor_to_major, target) == prod(parts)
    if target > 1 and prod(dims) > 1:
        assert prod(parts) > 1


@pytest.mark.parametrize(
    ("dims", "minor_to_major", "target", "parts"),
    [
        ((64, 32), (1, 0), 2, (2,)),
        ((64, 32), (0, 1), 4, (4,)),
        ((3, 8), (1, 0), 4, (2, 2)),
        ((1, 64), (1, 0), 4, (1, 4)),
        ((5,), (0,), 8, (5,)),
        ((1, 1), (1, 0), 4, ()),
        ((8, 8), (1, 0), 1, ()),
    ],
)
def test_splits(dims, minor_to_major, target, parts):
    assert backend_config.split_outer_dimensions(dims, minor_to_major, target) == parts


def test_splits_are_xlas():
    compared = 0
    for name in ("transformer_block", "layernorm", "adam_step", "heat_stencil"):
        for computation in proto_of(captured(name).data).computations:
            for instruction in computation.instructions:
                parts = backend_config.partitions(instruction.backend_config)
                if not parts or instruction.opcode != "fusion":
                    continue
                shape = instruction.shape
                ours = backend_config.split_outer_dimensions(
                    tuple(shape.dimensions), tuple(shape.layout.minor_to_major), prod(parts)
                )
                assert ours == parts, instruction.name
                compared += 1
    if not compared:
        pytest.skip("XLA splits nothing here: it has one core")
