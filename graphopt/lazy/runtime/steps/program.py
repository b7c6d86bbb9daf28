"""The compiled loop over several steps of one graph."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from graphopt.lazy.runtime import compiling, executors, tiers
from graphopt.lazy.runtime.cache import Entry
from graphopt.lazy.runtime.index_checks import dependencies
from graphopt.lazy.runtime.results import grouped
from graphopt.lazy.runtime.steps.relation import OWN, Relation, Step, closure


@dataclass(frozen=True)
class Form:
    """What a loop over steps is compiled for.

    Attributes:
        count: steps, two or more.
        relation: how each step follows from the one before.
        kept: positions of the results that are asked for of every step, ascending; of the last
            step all are.
        equal_numbers: the scalar parameters are the same in all steps.
    """

    count: int
    relation: Relation
    kept: tuple[int, ...]
    equal_numbers: bool


@dataclass(eq=False, repr=False)
class Program:
    """A loop over steps: compiled in the background, used from a fixed number of steps on.

    Attributes:
        entry: the graph of a step.
        form: what the loop is compiled for.
        asked: times that it was asked for.
        due: count of the entry's steps from which on it is used; None while no compile was started.
        executable: the compiled loop; None if there is none.
        done: set once the compile has ended.
    """

    entry: Entry
    form: Form
    asked: int = 0
    due: int | None = None
    executable: Any = None
    done: threading.Event = field(default_factory=threading.Event)
    _last: tuple[Any, list[Any]] = (None, [])

    @property
    def checked(self) -> bool:
        """Whether the graph checks indices."""
        return bool(self.places)

    @functools.cached_property
    def places(self) -> tuple[tuple[str, Any], ...]:
        """Operations whose indices are checked."""
        return executors.checked_places(self.entry.plan)

    @functools.cached_property
    def dependencies(self) -> Any:
        """Checks, and buffers of the first step, that the roots of later ones depend on; `grouped`."""
        return grouped(closure(dependencies(self.entry.plan), self.form.relation))

    def compile(self, policy: Any) -> None:
        """Compiles the loop; afterwards it has an executable, or failed. Never raises."""
        try:
            self.executable = compiling.compile_loop(
                self.entry, f"{self.entry.name}_{self.form.count}", self._run, self._types(), policy
            )
        finally:
            self.done.set()

    def values(self, steps: Sequence[Step]) -> tuple[Sequence[Any], list[Sequence[Any]]]:
        """Runs steps.

        Returns:
            The roots of the last step, and the kept roots of each step before it; behind each the index
            flags of the steps up to there, if the graph checks any.
        """
        found = self.executable(*self._leaves(steps), *self._numbers(steps))
        whole, part = len(self.entry.plan.root_slots), len(self.form.kept)
        if self.checked:
            whole, part = whole + 1, part + 1
        if not self.form.kept:
            return found, []
        return found[:whole], [found[k : k + part] for k in range(whole, len(found), part)]

    def _leaves(self, steps: Sequence[Step]) -> list[Any]:
        device = self.entry.plan.device
        found = []
        for k, source in enumerate(self.form.relation):
            if source == OWN:
                rows = np.stack([np.asarray(step.leaves[k].data) for step in steps])
                found.append(tiers.put(rows, device))
                continue
            leaf = steps[0].leaves[k]
            if type(leaf.data) is np.ndarray:
                leaf.data = tiers.put(leaf.data, device)
            found.append(leaf.data)
        return found

    def _numbers(self, steps: Sequence[Step]) -> list[Any]:
        packing, device = self.entry.packing, self.entry.plan.device
        if self.form.equal_numbers:
            if self._last[0] != steps[0].scalars:
                packs = [tiers.put(pack, device) for pack in packing.pack(steps[0].scalars)]
                self._last = steps[0].scalars, packs
            return self._last[1]
        rows = [packing.pack(step.scalars) for step in steps]
        return [tiers.put(np.stack(column), device) for column in zip(*rows, strict=True)]

    def _types(self) -> list[Any]:
        count = self.form.count
        leaves, packs = executors.abstract_arguments(self.entry.plan, self.entry.packing)
        found = [
            _several(leaf, count) if source == OWN else leaf
            for leaf, source in zip(leaves, self.form.relation, strict=True)
        ]
        return [
            *found,
            *(pack if self.form.equal_numbers else _several(pack, count) for pack in packs),
        ]

    def _run(self, *arguments: Any) -> tuple[Any, ...]:
        """All steps, traced by jax: the roots of the last one, then what is kept of the others."""
        import jax.numpy as jnp

        form, plan = self.form, self.entry.plan
        leaves, packs = arguments[: len(form.relation)], arguments[len(form.relation) :]
        own = [k for k, source in enumerate(form.relation) if source == OWN]
        carried = {source: k for k, source in enumerate(form.relation) if source >= 0}
        order = (*carried, *(r for r in range(len(plan.root_slots)) if r not in carried))
        step = executors.as_function(plan, self.entry.packing)

        def body(state: Any, each: Any) -> Any:
            values = list(leaves)
            for k, value in zip(own, each[0], strict=True):
                values[k] = value
            for k, value in zip(carried.values(), state, strict=False):
                values[k] = value
            roots = step(tuple(values), packs if form.equal_numbers else each[1])
            kept = tuple(roots[r] for r in form.kept)
            return tuple(roots[r] for r in order), (kept, roots[len(order) :])

        rest = [np.zeros(a.shape, a.dtype.np) for a in plan.root_avals]
        first = (*(leaves[k] for k in carried.values()), *(rest[r] for r in order[len(carried) :]))
        each = (tuple(leaves[k] for k in own), () if form.equal_numbers else packs)
        last, (rows, checked) = jax.lax.scan(body, first, each, length=form.count)
        flags = jnp.cumsum(checked[0], axis=0) > 0 if checked else None  # those of all steps so far
        found = [last[order.index(r)] for r in range(len(order))]
        if flags is not None:
            rows = (*rows, flags)
            found.append(flags[-1])
        if form.kept:
            found += [row[k] for k in range(form.count - 1) for row in rows]
        return tuple(found)


def _several(one: Any, count: int) -> Any:
    return jax.ShapeDtypeStruct((count, *one.shape), one.dtype)
