"""The machine programs are optimized for: what it is, and how to find out."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from graphopt.errors import ConfigError
from graphopt.machine.units import Unit, cpu_units

# Assumed where the system does not say: small enough that nothing is planned around cache that is
# not there.
_DEFAULT_L1_BYTES = 32 * 1024
_DEFAULT_L2_BYTES = 256 * 1024
_DEFAULT_MEMORY_BYTES = 4 * 1024**3

_SIZE_SUFFIXES = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
# First match wins.
_SIMD_FLAGS = (("avx512f", 512), ("avx2", 256), ("avx", 256), ("sse2", 128), ("asimd", 128))
_SIMD_BY_ARCHITECTURE = {"x86_64": 128, "amd64": 128, "aarch64": 128, "arm64": 128}


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine, as far as decisions depend on it.

    Attributes:
        name: the processor's model name.
        platform: the XLA platform, such as "cpu".
        cores: cores that this process may use, at least 1.
        l1_bytes: first-level data cache of one core.
        l2_bytes: second-level cache of one core.
        l3_bytes: last-level cache that cores share; 0 when there is none or it is unknown.
        simd_bits: width of the widest vector registers.
        memory_bytes: main memory.
        units: the execution units, in the order in which decisions number them.
    """

    name: str
    platform: str
    cores: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    simd_bits: int
    memory_bytes: int
    units: tuple[Unit, ...]

    def __post_init__(self) -> None:
        names = [unit.name for unit in self.units]
        if self.cores < 1 or len(set(names)) != len(names):
            raise ConfigError(
                what=f"{self.cores} cores and units {names}; at least one core, unique unit names",
                where=f"machine {self.name}",
                fix="Correct the description of this machine.",
            )

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.cores} cores, L1 {self.l1_bytes // 1024} KiB, "
            f"L2 {self.l2_bytes // 1024} KiB, L3 {self.l3_bytes // 1024} KiB, "
            f"{self.simd_bits}-bit vectors, {self.memory_bytes / 1024**3:.1f} GiB"
        )


@functools.lru_cache(maxsize=1)
def probe() -> Machine:
    """Return the machine this process runs on.

    Looked up once: a later change of CPU affinity is not seen, as XLA's thread pool, made once,
    does not see it either. `probe.cache_clear()` forgets the answer.
    """
    return read_machine()


def read_machine(root: Path = Path("/")) -> Machine:
    """Describe the machine whose /sys and /proc lie under `root`; what is missing is assumed."""
    cpu_info = _read(root / "proc/cpuinfo")
    caches = _cache_sizes(root / "sys/devices/system/cpu/cpu0/cache")
    cores = _usable_cores()
    return Machine(
        name=_field(cpu_info, "model name") or platform.processor() or platform.machine() or "cpu",
        platform="cpu",
        cores=cores,
        l1_bytes=caches.get(1, _DEFAULT_L1_BYTES),
        l2_bytes=caches.get(2, _DEFAULT_L2_BYTES),
        l3_bytes=caches.get(3, 0),
        simd_bits=_simd_bits(cpu_info),
        memory_bytes=_memory_bytes(root),
        units=cpu_units(cores),
    )


def read_vendor(root: Path = Path("/")) -> str:
    """Who made the processor whose /proc lies under `root`; "unknown" where the system does not say."""
    cpu_info = _read(root / "proc/cpuinfo")
    arm = [_field(cpu_info, name) for name in ("CPU implementer", "CPU part")]
    return _field(cpu_info, "vendor_id") or " ".join(filter(None, arm)) or "unknown"


def machine_key(machine: Machine | None = None) -> str:
    """Return a short name under which measurements of a machine are stored; default: this one.

    Equal for machines on which times are comparable. The amount of main memory does not count: it
    changes with the kernel and decides nothing here.
    """
    machine = probe() if machine is None else machine
    identity = (
        machine.name,
        machine.platform,
        platform.machine(),
        machine.cores,
        machine.l1_bytes,
        machine.l2_bytes,
        machine.l3_bytes,
        machine.simd_bits,
        tuple(unit.name for unit in machine.units),
    )
    digest = hashlib.sha256(repr(identity).encode()).hexdigest()[:10]
    return f"{machine.platform}-{machine.cores}c-{machine.simd_bits}b-{digest}"


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # Linux; elsewhere a process may use every core
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def _cache_sizes(folder: Path) -> dict[int, int]:
    """Bytes of the data cache at each level, read from the kernel's index folders."""
    sizes: dict[int, int] = {}
    for index in sorted(folder.glob("index*")):
        level = _read(index / "level").strip()
        size = _parse_size(_read(index / "size"))
        is_data = _read(index / "type").strip() in ("Data", "Unified")
        if is_data and size and level.isdecimal():
            sizes[int(level)] = size
    return sizes


def _simd_bits(cpu_info: str) -> int:
    flags = (_field(cpu_info, "flags") or _field(cpu_info, "Features")).split()
    for flag, bits in _SIMD_FLAGS:
        if flag in flags:
            return bits
    return _SIMD_BY_ARCHITECTURE.get(platform.machine().lower(), 64)


def _memory_bytes(root: Path) -> int:
    return _parse_size(_field(_read(root / "proc/meminfo"), "MemTotal")) or _DEFAULT_MEMORY_BYTES


def _parse_size(text: str) -> int:
    """Bytes in "48K", "1 M" or "24684092 kB"; 0 when it says something else."""
    match = re.fullmatch(r"(\d+)\s*([KMG]?)B?", text.strip().upper())
    return int(match[1]) * _SIZE_SUFFIXES[match[2]] if match else 0


def _field(text: str, name: str) -> str:
    """The first value of `name` in a "name : value" file; empty when it is not there."""
    match = re.search(rf"^{re.escape(name)}[ \t]*:[ \t]*(.*)$", text, re.MULTILINE)
    return match[1].strip() if match else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
