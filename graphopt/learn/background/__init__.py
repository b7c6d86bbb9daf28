"""Tuning in the background: working off the store's queue of modules."""

from graphopt.learn.background.elsewhere import work_elsewhere
from graphopt.learn.background.load import Load
from graphopt.learn.background.worker import Listener, Summary, Told, work

__all__ = ["Listener", "Load", "Summary", "Told", "work", "work_elsewhere"]
