"""Forms as a part of install(): switches, the report, what others register, and what fails."""

import threading
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.interpreters import mlir

import graphopt
from graphopt import forms, jax_private
from graphopt.errors import ConfigError
from graphopt.forms import choosing, lowering

NAME = "convolution-shifts"
IMAGE = np.random.default_rng(0).normal(size=(2, 64, 64, 32)).astype(np.float32)
WEIGHTS = np.random.default_rng(1).normal(size=(3, 3, 1, 32)).astype(np.float32)


def depthwise(x, weights=WEIGHTS):
    return lax.conv_general_dilated(
        x, jnp.asarray(weights), (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=x.shape[-1],
    )  # fmt: skip


def has_form(fn=depthwise, *args):
    text = jax.jit(lambda *a: fn(*a)).lower(*(args or (IMAGE,))).as_text()
    return "stablehlo.convolution" not in text


@pytest.fixture
def clean(monkeypatch):
    """Nothing installed before and after, an empty report."""
    monkeypatch.delenv("GRAPHOPT_FORMS", raising=False)
    monkeypatch.delenv("GRAPHOPT_DISABLE", raising=False)
    graphopt.uninstall()
    graphopt.reset_report()
    yield
    graphopt.uninstall()
    graphopt.reset_report()


@pytest.fixture
def broken(monkeypatch):
    """Replaces what the form computes."""

    def put(**changes):
        form = replace(next(f for f in forms.FORMS if f.name == NAME), **changes)
        table = {"conv_general_dilated": (form,)}
        monkeypatch.setattr(choosing, "BY_PRIMITIVE", table)

    return put


def install(**options):
    graphopt.install(store=False, **options)


def test_install_uses_forms_and_uninstall_ends_that(clean):
    install()
    assert has_form()
    graphopt.uninstall()
    assert not has_form()
    install()
    graphopt.install(policy=None)
    assert not has_form()


def test_results_under_vmap_grad_and_scan(clean):
    def loss(x, w):
        return jnp.sum(jnp.sin(jax.vmap(lambda x: depthwise(x, w))(x[None])))

    def program(x, w):
        return lax.scan(lambda c, _: (c + jax.grad(loss, 1)(x, c), loss(x, c)), w, None, length=2)

    # XLA adds up a gradient's terms one after the other: of a large image its sums are far off.
    image = IMAGE[:, :8, :8]
    expected = jax.jit(lambda *a: program(*a))(image, WEIGHTS)
    install()
    found = jax.jit(lambda *a: program(*a))(image, WEIGHTS)
    assert graphopt.report().forms
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-2), found, expected
    )


@pytest.mark.parametrize("off", [False, f"-{NAME}", "0"])
def test_an_argument_switches_forms_off(clean, off):
    install(forms=off)
    assert not has_form()


@pytest.mark.parametrize(
    ("text", "used"), [("0", False), (f"-{NAME}", False), (NAME, True), ("1", True), ("", True)]
)
def test_the_environment_switches_forms(clean, monkeypatch, text, used):
    monkeypatch.setenv("GRAPHOPT_FORMS", text)
    install()
    assert has_form() is used
    with forms.enabled():
        assert has_form() is used


def test_graphopt_disable_leaves_forms_out(clean, monkeypatch):
    monkeypatch.setenv("GRAPHOPT_DISABLE", "1")
    install()
    assert not has_form()


@pytest.mark.parametrize("text", ["depthwise", f"-{NAME},none", f"{NAME},-{NAME}"])
def test_a_name_that_no_form_has_is_an_error(clean, text):
    with pytest.raises(ConfigError, match="no selection of forms"):
        install(forms=text)


def test_the_report_tells_of_forms_and_of_what_was_left(clean):
    install()
    assert has_form() and has_form()
    assert not has_form(depthwise, IMAGE[:, :1, :1])
    assert not has_form(
        lambda x: depthwise(x, np.ones((3, 3, 32, 32), np.float32)[:, :, :1]), IMAGE[..., :1]
    )
    report = graphopt.report()
    (use,) = (use for use in report.forms if use.name == NAME)
    assert use.count == 2 and use.default_ns > use.form_ns > 0 and not use.failed
    assert report.operations["conv_general_dilated: no gain expected"] >= 1
    assert f"form {NAME}: 2 operations, estimated" in str(report)
    assert "operations left to XLA" in str(report) and "convolution-groups" in str(report)
    graphopt.reset_report()
    assert not graphopt.report().forms and not graphopt.report().operations


def raising(*_):
    raise ValueError("no such luck")


@pytest.mark.parametrize(
    "changes",
    [
        {"compute": raising},
        {"forbids": raising},
        {"times": raising},
        {"compute": lambda operation, operands: [operands[0].astype(jnp.float16)]},
        {"compute": lambda operation, operands: []},
    ],
)  # fmt: skip
def test_a_form_that_fails_is_passed_over_and_reported(clean, broken, changes):
    broken(**changes)
    install()
    assert not has_form()
    found = jax.jit(lambda x: depthwise(x))(IMAGE)
    graphopt.uninstall()
    np.testing.assert_array_equal(found, jax.jit(lambda x: depthwise(x))(IMAGE))
    (use,) = graphopt.report().forms
    assert use.failed == 2 and not use.count and use.error
    assert "failed on 2, which jax lowered" in str(graphopt.report())


def test_what_the_user_has_set_for_his_code_does_not_hold_for_a_form(clean, broken):
    def compute(operation, operands):
        return [(operands[0] * np.ones(32, np.int64)).astype(np.float32)]

    broken(compute=compute)
    install()
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        assert has_form()


def test_operations_inside_a_form_are_not_what_others_share(clean, broken):
    inner = (IMAGE[:, :48], WEIGHTS)
    form = next(f for f in forms.FORMS if f.name == NAME)

    def compute(operation, operands):
        if operands[0].shape[1] == 48:
            return form.compute(operation, operands)
        depthwise_once = depthwise(operands[0][:, :48], operands[1])
        return [jnp.pad(depthwise_once, ((0, 0), (0, 16), (0, 0), (0, 0)))]

    broken(compute=compute)
    install()
    jax.jit(lambda x, w: (depthwise(x, w), depthwise(*inner))).lower(IMAGE, WEIGHTS)
    (use,) = graphopt.report().forms
    assert use.count == 2


def test_a_rule_that_somebody_puts_over_ours_stays(clean):
    primitive = jax_private.find_primitive("conv_general_dilated")
    before = jax_private.own_cpu_entry(primitive)
    install()
    standing = jax_private.lowering_entry(primitive).rule
    called = []

    def rule(ctx, *args, **params):
        called.append(ctx)
        return standing(ctx, *args, **params)

    try:
        mlir.register_lowering(primitive, rule, platform="cpu")
        graphopt.uninstall()
        assert not has_form() and called
    finally:
        jax_private.set_cpu_entry(primitive, before)


def test_primitives_that_are_not_there_are_noted(clean, monkeypatch):
    monkeypatch.setattr(
        lowering, "BY_PRIMITIVE", {"no_such_primitive": (), **lowering.BY_PRIMITIVE}
    )
    install()
    assert any("no_such_primitive" in note for note in graphopt.report().notes)
    assert has_form()


def test_one_thread_in_forms_does_not_change_another(clean):
    seen = []
    with forms.enabled() as choices:
        thread = threading.Thread(target=lambda: seen.append(has_form()))
        thread.start()
        thread.join()
        assert has_form() and [c.form.name for c in choices] == [NAME]
        with forms.disabled():
            assert not has_form()
    assert seen == [False]
    assert not has_form()


def test_threads_that_enter_and_leave_at_once(clean):
    found = []

    def work():
        for _ in range(5):
            with forms.enabled():
                found.append(has_form(depthwise, IMAGE[:1]))

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert found == [True] * 20
    assert not has_form()


def test_install_while_a_function_is_traced(clean):
    def fn(x):
        install()
        return depthwise(x)

    assert has_form(fn)
    assert isinstance(graphopt.report().forms, tuple)


@pytest.mark.parametrize("key", [True, False])
def test_what_is_no_plain_array_stays_with_jax(clean, key):
    install()
    if key:
        jax.jit(lambda k: jnp.sort(jax.random.bits(k, (8,)))).lower(jax.random.key(0))
    else:
        with jax.enable_x64(True):
            jax.jit(lambda x: jnp.sort(x)).lower(jnp.arange(3, dtype=jnp.int4))
    assert not any(use.failed for use in graphopt.report().forms)


def test_ahead_of_time_checkpoint_and_shapes(clean):
    install()
    compiled = jax.jit(lambda x: depthwise(x)).lower(IMAGE).compile()
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(jax.checkpoint(depthwise)(x) ** 2)))
    assert compiled(IMAGE).shape == IMAGE.shape == jax.eval_shape(depthwise, IMAGE).shape
    assert np.isfinite(gradient(IMAGE)).all()
