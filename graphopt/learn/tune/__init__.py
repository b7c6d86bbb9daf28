"""Tuning one program: search with measurements, confirm, store."""

from graphopt.learn.tune.api import replay, tune
from graphopt.learn.tune.progress import Event, Listener
from graphopt.learn.tune.result import ModuleResult, TuneResult

__all__ = ["Event", "Listener", "ModuleResult", "TuneResult", "replay", "tune"]
