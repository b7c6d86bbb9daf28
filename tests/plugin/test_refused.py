"""The net under a rewrite: what XLA refuses is compiled again by default, and the user sees nothing of it."""

from __future__ import annotations

from dataclasses import replace

import jax
import pytest
from support.reports import FELL_BACK, REWRITTEN, agrees
from support.small_programs import STATE, named, rollout

import graphopt
from graphopt.hlo import rewrite
from graphopt.hlo.module.proto import HloModuleProto
from graphopt.plugin import modules

pytestmark = pytest.mark.usefixtures("clean_plugin")


def garbage(data):
    return b"\x0a\x03abc garbage"


def missing_target(data):
    """A module that calls what nobody has registered."""
    proto = HloModuleProto.FromString(data)
    entry = next(c for c in proto.computations if c.id == proto.entry_computation_id)
    victim = next(i for i in entry.instructions if i.opcode in ("fusion", "call", "while"))
    victim.opcode = "custom-call"
    victim.custom_call_target = "no_such_target"
    del victim.called_computation_ids[:]
    victim.ClearField("backend_config")
    return proto.SerializeToString()


def no_root(data):
    proto = HloModuleProto.FromString(data)
    for computation in proto.computations:
        computation.root_id = 10**6
    return proto.SerializeToString()


@pytest.fixture(params=[garbage, missing_target, no_root], ids=lambda f: f.__name__)
def spoiled(request, monkeypatch):
    """Every rewritten module is one that XLA refuses; counts them."""
    made = []

    def spoils(graph, decisions):
        result = rewrite(graph, decisions)
        made.append(result)
        return replace(result, data=request.param(result.data))

    monkeypatch.setattr(modules, "rewrite", spoils)
    return made


def test_the_users_program_runs_by_default(spoiled):
    graphopt.install("heuristic", store=False)
    assert agrees(named("cart")(STATE))
    (record,) = graphopt.report().records
    assert record.outcome is FELL_BACK
    assert record.reason.startswith("XLA refused the rewritten module: ")
    assert len(spoiled) == 1
    assert graphopt.report().counts[REWRITTEN] == 0


def test_a_refused_module_is_not_rewritten_again(spoiled):
    graphopt.install("heuristic", store=False)
    for _ in range(2):
        jax.clear_caches()
        assert agrees(named("cart")(STATE))
    assert len(spoiled) == 1
    assert graphopt.report().counts[FELL_BACK] == 2


def test_compiling_ahead_of_time_has_the_net_too(spoiled):
    graphopt.install("heuristic", store=False)
    assert agrees(jax.jit(rollout).lower(STATE).compile()(STATE))


def test_errors_that_are_the_users_reach_the_user():
    graphopt.install("heuristic", store=False)

    def unregistered(x):
        return jax.ffi.ffi_call("nobody_knows_this", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    with pytest.raises(Exception, match="nobody_knows_this"):
        jax.block_until_ready(jax.jit(unregistered)(STATE[0]))


def test_uninstalling_removes_the_net():
    from jax._src import compiler

    before = compiler.backend_compile_and_load
    graphopt.install("heuristic", store=False)
    assert compiler.backend_compile_and_load is not before
    graphopt.install("heuristic", store=False)
    graphopt.uninstall()
    assert compiler.backend_compile_and_load is before
