"""Kinds of machines: what machines have in common whose costs are the same."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from graphopt.machine.machine import probe, read_vendor


@dataclass(frozen=True, slots=True)
class MachineKind:
    """A kind of machine under one version of jaxlib.

    Attributes:
        vendor: of the processor.
        name: its model name.
        simd_bits: width of the widest vector registers.
        cores: that a process may use.
        jaxlib: version.
    """

    vendor: str
    name: str
    simd_bits: int
    cores: int
    jaxlib: str

    def __str__(self) -> str:
        return (
            f"{self.name}, {self.simd_bits}-bit vectors, {self.cores} cores, jaxlib {self.jaxlib}"
        )


def jaxlib_version() -> str:
    """Of this process."""
    import jaxlib.version

    return str(jaxlib.version.__version__)


def own_kind() -> MachineKind:
    """The kind of this machine under the jaxlib of this process."""
    return _kind_under(jaxlib_version())


@functools.lru_cache(maxsize=1)
def _kind_under(jaxlib: str) -> MachineKind:
    here = probe()
    return MachineKind(read_vendor(), here.name, here.simd_bits, here.cores, jaxlib)
