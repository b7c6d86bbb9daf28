import dataclasses
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from graphopt.errors import ConfigError, ModuleFormatError
from graphopt.jax_private import hlo_from_text
from graphopt.machine import Machine, Unit, UnitKind, cpu_units, machine_key, probe, read_machine
from graphopt.machine import units as tables

CPU_INFO = """\
processor\t: 0
vendor_id\t: GenuineExample
model name\t: Example CPU @ 3.00GHz
flags\t\t: fpu sse2 avx avx2{more}

processor\t: 1
model name\t: Another CPU
"""


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def cache_files(*caches: tuple[str, str, str]) -> dict[str, str]:
    files = {}
    for number, (level, kind, size) in enumerate(caches):
        folder = f"sys/devices/system/cpu/cpu0/cache/index{number}"
        files |= {
            f"{folder}/level": level + "\n",
            f"{folder}/type": kind + "\n",
            f"{folder}/size": size + "\n",
        }
    return files


# Units.


def test_cpu_units_come_in_a_fixed_order():
    assert [unit.name for unit in cpu_units(3)] == [
        "loop@1",
        "loop@2",
        "loop@3",
        "library",
        "runtime",
        "native",
    ]
    assert [unit.threads for unit in cpu_units(3)] == [1, 2, 3, 3, 3, 1]
    assert {unit.kind for unit in cpu_units(1)} == set(UnitKind)


def test_cpu_units_need_a_core():
    with pytest.raises(ConfigError, match="0 cores"):
        cpu_units(0)


@pytest.mark.parametrize("change", [{"threads": 0}, {"max_outputs": 0}])
def test_a_unit_checks_its_numbers(change):
    with pytest.raises(ConfigError, match="at least 1"):
        dataclasses.replace(cpu_units(1)[0], **change)


def unit(kind: UnitKind) -> Unit:
    return next(unit for unit in cpu_units(2) if unit.kind is kind)


def test_what_each_unit_can_compute():
    loop, library = unit(UnitKind.LOOP), unit(UnitKind.LIBRARY)
    runtime, native = unit(UnitKind.RUNTIME), unit(UnitKind.NATIVE)
    assert loop.supports("select", "f32") and not library.supports("select", "f32")
    assert library.supports("dot", "f32") and not loop.supports("dot", "f32")
    assert library.supports("tanh", "bf16") and not library.supports("tanh", "f16")
    assert runtime.supports("sort", "u32") and not native.supports("sort", "u32")
    assert native.supports("while", "f32") and not loop.supports("while", "f32")
    assert library.max_outputs == 1 and native.max_outputs is None


def test_no_region_holds_what_regions_refuse():
    assert not tables.NATIVE_OPS & tables.NATIVE_REFUSED_OPS


ALL_OPS = tables.LIBRARY_OPS | tables.RUNTIME_OPS | tables.NATIVE_OPS | tables.NATIVE_REFUSED_OPS


def knows_opcode(op: str) -> bool:
    """Whether XLA's parser knows the name; it stops behind it, where the operands are missing.

    A tuple shape, because the parser ends the process over a tuple opcode of array shape.
    """
    try:
        hlo_from_text(f"HloModule m\nENTRY e {{\n ROOT r = (f32[4]{{0}}) {op}\n}}")
    except ModuleFormatError as error:
        return "Unknown opcode" not in str(error.__cause__)
    return True


def test_operation_names_are_hlo_opcodes():
    assert not knows_opcode("exp")
    assert [op for op in sorted(ALL_OPS) if not knows_opcode(op)] == []


@pytest.mark.parametrize("dtype", sorted(tables.DTYPES))
def test_dtypes_are_hlo_type_names(dtype):
    assert hlo_from_text(f"HloModule m\nENTRY e {{\n ROOT p = {dtype}[4]{{0}} parameter(0)\n}}")


def test_the_library_takes_nothing_that_xla_does_not_name():
    generated = tables.LOOP_OPS | tables.LIBRARY_CONTRACT
    assert generated >= tables.LIBRARY_OPS
    assert tables.DTYPES >= tables.LIBRARY_DTYPES
    assert "s32" in tables.LIBRARY_DTYPES


# Machines.


def test_this_machine_is_described():
    machine = probe()
    assert machine is probe()
    assert machine.cores >= 1
    assert machine.units == cpu_units(machine.cores)
    assert 0 < machine.l1_bytes <= machine.l2_bytes
    assert machine.simd_bits >= 64
    assert machine.memory_bytes > 2**20
    assert machine.name in str(machine)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no CPU affinity")
def test_only_usable_cores_count():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert read_machine().cores == 1
    finally:
        os.sched_setaffinity(0, before)


def test_everything_is_read_from_the_system(tmp_path):
    files = cache_files(
        ("1", "Data", "48K"),
        ("1", "Instruction", "64K"),
        ("2", "Unified", "2M"),
        ("3", "Unified", "32768K"),
    )
    files |= {
        "proc/cpuinfo": CPU_INFO.format(more=""),
        "proc/meminfo": "MemTotal:       8000000 kB\nMemFree: 1 kB\n",
    }
    machine = read_machine(write(tmp_path, files))
    assert machine.name == "Example CPU @ 3.00GHz"
    assert machine.platform == "cpu"
    assert (machine.l1_bytes, machine.l2_bytes, machine.l3_bytes) == (48 << 10, 2 << 20, 32 << 20)
    assert machine.simd_bits == 256
    assert machine.memory_bytes == 8_000_000 * 1024


def test_vector_width_takes_the_widest(tmp_path):
    write(tmp_path, {"proc/cpuinfo": CPU_INFO.format(more=" avx512f")})
    assert read_machine(tmp_path).simd_bits == 512


def test_arm_calls_its_flags_features(tmp_path):
    write(tmp_path, {"proc/cpuinfo": "processor : 0\nFeatures : fp asimd evtstrm\n"})
    assert read_machine(tmp_path).simd_bits == 128


@pytest.mark.parametrize("junk", ["", "unknown\n", "\0\0"])
def test_a_silent_system_gets_safe_assumptions(tmp_path, junk):
    if junk:
        files = cache_files(("1", "Data", junk), (junk, "Unified", "1M"))
        write(tmp_path, files | {"proc/cpuinfo": junk, "proc/meminfo": junk})
    machine = read_machine(tmp_path)
    assert machine.name
    assert 0 < machine.l1_bytes <= machine.l2_bytes
    assert machine.l3_bytes == 0
    assert machine.simd_bits >= 64
    assert machine.memory_bytes > 0


def example(**changes: object) -> Machine:
    machine = Machine("cpu-x", "cpu", 2, 32768, 262144, 0, 256, 2**32, cpu_units(2))
    return dataclasses.replace(machine, **changes)


def test_machines_check_themselves():
    with pytest.raises(ConfigError, match="0 cores"):
        example(cores=0)
    with pytest.raises(ConfigError, match="unique"):
        example(units=cpu_units(1) + cpu_units(1))


def test_the_key_names_what_times_depend_on():
    key = machine_key(example())
    assert key == machine_key(example())
    assert key == machine_key(example(memory_bytes=2**33))
    assert key.startswith("cpu-2c-256b-") and len(key) < 32
    for change in (
        {"name": "cpu-y"},
        {"cores": 3, "units": cpu_units(3)},
        {"l1_bytes": 65536},
        {"l2_bytes": 524288},
        {"l3_bytes": 1},
        {"simd_bits": 512},
        {"units": cpu_units(2)[:-1]},
    ):
        assert machine_key(example(**change)) != key


def test_the_key_is_the_same_in_every_process():
    script = "from graphopt.machine import machine_key; print(machine_key())"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == machine_key()


def test_importing_the_machine_does_not_import_jax():
    # A stand-in for the package itself, so that only what the machine needs is imported.
    script = textwrap.dedent("""
        import sys, types
        sys.modules["graphopt"] = types.ModuleType("graphopt")
        sys.modules["graphopt"].__path__ = [sys.argv[1]]
        import graphopt.machine
        graphopt.machine.probe()
        assert not [name for name in sys.modules if name.split(".")[0] in ("jax", "jaxlib")]
    """)
    source = str(Path(tables.__file__).parents[1])
    subprocess.run([sys.executable, "-c", script, source], check=True)
