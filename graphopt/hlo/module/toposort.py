"""Topological order with a priority among what is ready."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def topological_order(
    before: Mapping[int, Iterable[int]], priority: Callable[[int], Any]
) -> list[int]:
    """All keys of `before`, each after what it maps to; the smallest priority first among the ready.

    Keys on a cycle, and what depends on them, are left out: the result is shorter then.
    """
    rank = {name: (priority(name), name) for name in before}
    if all(rank[one] < own for name, own in rank.items() for one in before[name]):
        return sorted(before, key=rank.__getitem__)
    waiting: dict[int, int] = {}
    follows: dict[int, list[int]] = {name: [] for name in before}
    for name, earlier in before.items():
        distinct = set(earlier)
        waiting[name] = len(distinct)
        for one in distinct:
            follows[one].append(name)
    ready = [rank[name] for name, count in waiting.items() if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        _, name = heapq.heappop(ready)
        order.append(name)
        for after in follows[name]:
            waiting[after] -= 1
            if not waiting[after]:
                heapq.heappush(ready, rank[after])
    return order
