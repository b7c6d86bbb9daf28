"""Placement: task graphs, the machine model, the simulator, and classical placements."""

from graphopt.placement.build import Traced, build_tasks
from graphopt.placement.cluster import Cluster, DeviceKind, known, known_names, uniform
from graphopt.placement.event_loop import Event, run_event_loop
from graphopt.placement.flat import FlatProgram, flatten
from graphopt.placement.simulator import PlacementScores, Simulator
from graphopt.placement.tasks import TaskGraph, TaskKind
from graphopt.placement.times import TaskTimes, analytic_times

__all__ = [
    "Cluster",
    "DeviceKind",
    "Event",
    "FlatProgram",
    "PlacementScores",
    "Simulator",
    "TaskGraph",
    "TaskKind",
    "TaskTimes",
    "Traced",
    "analytic_times",
    "build_tasks",
    "flatten",
    "known",
    "known_names",
    "run_event_loop",
    "uniform",
]
