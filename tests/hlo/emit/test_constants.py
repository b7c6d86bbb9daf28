"""Constants lie inside of kernels: each in memory is a buffer that XLA looks at in every call."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from support.captures import capture, normal, with_unit_everywhere
from support.restructured import everywhere

from graphopt.hlo import rewrite
from graphopt.hlo.module.proto import HloModuleProto
from graphopt.machine import UnitKind, unit_index
from graphopt.measure import compare_outputs


def in_memory(data: bytes) -> list[str]:
    """Names of the scalar constants that are in no kernel."""
    module = HloModuleProto()
    module.ParseFromString(data)
    inside = {
        called
        for computation in module.computations
        for instruction in computation.instructions
        if instruction.opcode == "fusion"
        for called in instruction.called_computation_ids
    }
    return [
        instruction.name
        for computation in module.computations
        for instruction in computation.instructions
        if computation.id not in inside
        and instruction.opcode == "constant"
        and not instruction.shape.dimensions
    ]


def divergence(p: jax.Array, q: jax.Array) -> Any:
    p, q = (jax.nn.log_softmax(jax.nn.log_softmax(x)) for x in (p, q))
    return jnp.sum(jnp.exp(p) * (p - q), -1)


@pytest.mark.parametrize("packed", [False, True])
def test_native_regions_leave_none_behind(packed: bool) -> None:
    program = capture(divergence, normal(2, 3), normal(2, 3, seed=1))
    graph = program.graph
    decisions = with_unit_everywhere(graph, unit_index(graph.units, UnitKind.NATIVE))
    if packed:
        decisions = decisions.with_changes(restructure=everywhere(graph, "pack").restructure)
    result = rewrite(graph, decisions)
    assert result.regions
    assert len(in_memory(result.data)) <= len(in_memory(program.data))
    assert compare_outputs(program.result, program.compile(result.data)()).equal
