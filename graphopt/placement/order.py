"""The order in which a list scheduler considers tasks."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from graphopt.placement.tasks import TaskGraph


def upward_rank(tasks: TaskGraph, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64 [N]: longest path from each task to an end, its own time included (HEFT, section 4.1)."""
    rank = seconds.astype(np.float64).tolist()
    cost = list(rank)
    for task in range(len(tasks) - 1, -1, -1):
        here = rank[task]
        for operand in tasks.operand_lists[task]:
            through = cost[operand] + here
            if through > rank[operand]:
                rank[operand] = through
    return np.array(rank)


def priority_order(tasks: TaskGraph, seconds: NDArray[np.float64]) -> NDArray[np.int32]:
    """int32 [N]: a topological order, longest remaining path first among the tasks that are ready.

    Args:
        tasks: the graph.
        seconds: float64 [N]; time of each task on an average device.
    """
    rank = upward_rank(tasks, seconds).tolist()
    waiting = np.diff(tasks.operand_start).tolist()
    users: list[list[int]] = [[] for _ in range(len(tasks))]
    for task, operands in enumerate(tasks.operand_lists):
        for operand in operands:
            users[operand].append(task)
    ready = [(-rank[t], t) for t in range(len(tasks)) if not waiting[t]]
    heapq.heapify(ready)
    order = []
    while ready:
        task = heapq.heappop(ready)[1]
        order.append(task)
        for user in users[task]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, (-rank[user], user))
    return np.array(order, np.int32)
