"""The namespace has every name of the standard, with the standard's signature."""

import inspect
import warnings

import array_api_strict
import pytest

import graphopt.lazy as lt

with warnings.catch_warnings():  # the newest version is still marked as a draft
    warnings.simplefilter("ignore")
    array_api_strict.set_array_api_strict_flags(api_version="2025.12")

OF_STRICT_ITSELF = {
    "get_array_api_strict_flags",
    "set_array_api_strict_flags",
    "reset_array_api_strict_flags",
    "ArrayAPIStrictFlags",
    "Device",
    "__version__",
}
OWN_DEFAULTS = {
    "expand_dims": "the standard gives axis the default 0, array-api-strict none",
    "from_dlpack": "array-api-strict marks missing arguments by an object of its own",
    "astype": "array-api-strict marks a missing device by an object of its own",
}
METHODS = """__abs__ __add__ __and__ __array_namespace__ __bool__ __complex__ __dlpack__
    __dlpack_device__ __eq__ __float__ __floordiv__ __ge__ __getitem__ __gt__ __index__ __int__
    __invert__ __le__ __lshift__ __lt__ __matmul__ __mod__ __mul__ __ne__ __neg__ __or__ __pos__ __pow__
    __rshift__ __setitem__ __sub__ __truediv__ __xor__ to_device __radd__ __rand__ __rfloordiv__
    __rlshift__ __rmatmul__ __rmod__ __rmul__ __ror__ __rpow__ __rrshift__ __rsub__ __rtruediv__
    __rxor__ __iadd__ __iand__ __ifloordiv__ __ilshift__ __imatmul__ __imod__ __imul__ __ior__ __ipow__
    __irshift__ __isub__ __itruediv__ __ixor__ T device dtype mT ndim shape size""".split()

NAMES = [name for name in array_api_strict.__all__ if name not in OF_STRICT_ITSELF]
EXTENSIONS = [
    (part, name)
    for part in ("linalg", "fft")
    for name in getattr(array_api_strict, part).__all__
    if not name.startswith("_") and not inspect.ismodule(getattr(getattr(lt, part), name, None))
]


def test_every_name_is_there():
    assert [name for name in NAMES if not hasattr(lt, name)] == []
    missing = [name for part, name in EXTENSIONS if not hasattr(getattr(lt, part), name)]
    assert missing == []
    assert {"eig", "eigvals"} <= set(dir(lt.linalg))
    assert [name for name in METHODS if not hasattr(lt.Tensor, name)] == []


def shape_of(function):
    """Names, kinds and defaults of the parameters."""
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def same_signature(name, ours, theirs):
    a, b = shape_of(ours), shape_of(theirs)
    if name in OWN_DEFAULTS:
        a, b = [x[:2] for x in a], [x[:2] for x in b]
    assert a == b


@pytest.mark.parametrize(
    "name", [n for n in NAMES if inspect.isfunction(getattr(array_api_strict, n))]
)
def test_signature(name):
    same_signature(name, getattr(lt, name), getattr(array_api_strict, name))


@pytest.mark.parametrize(("part", "name"), EXTENSIONS)
def test_signature_of_extension(part, name):
    theirs = getattr(getattr(array_api_strict, part), name)
    if inspect.isfunction(theirs):
        same_signature(name, getattr(getattr(lt, part), name), theirs)


def test_inspection():
    info = lt.__array_namespace_info__()
    assert info.capabilities()["boolean indexing"] is True
    assert info.default_dtypes()["real floating"] == lt.float32
    assert info.default_device() in info.devices()
    assert set(info.dtypes(kind="integral")) == {
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    }  # fmt: skip
    assert lt.zeros(3).__array_namespace__(api_version="2024.12") is lt
    with pytest.raises(ValueError, match="1999"):
        lt.zeros(3).__array_namespace__(api_version="1999.01")


def test_a_dtype_compares_with_anything():
    assert lt.float64 == lt.float64
    assert lt.float64 != lt.float32
    assert lt.float64 != None  # noqa: E711 - generic callers write it
    assert lt.float64 != "float"
    assert {lt.int8: 1}[lt.asarray([1], dtype=lt.int8).dtype] == 1
