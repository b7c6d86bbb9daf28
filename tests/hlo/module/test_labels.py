"""What two compiles of one program may differ in, taken off and put back."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from support.captures import captured, proto_of

from graphopt import xla_hook
from graphopt.errors import ModuleFormatError
from graphopt.hlo import rewrite
from graphopt.hlo.module.labels import labelled, numbered, refer_to, take_labels, take_number
from graphopt.hlo.module.proto import HloModuleProto
from graphopt.policy import resolve

PROGRAMS = ("cartpole_rollout", "layernorm", "adam_step", "sorting")


def modules_of_one_program():
    """The same program, compiled from two lines of code after another number of modules."""

    def twice(x):
        return jnp.tanh(jnp.cumsum(x)) @ x

    def compile_it():
        jax.jit(twice).lower(x).compile()

    x = jnp.ones(64)
    seen = []
    subscription = xla_hook.subscribe(lambda data: seen.append(data))
    try:
        compile_it()
        jax.clear_caches()
        jax.jit(lambda x: x + 1)(x)
        (lambda: compile_it())()
    finally:
        subscription.close()
    first, second = (data for data in seen if xla_hook.module_name(data) == "jit_twice")
    return first, second


def test_what_is_left_is_equal_for_equal_programs():
    first, second = modules_of_one_program()
    (bare, labels), (other, others) = take_labels(first), take_labels(second)
    assert first != second and labels != others
    assert bare == other


def test_everything_else_counts():
    data = captured("cartpole_rollout").data
    proto = proto_of(data)
    proto.computations[0].instructions[0].name += "x"
    assert take_labels(proto.SerializeToString())[0] != take_labels(data)[0]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_rewritten_module_gets_its_labels_back(name):
    program = captured(name)
    decisions = resolve("heuristic").decide(program.graph) or program.graph.default
    data = rewrite(program.graph, decisions).data
    _, labels = take_labels(program.data)
    stored = refer_to(data, labels)
    assert len(stored) < len(data)
    assert proto_of(labelled(stored, labels)) == proto_of(data)


def test_labels_are_those_of_the_module_at_hand():
    first, second = modules_of_one_program()
    (_, labels), (_, others) = take_labels(first), take_labels(second)
    assert proto_of(labelled(refer_to(first, labels), others)) == proto_of(second)


def test_bytes_that_are_no_module_are_refused():
    with pytest.raises(ModuleFormatError, match="not a serialized HLO module"):
        take_labels(b"garbage")


@pytest.mark.parametrize(
    "data", [b"", b"\x28", b"\x0a\xff", b"garbage", b"\x0a\x05abc", b"\xff" * 30, b"\x07\x00"]
)
def test_bytes_that_are_no_module_have_no_number(data):
    taken = take_number(data)
    assert b"".join(taken.parts) == data and taken.number == 0


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 1 << 40])
def test_a_number_is_taken_and_given(number):
    proto = HloModuleProto.FromString(captured("layernorm").data)
    proto.id = 0
    without = proto.SerializeToString()
    proto.id = number
    taken = take_number(proto.SerializeToString())
    assert taken.number == number and b"".join(taken.parts) == without
    assert HloModuleProto.FromString(numbered(without, number)) == proto
