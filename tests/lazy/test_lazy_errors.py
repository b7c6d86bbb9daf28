"""Bad input: an error that names the operation and the line, and everything else stays usable."""

import numpy as np
import pytest

import graphopt.lazy as lt
from graphopt.errors import GraphOptError
from graphopt.lazy.runtime import compiling, cut


@pytest.fixture(autouse=True)
def fresh():
    compiling.background.drain()  # what other tests left to compile would be counted here
    lt.sync()
    lt.clear_caches()
    lt.reset_metrics()


BAD = {
    "shapes": (lambda: lt.ones((2, 3)) + lt.ones(4), ValueError, "add"),
    "matmul": (lambda: lt.ones((2, 3)) @ lt.ones((2, 3)), ValueError, "matmul"),
    "index": (lambda: lt.ones(3)[5], IndexError, "index 5"),
    "negative index": (lambda: lt.ones(3)[-4], IndexError, "index -4"),
    "known index array": (lambda: lt.ones(3)[lt.asarray([0, 7])], IndexError, "index 7"),
    "take": (lambda: lt.take(lt.ones(3), lt.asarray([3])), IndexError, "index 3"),
    "too many indices": (lambda: lt.ones(3)[0, 0], IndexError, "2 indices"),
    "float index": (lambda: lt.ones(3)[1.5], IndexError, "float"),
    "mask": (lambda: lt.ones(3)[lt.asarray([True])], IndexError, "mask"),
    "axis": (lambda: lt.sum(lt.ones(3), axis=1), ValueError, "axis 1"),
    "reshape": (lambda: lt.reshape(lt.ones(3), (2, 2)), ValueError, "reshape"),
    "dtype": (lambda: lt.bitwise_and(lt.ones(2), lt.ones(2)), TypeError, "bitwise_and"),
    "no array": (lambda: lt.sin("x"), TypeError, "sin"),
    "no dtype": (lambda: lt.zeros(2, dtype="object"), TypeError, "dtype"),
    "overflow": (lambda: lt.ones(2, dtype=lt.int8) + 300, OverflowError, "300"),
    "truth": (lambda: bool(lt.ones(2)), ValueError, "2 elements"),
    "len": (lambda: len(lt.asarray(1.0)), TypeError, "len"),
    "device": (lambda: lt.zeros(2, device="quantum"), ValueError, "quantum"),
    "in place": (lambda: lt.arange(2).__iadd__(1.5), TypeError, "in-place"),
    "assignment": (lambda: lt.arange(2).__setitem__(0, 1.5), TypeError, "assignment"),
    "reduction of nothing": (lambda: lt.max(lt.zeros(0)), ValueError, "max"),
    "constructor": (lambda: lt.Tensor(3), TypeError, "asarray"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    action, kind, text = BAD[name]
    with pytest.raises(kind, match=text) as caught:
        action()
    assert isinstance(caught.value, GraphOptError)


def test_an_error_names_the_line_of_the_user():
    with pytest.raises(ValueError, match=r"test_lazy_errors\.py:\d+"):
        lt.ones(2) + lt.ones(3)


@pytest.mark.parametrize("tier", ["op-by-op", "compiled"])
def test_an_unknown_index_is_checked_when_its_result_is_observed(tier):
    with lt.config(tier=tier):
        x = lt.asarray([1.0, 2.0, 3.0])
        indices = lt.arange(3) + 1
        good, bad = x * 2, x[indices]
        later = bad + 1
        assert good.tolist() == [2.0, 4.0, 6.0]
        for tensor in (bad, later, bad, lt.sum(later)):
            with pytest.raises(IndexError, match=r"gather.*test_lazy_errors\.py"):
                tensor.tolist()
        assert "IndexError" in repr(bad)
        assert (good + 1).tolist() == [3.0, 5.0, 7.0]
        assert x[indices - 1].tolist() == [1.0, 2.0, 3.0]


def test_a_failing_compile_falls_back(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("the compiler is out of order")

    monkeypatch.setattr(compiling, "_compile", fail)
    x = lt.asarray([1.0, 2.0])
    with lt.config(tier="compiled"):
        assert (x * 3).tolist() == [3.0, 6.0]
        assert (x * 4).tolist() == [4.0, 8.0]
    assert lt.metrics().fallbacks == {"compile failed: RuntimeError": 1}
    assert lt.metrics().op_by_op == 2


def test_a_failing_run_leaves_tensors_pending():
    x = lt.asarray([1.0, 2.0])
    with lt.config(tier="compiled"):
        (x * 3).tolist()
        (entry,) = cut.cache.entries()
        working = entry.executable

        def dead(*_):
            raise RuntimeError("device lost")

        entry.executable = dead
        y, other = x * 3, lt.exp(x)
        with pytest.raises(lt.ExecutionError, match="device lost"):
            y.tolist()
        assert other.tolist() == pytest.approx(np.exp([1.0, 2.0]).tolist())
        entry.executable = working
        assert y.tolist() == [3.0, 6.0]


def test_a_hook_that_raises_keeps_the_default():
    def raises(graph):
        raise RuntimeError("no idea")

    lt.set_optimizer(raises)
    try:
        x = lt.asarray(np.linspace(0, 1, 64).reshape(8, 8))
        with lt.config(tier="compiled"):
            y = lt.nn.softmax(lt.tanh(x @ x) + lt.mean(x * 2.5, axis=0))
            np.testing.assert_allclose(lt.sum(y, axis=-1), np.ones(8), rtol=1e-6)
        assert lt.metrics().optimizer == {"fell back": 1}
        assert any("no idea" in reason for reason in lt.metrics().fallbacks)
    finally:
        lt.set_optimizer("auto")
