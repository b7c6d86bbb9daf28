"""The heuristic's page of documentation, made from the rows of its table.

The site of the documents asks for it; ``python -m graphopt.policy.heuristic_page`` prints it.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphopt.policy.heuristic.steps import TABLE
from graphopt.policy.heuristic.support.step import Step

_HEAD = """# The heuristic

What a careful engineer would change in XLA:CPU's decisions, as a table of steps. Each step looks at a graph
under the decisions of the steps before it, and says what it would change and what that saves per run of the
program. An edit counts if it saves more than the step's threshold; steps without one judge each change by
itself. `explain` and `report()` name the steps behind a decision, also where the learned policy decides,
which starts from the heuristic.

The site makes this page from the table.
"""


def page() -> str:
    """The page as Markdown."""
    return (
        "\n".join([_HEAD, *_overview(), *(line for step in TABLE for line in _section(step))])
        + "\n"
    )


def _overview() -> Iterator[str]:
    yield "| step | what it does | builds on |"
    yield "|---|---|---|"
    for number, step in enumerate(TABLE, 1):
        yield f"| {number}. {step.name} | {step.summary} | {', '.join(step.after) or '-'} |"


def _section(step: Step) -> Iterator[str]:
    rows = list(step.thresholds())
    if not rows:
        return
    yield f"\n## {step.name}\n"
    yield "| judgement | value | unit | meaning |"
    yield "|---|---|---|---|"
    for name, value, unit, meaning in rows:
        yield f"| `{name}` | {value:,g} | {unit} | {meaning} |"


if __name__ == "__main__":
    print(page(), end="")
