"""Our part of XLA's schema agrees with the one inside jaxlib, and loses nothing of a module."""

from __future__ import annotations

import functools
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jaxlib
import pytest
from google.protobuf import descriptor_pb2
from support.captures import captured

from graphopt.hlo.module import proto
from graphopt.hlo.module.proto import SCHEMA, XLA_MESSAGE_NAMES, DType, HloModuleProto
from graphopt.jax_private import hlo_text

FieldType = descriptor_pb2.FieldDescriptorProto

FILES = ("xla/service/hlo.proto", "xla/xla_data.proto")

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

# Field numbers of FileDescriptorProto, by wire type. Those of REPEATED may occur again.
FILE_FIELDS = {BYTES: {1, 2, 3, 4, 5, 6, 7, 8, 9, 12}, VARINT: {10, 11, 14}}
REPEATED = {3, 4, 5, 6, 7, 10, 11}

ALLOWED_TYPES = {
    "string": {FieldType.TYPE_STRING},
    "bytes": {FieldType.TYPE_BYTES, FieldType.TYPE_MESSAGE},
    "int64": {FieldType.TYPE_INT64},
    "int32": {FieldType.TYPE_INT32, FieldType.TYPE_ENUM},
    "bool": {FieldType.TYPE_BOOL},
    "uint32": {FieldType.TYPE_UINT32},
    "uint64": {FieldType.TYPE_UINT64},
    "float": {FieldType.TYPE_FLOAT},
    "double": {FieldType.TYPE_DOUBLE},
}


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def wire_fields(data: bytes, at: int = 0) -> Iterator[tuple[int, int, Any, int]]:
    """(field number, wire type, value, end) of the fields that start at `at`."""
    while at < len(data):
        tag, at = read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value: Any
            value, at = read_varint(data, at)
        elif wire == BYTES:
            size, at = read_varint(data, at)
            value, at = data[at : at + size], at + size
        elif wire in (FIXED32, FIXED64):
            size = 4 if wire == FIXED32 else 8
            value, at = data[at : at + size], at + size
        else:
            return
        yield number, wire, value, at


def file_descriptor(data: bytes) -> descriptor_pb2.FileDescriptorProto:
    """The descriptor that `data` starts with; what follows it is no part of it."""
    end, seen = 0, set()
    for number, wire, _, after in wire_fields(data):
        if number not in FILE_FIELDS.get(wire, ()) or (number in seen and number not in REPEATED):
            break
        seen.add(number)
        end = after
    return descriptor_pb2.FileDescriptorProto.FromString(data[:end])


def messages_of(prefix: str, types: Any) -> Iterator[tuple[str, Any]]:
    for message in types:
        yield prefix + message.name, message
        yield from messages_of(f"{prefix}{message.name}.", message.nested_type)


@functools.cache
def xla_files() -> dict[str, Any]:
    """XLA's schema files as they are embedded in jaxlib's shared library."""
    library = Path(jaxlib.__file__).parent / "libjax_common.so"
    if not library.exists():
        pytest.skip("this jaxlib has no libjax_common.so to read the schema from")
    found = {}
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for name in FILES:
            at = data.find(b"\n" + bytes([len(name)]) + name.encode() + b"\x12\x03xla")
            if at < 0:
                pytest.skip(f"no descriptor of {name} in {library.name}")
            found[name] = file_descriptor(data[at : at + (1 << 20)])
    return found


@pytest.fixture
def xla_messages() -> dict[str, Any]:
    """XLA's message descriptors by name; nested ones as Outer.Inner."""
    return dict(
        pair for file in xla_files().values() for pair in messages_of("", file.message_type)
    )


@pytest.mark.parametrize("message", SCHEMA)
def test_fields_have_xlas_names_numbers_and_types(message, xla_messages):
    theirs = {f.name: f for f in xla_messages[XLA_MESSAGE_NAMES.get(message, message)].field}
    for name, number, declared in SCHEMA[message]:
        field = theirs[name]
        assert field.number == number, name
        assert (field.label == FieldType.LABEL_REPEATED) == declared.startswith("*"), name
        base = declared.removeprefix("*")
        if base in SCHEMA:
            assert field.type_name == f".xla.{XLA_MESSAGE_NAMES.get(base, base)}", name
        else:
            assert field.type in ALLOWED_TYPES[base], name


def test_xlas_schema_has_the_same_syntax():
    """In proto3 scalars at zero are left out and repeated numbers are packed, as in our table."""
    assert {file.syntax for file in xla_files().values()} == {"proto3"}


def test_element_types_have_xlas_numbers():
    (enum,) = (e for e in xla_files()["xla/xla_data.proto"].enum_type if e.name == "PrimitiveType")
    theirs = {value.name: value.number for value in enum.value}
    names = {"INVALID": "PRIMITIVE_TYPE_INVALID", "OPAQUE": "OPAQUE_TYPE"}
    for ours in DType:
        assert theirs[names.get(ours.name, ours.name)] == ours, ours.name


def test_sub_byte_types_take_a_byte_each():
    assert {proto.DTYPE_BYTES[dtype] for dtype in proto.SUB_BYTE_DTYPES} == {1}
    arrays = set(DType) - {DType.INVALID, DType.TUPLE, DType.OPAQUE, DType.TOKEN, DType.BUFFER}
    assert set(proto.DTYPE_BYTES) == {dtype.value for dtype in arrays}


# Reading and writing modules.

SAMPLE = ("conv_grad", "fibonacci", "gather_scatter", "sorting", "stack_machine")


def canonical(data: bytes, message: str) -> dict[int, list[Any]]:
    """All fields of a message by number, known messages taken apart.

    Empty bytes are left out: a message that the table declares as bytes does not show its presence.
    """
    types = {number: declared.removeprefix("*") for _, number, declared in SCHEMA[message]}
    out: dict[int, list[Any]] = {}
    for number, wire, value, _ in wire_fields(data):
        declared = types.get(number, "")
        if declared in SCHEMA:
            out.setdefault(number, []).append(canonical(value, declared))
        elif value != b"" or declared != "bytes":
            out.setdefault(number, []).append((wire, value))
    return out


@pytest.mark.parametrize("name", SAMPLE)
def test_a_module_survives_parsing_and_serialising(name):
    data = captured(name).data
    again = HloModuleProto.FromString(data).SerializeToString()
    assert canonical(again, "HloModuleProto") == canonical(data, "HloModuleProto")
    assert hlo_text(again) == hlo_text(data)
    assert HloModuleProto.FromString(again).SerializeToString() == again


def test_unknown_fields_stay():
    module = HloModuleProto(name="m")
    module.computations.add(name="c").instructions.add(name="i", opcode="compare")
    plain = module.SerializeToString()
    unknown = b"\x9a\xf6\x24\x05hello"  # field 75,539, five bytes
    instruction = module.computations[0].instructions[0]
    instruction.MergeFromString(unknown)
    data = module.SerializeToString()
    assert data != plain
    copy = HloModuleProto()
    copy.CopyFrom(HloModuleProto.FromString(data))
    copy.name = "renamed"
    assert unknown in copy.SerializeToString()
    assert copy.computations[0].instructions[0].SerializeToString().endswith(unknown)


def test_real_modules_hold_fields_outside_the_table():
    """Else the tests above would not show that such fields are kept."""
    known = {number for _, number, _ in SCHEMA["HloInstructionProto"]}
    computations = canonical(captured("sorting").data, "HloModuleProto")[3]
    numbers = {n for c in computations for instruction in c[2] for n in instruction}
    assert numbers - known
