"""Recording, cutting, tiers, caching, memory and threads."""

import gc
import threading
import warnings
import weakref

import numpy as np
import pytest

import graphopt.lazy as lt
from graphopt.errors import ConfigError
from graphopt.lazy.record import recorder
from graphopt.lazy.runtime import cut


@pytest.fixture(autouse=True)
def fresh():
    lt.sync()
    lt.clear_caches()
    lt.reset_metrics()
    with lt.config(background=False):
        yield


def program(x, scale=2.5):
    return lt.sum(lt.exp(x * scale) - lt.sin(x))


def test_recording_runs_nothing():
    x = lt.asarray(np.arange(4.0))
    y = program(x)
    assert y.pending
    assert (y.shape, y.dtype, y.ndim, y.size, len(x)) == ((), lt.float64, 0, 1, 4)
    assert lt.metrics().graphs == 0
    expected = np.sum(np.exp(np.arange(4) * 2.5) - np.sin(np.arange(4)))
    assert float(y) == pytest.approx(expected)
    assert not y.pending


def test_equal_operations_are_one_node():
    x, y = lt.asarray([1.0]), lt.asarray([1.0])
    assert (x + y)._node is (x + y)._node
    assert (x + y)._node is not (y + x)._node
    assert lt.sum(x, axis=0)._node is lt.sum(x, axis=0)._node


@pytest.mark.parametrize(
    ("observe", "cause"),
    [
        (float, "float"), (bool, "bool"), (int, "int"), (complex, "complex"), (repr, "print"),
        (str, "print"), (lambda x: x.item(), "item"), (np.asarray, "numpy"),
        (lambda x: f"{x:.2f}", "format"), (lambda x: x.tolist(), "tolist"),
        (lambda x: lt.eval(x), "eval"), (lambda x: lt.sync(), "sync"),
    ],
)  # fmt: skip
def test_every_cut_has_a_cause_and_a_line(observe, cause):
    x = lt.sum(lt.asarray([1.0, 2.0]) * 3)
    observe(x)
    (cut,) = lt.metrics().cuts
    assert cut.cause == cause
    assert "test_lazy_runtime.py:" in cut.line
    assert cut.nodes == 2
    assert not x.pending


def test_an_observation_also_computes_what_shares_its_work():
    x = lt.asarray([1.0, 2.0])
    shared = lt.exp(x)
    a, b, other = lt.sum(shared), shared * 3, x - 1
    float(a)
    assert not b.pending
    assert other.pending
    with lt.config(sync_live=False):
        shared = lt.cos(x)
        a, b, inner = lt.sum(shared), shared * 3, shared
        float(a)
        assert b.pending
        assert (
            not inner.pending
        )  # an ancestor that is still referred to is kept, not computed twice


def test_what_nobody_refers_to_is_not_computed():
    x = lt.asarray([1.0, 2.0])
    for _ in range(5):
        _ = lt.exp(x) * 2
    del _
    y = x + 1
    lt.sync()
    assert lt.metrics().nodes == 1
    assert y.tolist() == [2.0, 3.0]


def test_tiers():
    x = lt.asarray([1.0, 2.0])
    values = [float(program(x)) for _ in range(4)]
    np.testing.assert_allclose(values, values[0], rtol=1e-6)
    metrics = lt.metrics()
    assert (metrics.op_by_op, metrics.compiled_runs, metrics.compiles) == (1, 3, 1)
    assert metrics.cache_hits == 3
    lt.reset_metrics()
    with lt.config(tier="op-by-op"):
        float(program(x + 1))
        float(program(x + 1))
    with lt.config(tier="compiled"):
        float(lt.cos(x)[0])
    assert (lt.metrics().op_by_op, lt.metrics().compiled_runs) == (2, 1)


def test_a_background_compile_takes_over():
    x = lt.asarray([1.0, 2.0])
    with lt.config(background=True):
        float(program(x))
        float(program(x))  # starts the compile and goes on without it
        assert lt.metrics().op_by_op == 2
        (entry,) = [e for e in cut.cache.entries() if e.sightings == 2]
        assert entry.done.wait(60)
        float(program(x))
    assert lt.metrics().compiled_runs == 1


def test_numbers_are_parameters_except_zero_and_one():
    x = lt.asarray([1.0, 2.0])
    for scale in (2.5, 3.5, -7.0, 0.25):
        assert float(program(x, scale)) == pytest.approx(
            float(np.sum(np.exp(np.array([1, 2]) * scale) - np.sin([1, 2]))), rel=1e-5
        )
    assert lt.metrics().distinct_graphs == 1
    float(program(x, 1.0))
    assert lt.metrics().distinct_graphs == 2
    assert "constant" in str(lt.recompile_report()[-1]) or "scalar" in str(
        lt.recompile_report()[-1]
    )
    # Two numbers that happen to be equal do not make another graph.
    lt.reset_metrics()
    for a, b in ((2.0, 3.0), (4.0, 4.0)):
        (x * a + x * b).tolist()
    assert lt.metrics().distinct_graphs == 1


def test_a_moving_index_does_not_recompile():
    x = lt.asarray(np.arange(100.0))
    values = [float(x[k] + lt.sum(x[k : k + 7])) for k in range(10, 20)]
    assert values == [k + sum(range(k, k + 7)) for k in range(10, 20)]
    assert lt.metrics().distinct_graphs == 1


def test_the_recompile_report_names_the_difference():
    def step(x, extra):
        y = lt.tanh(x * 2.5)
        if extra:
            y = lt.exp(y)
        return lt.sum(y)

    float(step(lt.ones(3), False))
    float(step(lt.ones(4), False))
    float(step(lt.ones(4), True))
    reports = [str(r) for r in lt.recompile_report()]
    assert len(reports) == 3
    assert "float32[3]" in reports[1] and "float32[4]" in reports[1]
    assert "new operation: exp" in reports[2]
    assert "test_lazy_runtime.py:" in reports[2]


def test_the_trace_limit_cuts():
    x = lt.ones(4)
    with lt.config(trace_limit=50):
        for _ in range(200):
            x = x + 1
    assert lt.metrics().cut_causes["trace limit"] >= 3
    assert x.tolist() == [201.0] * 4


def test_a_step_is_one_graph():
    w = lt.ones(3)
    with lt.config(trace_limit=10):
        for _ in range(3):
            with lt.step():
                for _ in range(30):
                    w = w * 1.01
            assert not w.pending
    assert lt.metrics().cut_causes == {"step": 3}
    with pytest.raises(RuntimeError, match="stop"), lt.step():
        raise RuntimeError("stop")
    assert recorder.state.now.step is None


def test_strict_modes():
    x = lt.ones(2) * 2
    with lt.config(on_cut="raise"):
        with pytest.raises(lt.CutForbiddenError, match=r"float.*test_lazy_runtime"):
            float(x[0])
        lt.sync()  # asked for
        assert x.tolist() == [2.0, 2.0]  # computed already
    with lt.config(on_cut="warn"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            float(lt.sum(x * 3))
    assert len(caught) == 1
    with pytest.raises(ConfigError), lt.config(tier="fast"):
        pass


def test_buffers_go_when_no_tensor_refers_to_them():
    x = lt.ones(1000) * 3
    with lt.config(tier="compiled"):
        lt.sync()
    buffer = weakref.ref(x._node.data)
    y = x + 1
    del x
    gc.collect()
    assert buffer() is not None  # y still needs it
    lt.sync()
    gc.collect()
    assert buffer() is None
    assert y.tolist()[0] == 4.0


def test_a_loop_with_cuts_keeps_nothing():
    x = lt.ones((8, 8))
    sizes = []
    for k in range(600):
        x = lt.tanh(x * 0.5 + 0.1 * (k % 5 + 2))
        lt.sync()
        if k in (200, 599):
            gc.collect()
            sizes.append(len(gc.get_objects()))
    assert sizes[1] - sizes[0] < 300
    assert len(recorder.state.now.handles) == len(recorder.state.now.left) == 0


def test_many_threads_record_and_cut():
    results, errors = {}, []
    shared = lt.asarray(np.arange(8.0)) * 2  # pending, seen by all

    def work(number):
        try:
            x = shared
            for k in range(20):
                x = x * 0.5 + float(number + 2)
                if k % 7 == number % 7:
                    float(lt.sum(x))
            results[number] = x.tolist()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for number, values in results.items():
        x = np.arange(8.0) * 2
        for _ in range(20):
            x = x * 0.5 + (number + 2)
        np.testing.assert_allclose(values, x, rtol=1e-6)


def test_show():
    x = lt.asarray([1.0, 2.0])
    y = lt.exp(x) * 2.5
    text = lt.show(y)
    assert "exp(in0) : float64[2]" in text or "exp(in0) : float32[2]" in text
    assert "test_lazy_runtime.py:" in text
    assert lt.show(y, format="hlo").startswith("HloModule")
    assert lt.show(y, format="dot").startswith("digraph")
    assert lt.show(y, format="svg").startswith("<svg")
    assert y.pending
    with pytest.raises(ConfigError):
        lt.show(y, format="pdf")


def test_values_do_not_alias():
    x = lt.arange(5)
    same, view = x, x[1:3]
    copy = lt.asarray(x, copy=True)
    x[1] = 100
    assert (view.tolist(), copy.tolist()) == ([1, 2], [0, 1, 2, 3, 4])
    assert same.tolist() == [0, 100, 2, 3, 4]  # the same Python object
    before = x
    x += 1
    assert before.tolist() == [0, 100, 2, 3, 4]
    source = np.arange(3)
    tensor = lt.asarray(source)
    source[0] = 9
    assert tensor.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(tensor)[0] = 1
