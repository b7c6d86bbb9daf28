"""The default type of real numbers, which the environment gives a process."""

import os
import subprocess
import sys

import pytest

import graphopt.lazy as lt
from graphopt.lazy.errors import LazyTypeError

SCRIPT = """
import numpy as np
import graphopt.lazy as lt
whole, single = lt.arange(3), lt.asarray(np.ones(2, np.float32))
found = [
    lt.zeros(3), lt.asarray([1.0]), lt.linspace(0, 1, 5), whole / 2, whole * 1.5, lt.sin(whole),
    lt.mean(whole), lt.fft.fftfreq(8), lt.random.uniform((3,)), lt.linalg.inv(lt.eye(2)), single * 2.0,
    lt.asarray([1j]), whole * 1j, lt.fft.fft(whole),
]
defaults = lt.__array_namespace_info__().default_dtypes()
print(*(np.asarray(x).dtype for x in found), *(str(d.np) for d in defaults.values()))
print(lt.result_type(1, 2.0).np, lt.result_type(1j, True).np, lt.result_type(2).np)
print(abs(float(lt.exp(whole)[1]) - np.e) < 1e-15)
"""


def run(name):
    environment = {**os.environ, "GRAPHOPT_LAZY_FLOAT": name}
    return subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False
    )


def test_double_precision_by_default():
    done = run("float64")
    types, numbers, exact = done.stdout.splitlines()
    real, complex_ = ["float64"] * 10 + ["float32"], ["complex128"] * 3
    assert types.split() == [*real, *complex_, "float64", "complex128", "int64", "int64"]
    assert numbers.split() == ["float64", "complex128", "int64"]
    assert exact == "True"


def test_single_precision_without_a_choice():
    done = run("")
    types, numbers, exact = done.stdout.splitlines()
    assert types.split()[:14] == ["float32"] * 11 + ["complex64"] * 3
    assert numbers.split() == ["float32", "complex64", "int64"]
    assert exact == "False"


def test_nothing_has_no_type():
    with pytest.raises(LazyTypeError, match="nothing to promote"):
        lt.result_type()


def test_other_types_are_refused():
    done = run("float16")
    assert done.returncode != 0
    assert "ConfigError: no default dtype: float16 (GRAPHOPT_LAZY_FLOAT)" in done.stderr
