"""Constants lie inside of kernels: each in memory is a buffer that XLA looks at in every call."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.captures import capture, normal

from graphopt.hlo import rewrite
from graphopt.hlo.module.proto import HloModuleProto
from graphopt.measure import compare_outputs
from graphopt.policy.heuristic.steps import heuristic_steps


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


@pytest.mark.parametrize("steps", [("small runs",), ("small runs", "packed functions")])
def test_native_regions_leave_none_behind(steps: tuple[str, ...]) -> None:
    program = capture(divergence, normal(2, 3), normal(2, 3, seed=1))
    decisions = heuristic_steps(program.graph, steps)
    if "packed functions" in steps:
        assert np.any(decisions.restructure)
    result = rewrite(program.graph, decisions)
    assert result.regions
    assert len(in_memory(result.data)) <= len(in_memory(program.data))
    assert compare_outputs(program.result, program.compile(result.data)()).equal
