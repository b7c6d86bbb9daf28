"""HLO modules as text, and back."""

from __future__ import annotations

from graphopt.errors import ModuleFormatError
from graphopt.jax_private import names


def hlo_text(module_bytes: bytes, *, large_constants: bool = True) -> str:
    """Return a serialized HloModuleProto as HLO text.

    Args:
        module_bytes: the serialized module.
        large_constants: print constants of more than ten elements in full. Without it they become
            `{...}`: easier to read, but no longer the same module.

    Raises:
        ModuleFormatError: the bytes are not a module.
        UnsupportedJaxError: jaxlib's HLO printer has moved.
    """
    module_type = names.require_private(names.HLO, "HloModule")
    options = names.require_private(names.HLO, "HloPrintOptions")()
    options.print_large_constants = large_constants
    try:
        module = module_type.from_serialized_hlo_module_proto(module_bytes)
    except (RuntimeError, TypeError) as error:
        raise ModuleFormatError(
            what=f"the bytes are not a serialized HLO module: {_reason(error)}",
            where=_size(module_bytes, "bytes"),
            fix="Pass what the HLO hook or a capture file holds, unchanged.",
        ) from error
    return str(module.to_string(options))


def hlo_from_text(text: str) -> bytes:
    """Return HLO text as a serialized HloModuleProto.

    For text that XLA printed or a developer wrote. The parser reports most mistakes, but some, such
    as a tuple instruction of array shape, end the process.

    Raises:
        ModuleFormatError: the text is not a module.
        UnsupportedJaxError: jaxlib's HLO parser has moved.
    """
    parse = names.require_private(names.HLO, "hlo_module_from_text")
    try:
        module = parse(text)
    except (RuntimeError, TypeError) as error:
        raise ModuleFormatError(
            what=f"the text is not an HLO module: {_reason(error)}",
            where=_size(text, "characters"),
            fix="Print modules with graphopt.jax_private.hlo_text, or correct the text there.",
        ) from error
    return bytes(module.as_serialized_hlo_module_proto())


def _reason(error: Exception) -> str:
    """The line of XLA's message that says what is wrong: the parser puts it second."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return next((line for line in lines if "error:" in line), lines[0]).strip().rstrip(".:")


def _size(data: object, unit: str) -> str:
    return f"{len(data):,} {unit}" if isinstance(data, bytes | str) else f"a {type(data).__name__}"
