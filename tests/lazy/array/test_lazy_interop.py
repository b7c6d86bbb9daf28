"""NumPy, jax, DLPack, pickling, generic consumers."""

import copy
import os
import pickle
import subprocess
import sys

import array_api_compat
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import graphopt.lazy as lt


def test_numpy():
    x = lt.asarray([1.0, 2.0])
    assert isinstance(np.sin(x), np.ndarray)
    assert isinstance(np.ones(2) + x, lt.Tensor)
    assert isinstance(x + np.ones(2), lt.Tensor)
    assert np.asarray(x, dtype=np.int32).dtype == np.int32
    assert np.array(x, copy=True).flags.writeable
    with pytest.raises(ValueError, match="copy"):
        np.asarray(x, dtype=np.int32, copy=False)
    assert x != None  # noqa: E711
    assert x in [x]


def test_jax_arrays_are_shared():
    array = jnp.arange(5.0)
    tensor = lt.from_jax(array)
    assert lt.to_jax(tensor) is array
    assert isinstance(tensor + array, lt.Tensor)
    assert isinstance(array * tensor, lt.Tensor)
    assert lt.asarray(array)._node.data is array
    wide = lt.to_jax(lt.asarray([1.0], dtype=lt.float64))
    assert wide.dtype == np.float64
    assert not jax.config.jax_enable_x64


def test_jax_transformations_see_a_pytree():
    x = lt.asarray([1.0, 2.0])

    @jax.jit
    def double(t):
        assert isinstance(t, lt.Tensor)
        return lt.sum(t * 2) + 1

    assert float(double(x)) == 7.0
    gradient = jax.grad(lambda t: lt.to_jax(lt.sum(t * t)))(x)
    assert gradient.tolist() == [2.0, 4.0]
    assert jax.vmap(lambda t: t * 3)(x).tolist() == [3.0, 6.0]
    leaves, tree = jax.tree.flatten({"a": x, "b": [x * 2]})
    assert len(leaves) == 2
    assert jax.tree.unflatten(tree, leaves)["b"][0].tolist() == [2.0, 4.0]
    jax.tree.unflatten(tree, [None, object()])
    with pytest.raises(lt.ExecutionError, match="tracing"):
        jax.jit(lambda t: t if float(t[0]) else -t)(x)


def test_dlpack():
    x = lt.asarray([1.0, 2.0]) * 2
    assert np.from_dlpack(x).tolist() == [2.0, 4.0]
    assert lt.from_dlpack(np.array([1, 2])).tolist() == [1, 2]
    assert lt.from_dlpack(x).tolist() == [2.0, 4.0]
    assert jnp.from_dlpack(x).tolist() == [2.0, 4.0]
    assert lt.from_dlpack(jnp.arange(3)).tolist() == [0, 1, 2]
    with pytest.raises(BufferError):
        lt.from_dlpack(np.array([1, 2]), copy=False)
    with pytest.raises(BufferError):
        x.__dlpack__(dl_device=(2, 0))


def test_pickle_and_copy():
    x = lt.asarray([1.0, 2.0]) * 2
    assert pickle.loads(pickle.dumps(x)).tolist() == [2.0, 4.0]
    y = lt.asarray([1.0]) * 3
    z = copy.deepcopy(y)
    assert y.pending and z.pending  # copying observes nothing
    z[0] = 5
    assert (y.tolist(), z.tolist()) == ([3.0], [5.0])
    assert pickle.loads(pickle.dumps(lt.float32)) is lt.float32


def test_array_api_compat_accepts_it():
    x = lt.asarray([1.0, 2.0])
    xp = array_api_compat.array_namespace(x)
    assert xp is lt
    assert array_api_compat.size(x) == 2
    assert array_api_compat.device(x) == x.device
    assert array_api_compat.to_device(x, x.device) is x


CONSUMERS = """
import numpy as np
import scipy.stats
from sklearn import config_context
from sklearn.metrics import accuracy_score
from sklearn.preprocessing import MinMaxScaler

import graphopt.lazy as lt

data = np.arange(12.0, dtype=np.float32).reshape(4, 3) ** 2
with config_context(array_api_dispatch=True):
    scaled = MinMaxScaler().fit_transform(lt.asarray(data))
    assert isinstance(scaled, lt.Tensor)
    np.testing.assert_allclose(scaled, MinMaxScaler().fit_transform(data), rtol=1e-6)
    assert accuracy_score(lt.asarray([1, 0, 1, 1]), lt.asarray([1, 0, 0, 1])) == 0.75
kurtosis = scipy.stats.kurtosis(lt.asarray(data), axis=0)
assert isinstance(kurtosis, lt.Tensor)
np.testing.assert_allclose(kurtosis, scipy.stats.kurtosis(data, axis=0), rtol=1e-4)
"""


def test_scipy_and_scikit_learn():
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}  # has to be there before scipy's import
    done = subprocess.run(
        [sys.executable, "-c", CONSUMERS], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr


def test_devices():
    x = lt.asarray([1.0, 2.0])
    assert x.to_device(x.device) is x
    assert x.to_device("cpu").device == jax.devices("cpu")[0]
    assert lt.zeros(2, device=x.device).device == x.device
