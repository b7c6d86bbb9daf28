"""What tests of rewriting share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from graphopt.hlo import Decisions, Graph, Rewrite, rewrite
from graphopt.measure import compare_outputs
from support.captures import Captured, proto_of


def instructions(data: bytes, opcode: str) -> Iterator[Any]:
    for computation in proto_of(data).computations:
        for instruction in computation.instructions:
            if instruction.opcode == opcode:
                yield instruction


def checked(program: Captured, decisions: Decisions) -> Rewrite:
    """Rewrites, compiles, runs and compares."""
    rewritten = rewrite(program.graph, decisions)
    difference = compare_outputs(program.result, program.compile(rewritten.data)())
    assert difference.equal, (difference, rewritten.overrides)
    return rewritten


def fused_where_legal(graph: Graph) -> Decisions:
    return graph.default.with_changes(fuse=graph.masks.fuse[:, 1].copy())


def kept_where_legal(graph: Graph) -> Decisions:
    return graph.default.with_changes(fuse=~graph.masks.fuse[:, 0])


def joined_where_legal(graph: Graph, decisions: Decisions) -> Decisions:
    return decisions.with_changes(join=graph.masks.join[:, 1].copy())


def chain(x: jax.Array) -> jax.Array:
    return jnp.exp(jnp.tanh(x)[::-1]) * 2.0
