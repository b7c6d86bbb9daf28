"""Fails, one name at a time, when jax moves something that graphopt depends on."""

import os
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import pytest
from jax.extend import xla

from graphopt import jax_private
from graphopt.errors import ModuleFormatError, UnsupportedJaxError

MODULE = """\
HloModule example

ENTRY main {
  p = f32[16]{0} parameter(0)
  c = f32[16]{0} constant({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})
  ROOT sum = f32[16]{0} add(p, c), backend_config={"outer_dimension_partitions":["2"]}
}
"""


@pytest.mark.parametrize(("module", "attribute"), jax_private.PRIVATE_NAMES)
def test_every_private_name_is_there(module, attribute):
    assert jax_private.find_private(module, attribute) is not None, (
        f"jax {jax.__version__} has no {module}.{attribute}: find its successor, "
        "correct graphopt/jax_private, and raise the versions in pyproject.toml"
    )


@pytest.fixture
def cache_key():
    """jax's cache-key module, its hook and graphopt's state put back afterwards."""
    module = pytest.importorskip("jax._src.cache_key")
    before = module.custom_hook
    yield module
    jax_private.reset_cache_key_hook()
    jax_private.cache_key._key_hook = None
    module.custom_hook = before


@pytest.fixture
def moved(monkeypatch):
    """Make one private name look as if jax had moved it."""

    def move(attribute: str) -> None:
        real = jax_private.find_private
        monkeypatch.setattr(
            jax_private.names, "find_private", lambda m, a: None if a == attribute else real(m, a)
        )

    return move


# The cache key.


def test_the_text_is_in_the_key_until_reset(cache_key):
    before = cache_key.custom_hook
    assert jax_private.set_cache_key_hook("policy-a")
    assert "policy-a" in cache_key.custom_hook()
    jax_private.reset_cache_key_hook()
    assert cache_key.custom_hook is before


def test_setting_again_replaces(cache_key):
    jax_private.set_cache_key_hook("policy-a")
    jax_private.set_cache_key_hook("policy-b")
    assert "policy-b" in cache_key.custom_hook()
    assert "policy-a" not in cache_key.custom_hook()


def test_a_function_is_asked_each_time(cache_key):
    texts = iter(["one", "two"])
    jax_private.set_cache_key_hook(lambda: next(texts))
    assert "one" in cache_key.custom_hook()
    assert "two" in cache_key.custom_hook()


def test_an_earlier_hook_keeps_its_say(cache_key):
    cache_key.custom_hook = lambda: "theirs"
    jax_private.set_cache_key_hook("ours")
    assert "theirs" in cache_key.custom_hook() and "ours" in cache_key.custom_hook()
    jax_private.reset_cache_key_hook()
    assert cache_key.custom_hook() == "theirs"


def test_a_later_hook_around_ours_is_kept(cache_key):
    jax_private.set_cache_key_hook("ours")
    inner = cache_key.custom_hook
    cache_key.custom_hook = lambda: inner() + "theirs"
    jax_private.reset_cache_key_hook()
    assert cache_key.custom_hook() == "theirs"
    jax_private.set_cache_key_hook("again")
    assert cache_key.custom_hook().count("again") == 1
    assert "theirs" in cache_key.custom_hook()


def test_a_later_hook_that_drops_ours_is_extended(cache_key):
    jax_private.set_cache_key_hook("ours")
    cache_key.custom_hook = lambda: "theirs"
    assert jax_private.set_cache_key_hook("ours")
    assert "theirs" in cache_key.custom_hook() and "ours" in cache_key.custom_hook()


def test_resetting_without_setting_does_nothing(cache_key):
    before = cache_key.custom_hook
    jax_private.reset_cache_key_hook()
    assert cache_key.custom_hook is before


def test_a_missing_hook_is_reported(cache_key, monkeypatch):
    monkeypatch.delattr(cache_key, "custom_hook")
    assert not jax_private.set_cache_key_hook("policy-a")
    jax_private.reset_cache_key_hook()
    monkeypatch.undo()


def test_policies_do_not_share_entries_of_the_persistent_cache(tmp_path):
    """End to end: the hook exists, and jax still asks it."""
    script = textwrap.dedent("""
        import os, sys
        import jax, jax.numpy as jnp
        from graphopt.jax_private import set_cache_key_hook

        def compile_once():
            jax.clear_caches()
            jax.jit(lambda x: jnp.sin(x) + 1).lower(jnp.ones(3)).compile()
            return sum(name.endswith("-cache") for name in os.listdir(sys.argv[1]))

        counts = [compile_once(), compile_once()]
        for policy in ("a", "a", "b"):
            assert set_cache_key_hook(policy)
            counts.append(compile_once())
        steps = [after - before for before, after in zip(counts, counts[1:])]
        assert steps[0] == steps[2] == 0, counts
        assert steps[1] > 0 and steps[3] > 0, counts
    """)
    settings = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env=os.environ | settings,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


# HLO text.


def test_text_and_bytes_are_the_same_module():
    data = jax_private.hlo_from_text(MODULE)
    text = jax_private.hlo_text(data)
    assert "15, 16})" in text
    assert 'backend_config={"outer_dimension_partitions":["2"]}' in text
    assert jax_private.hlo_text(jax_private.hlo_from_text(text)) == text


def test_large_constants_can_be_left_out():
    text = jax_private.hlo_text(jax_private.hlo_from_text(MODULE), large_constants=False)
    assert "constant({...})" in text


def test_compiled_modules_print():
    compiled = jax.jit(lambda x: jnp.tanh(x) * 2).lower(jnp.ones(8)).compile()
    (module,) = compiled.runtime_executable().hlo_modules()
    data = module.as_serialized_hlo_module_proto()
    assert "tanh" in jax_private.hlo_text(data)


@pytest.mark.parametrize("data", [b"", b"garbage", b"\x00" * 16, "text", None])
def test_bytes_that_are_no_module(data):
    with pytest.raises(ModuleFormatError, match="not a serialized HLO module"):
        jax_private.hlo_text(data)


@pytest.mark.parametrize("text", ["", "nonsense", MODULE.replace("add(", "addd("), b"bytes", None])
def test_text_that_is_no_module(text):
    with pytest.raises(ModuleFormatError, match="not an HLO module"):
        jax_private.hlo_from_text(text)


def test_the_parser_says_what_is_wrong_and_where():
    with pytest.raises(ModuleFormatError, match=r"6:\d+: error: .*addd"):
        jax_private.hlo_from_text(MODULE.replace("add(", "addd("))


@pytest.mark.parametrize("attribute", ["HloModule", "HloPrintOptions"])
def test_a_moved_printer_is_named(moved, attribute):
    moved(attribute)
    with pytest.raises(UnsupportedJaxError, match=rf"jaxlib\._hlo\.{attribute} does not exist"):
        jax_private.hlo_text(b"")


def test_a_moved_parser_is_named(moved):
    moved("hlo_module_from_text")
    with pytest.raises(UnsupportedJaxError, match="hlo_module_from_text does not exist"):
        jax_private.hlo_from_text(MODULE)


# State of jax.


def test_backends_are_seen_but_not_initialized():
    script = textwrap.dedent("""
        from graphopt.jax_private import backends_initialized
        assert not backends_initialized()
        import jax
        assert not backends_initialized()
        jax.devices()
        assert backends_initialized()
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_moved_backend_state_counts_as_initialized(moved):
    moved("backends_are_initialized")
    assert jax_private.backends_initialized()


def test_a_missing_module_is_a_missing_name():
    assert jax_private.find_private("jax._src.no_such_module", "anything") is None


@pytest.fixture
def cache_settings():
    names = ("jax_compilation_cache_dir", "jax_enable_compilation_cache")
    before = {name: getattr(jax.config, name) for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def test_the_persistent_cache_is_on_with_a_directory_only(cache_settings, tmp_path):
    jax.config.update("jax_compilation_cache_dir", None)
    assert not jax_private.persistent_cache_enabled()
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    assert jax_private.persistent_cache_enabled()
    jax.config.update("jax_enable_compilation_cache", False)
    assert not jax_private.persistent_cache_enabled()


# The hook.


@pytest.mark.parametrize("gone", [(), ("register_xla_transform", "clear_xla_transform")])
def test_modules_are_offered_by_either_name(moved, gone):
    for attribute in gone:
        moved(attribute)
    offered = []
    stage = xla.PipelineStage.POST_SCHEDULER
    jax_private.register_transform("test", stage, lambda data: offered.append(len(data)))
    jax.jit(lambda x: jnp.sin(x) + len(gone))(jnp.ones(3))
    jax_private.clear_transform("test", stage)
    seen = len(offered)
    jax.jit(lambda x: jnp.cos(x) + len(gone))(jnp.ones(3))
    assert seen and len(offered) == seen
