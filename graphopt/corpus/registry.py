"""All programs of the corpus, and selections of them by name.  Importing this imports no program."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Final

from graphopt.corpus.program import Program, ProgramSet
from graphopt.corpus.split import SPLITS, split_of
from graphopt.extras import require

_MODULES: Final = (
    "learning.language", "learning.recurrent", "learning.attention", "learning.transformer_xl",
    "learning.convolutional", "learning.vision", "learning.routing", "learning.generative",
    "learning.training", "learning.optimizers", "science.control", "learning.rl_updates",
    "science.dynamics", "science.grids", "science.probability", "science.finance",
    "science.images", "science.discrete", "science.numerics", "learning.classical",
)  # fmt: skip
"""Modules of `graphopt.corpus.programs`; each has a tuple ``FAMILIES``."""

_TUNING: Final = (
    "gpt_train_step", "coupling_flow_grad", "lamb_update", "garch_likelihood_grad",
    "eight_schools_mala", "hmm_forward_backward", "kalman_smoother", "cartpole_batch",
    "acrobot_rk4", "nbody_leapfrog", "lennard_jones_verlet", "shallow_water",
    "bilateral_filter", "colour_jitter_hsv",
)  # fmt: skip
"""Real programs of 0.05-20 ms for tuning: gradients, scans, probabilistic models, physics, optimizers,
environments, image operations."""


@cache
def corpus_programs() -> ProgramSet:
    """Every program of the corpus, in a fixed order.

    Raises:
        MissingExtraError: a library that programs are written with is not installed.
    """
    require("the corpus of programs", "train")
    programs = ProgramSet()
    for name in _MODULES:
        module = importlib.import_module(f"graphopt.corpus.programs.{name}")
        for family in module.FAMILIES:
            for program in family:
                programs.add(program)
    return programs


def select_corpus(selection: str) -> dict[str, Program]:
    """Programs of a split, of the ``tuning`` selection, or of the whole ``corpus``, by name.

    Raises:
        KeyError: there is no such selection.
    """
    programs = corpus_programs()
    if selection == "tuning":
        return {name: programs[name] for name in _TUNING}
    if selection not in (*SPLITS, "corpus"):
        raise KeyError(selection)
    return {p.name: p for p in programs if selection in ("corpus", split_of(p.family))}


SELECTIONS: Final = ("corpus", *SPLITS, "tuning")
"""What `select_corpus` takes."""
