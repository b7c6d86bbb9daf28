"""The part of XLA's HLO protobuf schema that graphopt reads and writes, as a table.

Field numbers are those of jaxlib 0.10.2. Fields that are not listed stay in a message as unknown
fields, so parsing and serialising a module keeps them. A message-typed field that graphopt never
looks into is declared ``bytes``: both are length-delimited on the wire.

Rows read ``(field name, field number, type)``; ``*`` marks a repeated field. A type is a protobuf
scalar type or the name of another message of the table.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE: Final = "graphopt.xla"

SCHEMA: Final[dict[str, tuple[tuple[str, int, str], ...]]] = {
    "HloModuleProto": (
        ("name", 1, "string"),
        ("entry_computation_name", 2, "string"),
        ("computations", 3, "*HloComputationProto"),
        ("host_program_shape", 4, "ProgramShapeProto"),
        ("id", 5, "int64"),
        ("entry_computation_id", 6, "int64"),
        ("schedule", 7, "HloScheduleProto"),
        ("input_output_alias", 8, "bytes"),
        ("is_dynamic", 11, "bool"),
        ("device_assignment", 15, "DeviceAssignmentProto"),
        ("stack_frame_index", 17, "bytes"),
        ("buffer_donor", 18, "bytes"),
    ),
    "HloScheduleProto": (("sequences", 1, "*ScheduleEntry"),),
    "ScheduleEntry": (("key", 1, "int64"), ("value", 2, "InstructionSequence")),
    "InstructionSequence": (("instruction_ids", 1, "*int64"),),
    "DeviceAssignmentProto": (("replica_count", 1, "int32"), ("computation_count", 2, "int32")),
    "HloComputationProto": (
        ("name", 1, "string"),
        ("instructions", 2, "*HloInstructionProto"),
        ("program_shape", 4, "ProgramShapeProto"),
        ("id", 5, "int64"),
        ("root_id", 6, "int64"),
        ("is_fusion_computation", 7, "bool"),
        ("execution_thread", 8, "string"),
    ),
    "HloInstructionProto": (
        ("name", 1, "string"),
        ("opcode", 2, "string"),
        ("shape", 3, "ShapeProto"),
        ("metadata", 7, "bytes"),
        ("literal", 8, "bytes"),
        ("parameter_number", 9, "int64"),
        ("fusion_kind", 11, "string"),
        ("tuple_index", 13, "int64"),
        ("dimensions", 14, "*int64"),
        ("window", 15, "Window"),
        ("slice_dimensions", 17, "*SliceDimensions"),
        ("dynamic_slice_sizes", 20, "*int64"),
        ("padding_config", 21, "PaddingConfig"),
        ("custom_call_target", 28, "string"),
        ("dot_dimension_numbers", 30, "DotDimensionNumbers"),
        ("gather_dimension_numbers", 33, "GatherDimensionNumbers"),
        ("gather_slice_sizes", 34, "*int64"),
        ("id", 35, "int64"),
        ("operand_ids", 36, "*int64"),
        ("control_predecessor_ids", 37, "*int64"),
        ("called_computation_ids", 38, "*int64"),
        ("sharding", 40, "bytes"),
        ("backend_config", 43, "bytes"),
        ("scatter_dimension_numbers", 48, "ScatterDimensionNumbers"),
        ("triangular_solve_options", 59, "TriangularSolveOptions"),
        ("is_stable", 60, "bool"),
        ("cholesky_options", 62, "CholeskyOptions"),
        ("comparison_direction", 63, "string"),
        ("indices_are_sorted", 67, "bool"),
        ("frontend_attributes", 68, "FrontendAttributes"),
        ("output_operand_aliasing", 74, "*OutputOperandAliasing"),
        ("custom_call_has_side_effect", 65, "bool"),
        ("unique_indices", 69, "bool"),
        ("comparison_type", 72, "string"),
        ("k", 81, "int64"),
        ("largest", 85, "bool"),
        ("original_value", 88, "bytes"),
    ),
    "SliceDimensions": (("start", 1, "int64"), ("limit", 2, "int64"), ("stride", 3, "int64")),
    "GatherDimensionNumbers": (
        ("offset_dims", 1, "*int64"),
        ("collapsed_slice_dims", 2, "*int64"),
        ("start_index_map", 3, "*int64"),
        ("index_vector_dim", 4, "int64"),
        ("operand_batching_dims", 5, "*int64"),
        ("start_indices_batching_dims", 6, "*int64"),
    ),
    "ScatterDimensionNumbers": (
        ("update_window_dims", 1, "*int64"),
        ("inserted_window_dims", 2, "*int64"),
        ("scatter_dims_to_operand_dims", 3, "*int64"),
        ("index_vector_dim", 4, "int64"),
        ("input_batching_dims", 5, "*int64"),
        ("scatter_indices_batching_dims", 6, "*int64"),
    ),
    "TriangularSolveOptions": (
        ("left_side", 1, "bool"),
        ("lower", 2, "bool"),
        ("unit_diagonal", 3, "bool"),
        ("transpose_a", 4, "int32"),
    ),
    "CholeskyOptions": (("lower", 1, "bool"),),
    "LiteralProto": (
        ("shape", 1, "ShapeProto"),
        ("preds", 2, "*bool"),
        ("s32s", 4, "*int32"),
        ("s64s", 5, "*int64"),
        ("u32s", 6, "*uint32"),
        ("u64s", 7, "*uint64"),
        ("f32s", 8, "*float"),
        ("f64s", 9, "*double"),
    ),
    "FrontendAttributes": (("map", 1, "*FrontendAttributesEntry"),),
    "FrontendAttributesEntry": (("key", 1, "string"), ("value", 2, "string")),
    "OutputOperandAliasing": (
        ("output_shape_index", 1, "*int64"),
        ("operand_index", 2, "int64"),
        ("operand_shape_index", 3, "*int64"),
    ),
    "InputOutputAliasProto": (("entries", 1, "*AliasEntryProto"),),
    "AliasEntryProto": (
        ("output_shape_index", 1, "*int64"),
        ("parameter_number", 2, "int64"),
        ("parameter_shape_index", 3, "*int64"),
    ),
    "ShapeProto": (
        ("element_type", 2, "int32"),
        ("dimensions", 3, "*int64"),
        ("tuple_shapes", 4, "*ShapeProto"),
        ("layout", 5, "LayoutProto"),
        ("is_dynamic_dimension", 6, "*bool"),
    ),
    "LayoutProto": (
        ("minor_to_major", 1, "*int64"),
        ("tiles", 6, "*bytes"),
        ("element_size_in_bits", 7, "int64"),
        ("tail_padding_alignment_in_elements", 16, "int64"),
    ),
    "ProgramShapeProto": (
        ("parameters", 1, "*ShapeProto"),
        ("result", 2, "ShapeProto"),
        ("parameter_names", 3, "*string"),
    ),
    "Window": (("dimensions", 1, "*WindowDimension"),),
    "WindowDimension": (
        ("size", 1, "int64"),
        ("stride", 2, "int64"),
        ("padding_low", 3, "int64"),
        ("padding_high", 4, "int64"),
        ("window_dilation", 5, "int64"),
        ("base_dilation", 6, "int64"),
        ("window_reversal", 7, "bool"),
    ),
    "PaddingConfig": (("dimensions", 1, "*PaddingDimension"),),
    "PaddingDimension": (
        ("edge_padding_low", 1, "int64"),
        ("edge_padding_high", 2, "int64"),
        ("interior_padding", 3, "int64"),
    ),
    "DotDimensionNumbers": (
        ("lhs_contracting_dimensions", 1, "*int64"),
        ("rhs_contracting_dimensions", 2, "*int64"),
        ("lhs_batch_dimensions", 3, "*int64"),
        ("rhs_batch_dimensions", 4, "*int64"),
    ),
    "OpMetadata": (
        ("op_type", 1, "string"),
        ("op_name", 2, "string"),
        ("source_file", 3, "string"),
        ("source_line", 4, "int32"),
        ("stack_frame_id", 15, "int32"),
    ),
    "StackFrameIndexProto": (
        ("file_names", 1, "*string"),
        ("function_names", 2, "*string"),
        ("file_locations", 3, "*FileLocation"),
        ("stack_frames", 4, "*StackFrame"),
    ),
    "FileLocation": (
        ("file_name_id", 1, "int32"),
        ("function_name_id", 2, "int32"),
        ("line", 3, "int32"),
    ),
    "StackFrame": (("file_location_id", 1, "int32"), ("parent_frame_id", 2, "int32")),
}
"""Message name -> rows of (field name, field number, type)."""

XLA_MESSAGE_NAMES: Final = {
    "FrontendAttributesEntry": "FrontendAttributes.MapEntry",
    "PaddingDimension": "PaddingConfig.PaddingConfigDimension",
    "FileLocation": "StackFrameIndexProto.FileLocation",
    "StackFrame": "StackFrameIndexProto.StackFrame",
    "SliceDimensions": "HloInstructionProto.SliceDimensions",
    "ScheduleEntry": "HloScheduleProto.SequencesEntry",
    "InstructionSequence": "HloScheduleProto.InstructionSequence",
    "InputOutputAliasProto": "HloInputOutputAliasProto",
    "AliasEntryProto": "HloInputOutputAliasProto.AliasEntryProto",
}
"""Names in XLA's own schema, where they differ (nested messages)."""


class DType(IntEnum):
    """XLA's PrimitiveType numbers, for the element types that occur in CPU modules."""

    INVALID = 0
    PRED = 1
    S8 = 2
    S16 = 3
    S32 = 4
    S64 = 5
    U8 = 6
    U16 = 7
    U32 = 8
    U64 = 9
    F16 = 10
    F32 = 11
    F64 = 12
    TUPLE = 13
    OPAQUE = 14
    C64 = 15
    BF16 = 16
    TOKEN = 17
    C128 = 18
    F8E5M2 = 19
    F8E4M3FN = 20
    S4 = 21
    U4 = 22
    F8E4M3B11FNUZ = 23
    F8E5M2FNUZ = 24
    F8E4M3FNUZ = 25
    S2 = 26
    U2 = 27
    F8E4M3 = 28
    F8E3M4 = 29
    S1 = 30
    U1 = 31
    F4E2M1FN = 32
    F8E8M0FNU = 33
    BUFFER = 34
    F6E2M3FN = 36
    F6E3M2FN = 35


_ONE_BYTE = (
    "PRED S8 U8 F8E5M2 F8E4M3FN F8E4M3B11FNUZ F8E5M2FNUZ F8E4M3FNUZ F8E4M3 F8E3M4 F8E8M0FNU "
    "S4 U4 S2 U2 S1 U1 F4E2M1FN F6E2M3FN F6E3M2FN"
).split()

DTYPE_BYTES: Final[dict[int, int]] = {
    **{DType[name].value: 1 for name in _ONE_BYTE},
    **{DType[name].value: 2 for name in ("S16", "U16", "F16", "BF16")},
    **{DType[name].value: 4 for name in ("S32", "U32", "F32")},
    **{DType[name].value: 8 for name in ("S64", "U64", "F64", "C64")},
    DType.C128.value: 16,
}
"""Bytes of one element on CPU (sub-byte types are stored one to a byte)."""

SUB_BYTE_DTYPES: Final = frozenset(
    DType[name].value
    for name in ("S4", "U4", "S2", "U2", "S1", "U1", "F4E2M1FN", "F6E2M3FN", "F6E3M2FN")
)

_SCALARS = {
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "uint32": descriptor_pb2.FieldDescriptorProto.TYPE_UINT32,
    "uint64": descriptor_pb2.FieldDescriptorProto.TYPE_UINT64,
    "float": descriptor_pb2.FieldDescriptorProto.TYPE_FLOAT,
    "double": descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE,
}


def message_classes(schema: dict[str, tuple[tuple[str, int, str], ...]]) -> dict[str, Any]:
    """The message classes of a schema, in a descriptor pool of their own: no clash with other XLA users."""
    file = descriptor_pb2.FileDescriptorProto(
        name="graphopt/xla_subset.proto", package=PACKAGE, syntax="proto3"
    )
    for message_name, rows in schema.items():
        message = file.message_type.add(name=message_name)
        for field_name, number, type_name in rows:
            field = message.field.add(name=field_name, number=number)
            base = type_name.removeprefix("*")
            field.label = (
                descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
                if type_name.startswith("*")
                else descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
            )
            if base in _SCALARS:
                field.type = _SCALARS[base]
            else:
                field.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
                field.type_name = f".{PACKAGE}.{base}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in schema
    }


_CLASSES: Final = message_classes(SCHEMA)

HloModuleProto: Any = _CLASSES["HloModuleProto"]
HloComputationProto: Any = _CLASSES["HloComputationProto"]
HloInstructionProto: Any = _CLASSES["HloInstructionProto"]
InputOutputAliasProto: Any = _CLASSES["InputOutputAliasProto"]
LiteralProto: Any = _CLASSES["LiteralProto"]
ShapeProto: Any = _CLASSES["ShapeProto"]
OpMetadata: Any = _CLASSES["OpMetadata"]
StackFrameIndexProto: Any = _CLASSES["StackFrameIndexProto"]
