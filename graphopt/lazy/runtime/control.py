"""What users control execution with: `sync`, `eval`, `step`, `show`-like helpers on trees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax

from graphopt.lazy.core.node import Node
from graphopt.lazy.record import recorder
from graphopt.lazy.record.tensor_base import TensorBase
from graphopt.lazy.runtime import cut

sync = cut.sync


def nodes_in(tree: Any) -> Iterator[Node]:
    """Nodes of the tensors in nested containers."""
    if isinstance(tree, TensorBase):
        yield tree._node
        return
    for x in jax.tree_util.tree_leaves(tree, is_leaf=lambda t: isinstance(t, TensorBase)):
        if isinstance(x, TensorBase):
            yield x._node


def eval(*xs: Any, wait: bool = False) -> None:
    """Computes tensors (in nested containers, too) and live tensors that share work with them.

    Args:
        *xs: tensors, or pytrees of them.
        wait: return only when the devices are done.

    Raises:
        LazyError: one of them cannot be computed.
    """
    cut.eval_nodes([node for x in xs for node in nodes_in(x)], wait)


class step:
    """One step of a training loop: ``with lt.step(): ...`` computes all that is pending at its end.

    Inside, the trace may be long (setting ``step_limit``), so that a step is one graph as long as no
    value is observed; a graph seen before is compiled without delay, so that runs are reproducible.
    """

    def __enter__(self) -> step:
        local = recorder.state.now
        self._before = local.step, local.limit
        local.step = self
        local.limit = recorder.settings.step_limit
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        local = recorder.state.now
        try:
            if kind is None:
                cut.sync_all("step")
        finally:
            local.step, local.limit = self._before


def clear_caches() -> None:
    """Forgets all graphs and executables."""
    with cut.LOCK:
        cut.cache.clear()
