"""The table of forms, and its page."""

import re
from pathlib import Path

import pytest

from graphopt import forms, jax_private
from graphopt.forms import rows
from graphopt.forms.page import page
from graphopt.forms.table import FORMS, RULES

ROWS = sorted(Path(rows.__file__).parent.glob("*.py"))


def test_names_are_unique():
    assert len({form.name for form in FORMS}) == len(FORMS)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_row_says_what_it_is(form):
    assert form.exact != bool(form.accuracy)
    assert form.primitives and all(map(jax_private.find_primitive, form.primitives))


def test_every_rule_has_a_message_and_belongs_to_a_row():
    named = {
        name
        for path in ROWS
        for name in re.findall(r"return \"([a-z0-9]+(?:-[a-z0-9]+)+)\"", path.read_text())
    }
    assert named <= RULES.keys()
    assert all(message and not message.endswith(".") for message in RULES.values())


def test_the_page_is_made_from_the_table():
    written = page()
    assert all(
        f"## {form.name}\n" in written and form.summary.split()[0] in written for form in FORMS
    )
    assert all(f"`{name}`: " in written for name in RULES)


def test_the_package_offers_the_table():
    assert forms.FORMS is FORMS and forms.RULES is RULES
