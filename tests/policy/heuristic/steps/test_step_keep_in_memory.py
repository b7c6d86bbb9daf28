"""The step 'keep in memory': acts, abstains, stays legal, results equal."""

from __future__ import annotations

import jax.numpy as jnp
from support.captures import captured, normal
from support.stepping import check_acts, edit_of, fields_of

NAME = "keep in memory"


def test_what_is_recomputed_at_cost_is_written():
    found = captured("heat_stencil")
    edit = check_acts(NAME, found.fn, *found.args)
    assert "fuse" in fields_of(edit) and edit.saved_ns > 8000


def test_what_is_used_once_stays_fused():
    assert edit_of(NAME, lambda x: jnp.sin(jnp.cos(x)), normal(512, 512)) is None
