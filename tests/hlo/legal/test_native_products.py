"""Native code multiplies matrices of the types that its emitter knows, and no others."""

from __future__ import annotations

import pytest
from support.captures import MACHINE, changed, node, unit
from support.rewriting import instructions

from graphopt.errors import VerificationError
from graphopt.hlo import build_graph, rewrite, verify
from graphopt.hlo.module.index import parse
from graphopt.hlo.module.opcodes import NATIVE_PRODUCT_DTYPES, is_native_product
from graphopt.hlo.module.proto import DType
from graphopt.jax_private import hlo_from_text
from graphopt.machine import UnitKind
from graphopt.measure.compiling.stub import StubCompiler, signature
from graphopt.measure.inputs import made_up_inputs

PRODUCT = """\
HloModule product

ENTRY main {
  p = T[6,7]{1,0} parameter(0)
  q = T[7,5]{1,0} parameter(1)
  a = T[6,7]{1,0} add(p, p)
  d = T[6,5]{1,0} dot(a, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT n = T[6,5]{1,0} add(d, d)
}
"""


def product(kind: str) -> bytes:
    return hlo_from_text(PRODUCT.replace("T[", f"{kind}["))


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "s32", "u8", "c64"])
def test_products_that_native_code_knows_may_be_native(kind):
    data = product(kind)
    graph = build_graph(data, MACHINE)
    native = unit(graph, UnitKind.NATIVE)
    dot = node(graph, "dot")
    assert graph.masks.unit[dot, native]
    around = {n: native for n in range(len(graph)) if graph.masks.unit[n, native]}
    result = rewrite(graph, changed(graph.default, unit=around))
    assert result.regions == 1
    StubCompiler(data, made_up_inputs(signature(data).parameters)).compile(result.data)()


@pytest.mark.parametrize("kind", ["bf16", "f8e4m3fn", "f8e5m2"])
def test_others_may_not(kind):
    graph = build_graph(product(kind), MACHINE)
    native = unit(graph, UnitKind.NATIVE)
    dot = node(graph, "dot")
    assert graph.masks.why_not(dot, "unit", native) == "not-in-region"


def test_the_verifier_finds_a_native_product_of_short_numbers():
    graph = build_graph(product("f32"), MACHINE)
    native = unit(graph, UnitKind.NATIVE)
    around = {n: native for n in range(len(graph)) if graph.masks.unit[n, native]}
    data = rewrite(graph, changed(graph.default, unit=around)).data
    proto = parse(data).proto
    verify(proto)
    for computation in proto.computations:
        for instruction in computation.instructions:
            instruction.shape.element_type = _shortened(instruction.shape)
            for part in instruction.shape.tuple_shapes:
                part.element_type = _shortened(part)
    assert next(instructions(proto.SerializeToString(), "dot")).shape.element_type == DType.BF16
    with pytest.raises(VerificationError) as caught:
        verify(proto)
    assert (caught.value.rule, caught.value.node) == ("native-region", "d")


def _shortened(shape) -> int:
    return int(DType.BF16 if shape.element_type == DType.F32 else shape.element_type)


def test_operands_and_result_have_one_type():
    assert is_native_product([DType.F32, DType.F32])
    assert not is_native_product([DType.F16, DType.F32])
    assert DType.BF16 not in NATIVE_PRODUCT_DTYPES
