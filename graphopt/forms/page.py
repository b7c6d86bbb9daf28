"""The page of documentation on forms, made from the rows of their table.

The site of the documents asks for it; ``python -m graphopt.forms.page`` prints it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from graphopt.forms.choosing import MARGIN, MIN_SAVED_NS
from graphopt.forms.form import Form
from graphopt.forms.table import FORMS, RULES

_HEAD = f"""# Forms of operations

XLA:CPU computes some operations many times slower than the machine can: depthwise convolutions, sorts,
cumulative sums, pools, functions such as the sine. `graphopt.install()` lowers them in another form, in
operations that XLA emits well. The form is chosen where jax lowers the primitive for the CPU, after
differentiation and batching, by shapes, types and the facts of the machine: the fastest by estimate, if
XLA's own way takes more than {MARGIN} times as long and {MIN_SAVED_NS / 1e3:g} us more. Everything else is
lowered by jax's own rule. Exported modules, programs of several devices and other platforms are left alone.

The site makes this page from the table.
"""
_WIDTH = 118


def page() -> str:
    """The page as Markdown."""
    return (
        "\n".join([_HEAD, *(line for form in FORMS for line in _section(form)), *_rules()]) + "\n"
    )


def _section(form: Form) -> Iterator[str]:
    names = ", ".join(f"`{name}`" for name in form.primitives)
    results = "bit-equal" if form.exact else form.accuracy
    yield f"## {form.name}\n"
    yield from textwrap.wrap(f"For {names}: {form.summary}. Results: {results}.", _WIDTH)
    yield ""


def _rules() -> Iterator[str]:
    yield "## What forbids a form\n"
    for name, message in RULES.items():
        yield textwrap.fill(f"* `{name}`: {message}", _WIDTH, subsequent_indent="  ")


if __name__ == "__main__":
    print(page(), end="")
