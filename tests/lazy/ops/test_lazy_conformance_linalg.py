"""Products, factorizations, transforms and data types: the same as array-api-strict."""

import math

import array_api_strict as strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.conformance import ALL, FLOATS, MODEST, arrays, both, same_as_numpy

import graphopt.lazy as lt


@pytest.mark.parametrize("compiled", [False, True])
@MODEST
@given(data=st.data())
def test_products(compiled, data):
    dtypes = (*FLOATS, "int64", "complex128")
    batch = data.draw(st.sampled_from([(), (2,), (1, 2)]))
    x = data.draw(arrays(dtypes, shape=(*batch, 3, 4)))
    y = data.draw(arrays((str(x.dtype),), shape=(4, 2)))

    def program(xp, a, b):
        return (
            xp.matmul(a, b), a @ b[:, 0], xp.vecdot(a, a), xp.tensordot(a, b, axes=1),
            xp.matrix_transpose(a), xp.linalg.outer(b[:, 0], b[:, 1]), xp.linalg.trace(a),
            xp.linalg.diagonal(a, offset=1), xp.linalg.cross(b[:3, 0], b[1:, 1]),
        )  # fmt: skip

    both(program, x, y, compiled=compiled)


@pytest.mark.parametrize("compiled", [False, True])
@settings(MODEST, max_examples=15)
@given(data=st.data())
def test_linear_algebra(compiled, data):
    shape = data.draw(st.sampled_from([(3, 3), (2, 3, 3), (1, 1)]))
    x = data.draw(arrays(("float64", "complex128"), shape=shape))
    x = x + 20 * np.eye(shape[-1])

    def program(xp, a):
        h = a + xp.conj(xp.matrix_transpose(a)) + 60 * xp.eye(a.shape[-1], dtype=a.dtype)
        la = xp.linalg
        values, vectors = la.eigh(h)
        q, r = la.qr(a)
        u, s, vh = la.svd(a, full_matrices=False)
        return (
            la.inv(a), la.det(a), la.solve(a, a[..., :1]), la.cholesky(h), la.cholesky(h, upper=True),
            values, la.eigvalsh(h), la.svdvals(a), tuple(la.slogdet(a)), la.pinv(a),
            la.matrix_rank(a), la.matrix_power(a, 3), la.matrix_power(a, -1), la.matrix_norm(a),
            la.matrix_norm(a, ord=1), la.matrix_norm(a, ord="nuc"), la.vector_norm(a),
            la.vector_norm(a, axis=-1, ord=1), la.vector_norm(a, axis=-1, ord=math.inf, keepdims=True),
            q @ r, (u * xp.astype(s[..., None, :], a.dtype)) @ vh,
            h @ vectors - vectors * xp.astype(values[..., None, :], a.dtype),
        )  # fmt: skip

    both(program, x, compiled=compiled)


@pytest.mark.parametrize("compiled", [False, True])
@settings(MODEST, max_examples=15)
@given(data=st.data())
def test_fourier_transforms(compiled, data):
    x = data.draw(arrays(("complex128", "complex64"), shape=(3, 4)))
    r = data.draw(arrays(("float64", "float32"), shape=(3, 4)))
    norm = data.draw(st.sampled_from(["backward", "ortho", "forward"]))
    n = data.draw(st.sampled_from([None, 3, 6]))

    def program(xp, a, b):
        f = xp.fft
        return (
            f.fft(a, n=n, norm=norm), f.ifft(a, axis=0, norm=norm), f.rfft(b, n=n, norm=norm),
            f.irfft(a, norm=norm), f.hfft(a, norm=norm), f.ihfft(b, norm=norm), f.fftn(a, norm=norm),
            f.ifftn(a, axes=(1, 0), norm=norm), f.rfftn(b, norm=norm), f.irfftn(a, norm=norm),
            f.fftn(a, s=(2, 5), axes=(0, 1)), f.irfftn(a, s=(3, 5), axes=(0, 1)),
            f.rfftn(b, s=(4, 3), axes=(0, 1)),
            f.fftshift(a), f.ifftshift(a, axes=0), f.fftfreq(5, d=0.5, dtype=xp.float64),
            f.rfftfreq(6, dtype=xp.float64),
        )  # fmt: skip

    both(program, x, r, compiled=compiled)


@MODEST
@given(
    pair=st.tuples(st.sampled_from(ALL), st.sampled_from(ALL)),
    scalar=st.sampled_from([1, 1.0, True]),
)
def test_data_types(pair, scalar):
    a, b = pair

    def program(xp):
        first, second = getattr(xp, a), getattr(xp, b)
        kinds = ["bool", "signed integer", "unsigned integer", "integral", "real floating",
                 "complex floating", "numeric"]  # fmt: skip
        return tuple(xp.isdtype(first, kind) for kind in kinds), xp.isdtype(first, (second, "bool"))

    both(program)
    try:
        expected = str(
            np.dtype(strict.result_type(getattr(strict, a), getattr(strict, b))._np_dtype)
        )
    except TypeError:
        return  # the standard leaves mixed kinds open
    assert str(lt.result_type(getattr(lt, a), getattr(lt, b))) == expected
    assert lt.can_cast(getattr(lt, a), getattr(lt, b)) is (expected == b)


@MODEST
@given(x=arrays(ALL), dtype=st.sampled_from(ALL))
def test_astype(x, dtype):
    if x.dtype.kind == "c" and np.dtype(dtype).kind not in "cb":
        with pytest.raises(TypeError):
            lt.astype(lt.asarray(x), getattr(lt, dtype))
        return
    if np.dtype(dtype).kind == "u":
        x = abs(x).astype(x.dtype) if x.dtype.kind != "b" else x
    same_as_numpy(lt.astype(lt.asarray(x), getattr(lt, dtype)), x.astype(dtype))


@pytest.mark.parametrize("name", ["float32", "float64", "complex64", "complex128"])
def test_finfo(name):
    ours, theirs = lt.finfo(getattr(lt, name)), strict.finfo(getattr(strict, name))
    for field in ("bits", "eps", "max", "min", "smallest_normal"):
        assert getattr(ours, field) == getattr(theirs, field)
        assert isinstance(getattr(ours, field), int if field == "bits" else float)
    assert str(ours.dtype) == str(theirs.dtype._np_dtype)


@pytest.mark.parametrize("name", ["int8", "int64", "uint8", "uint64"])
def test_iinfo(name):
    ours, theirs = lt.iinfo(getattr(lt, name)), strict.iinfo(getattr(strict, name))
    assert (ours.bits, ours.max, ours.min) == (theirs.bits, theirs.max, theirs.min)
