"""Which graphs are learned from."""

from __future__ import annotations

import numpy as np
import pytest
from support.captures import captured

from graphopt.corpus.demo import DEMO
from graphopt.errors import ConfigError
from graphopt.learn.collecting import problems as module
from graphopt.learn.collecting.problems import VALIDATION_FAMILIES, Problem, load_problems
from graphopt.learn.collecting.scorers import program_inputs
from graphopt.learn.config import TOY, CorpusConfig

WORKLOADS = {
    f"program-{index}": lambda index=index: (
        lambda x: np.float32(index + 2) * x @ x.T + x.sum(),
        (np.ones((16 + index, 16 + index), np.float32),),
    )
    for index in range(5)
}
SPEC = f"{__name__}:WORKLOADS"


def test_splits_of_built_in_programs_share_no_family():
    config = CorpusConfig("builtin", names=("layernorm",), validation_limit=2, max_nodes=130)
    (only,) = load_problems(config, "train")
    assert only.name == "layernorm"
    assert only.family not in VALIDATION_FAMILIES
    validation = load_problems(config, "validation")
    assert len(validation) == 2
    assert {problem.family for problem in validation} <= VALIDATION_FAMILIES
    assert all(len(problem.graph) <= 130 for problem in validation)
    assert TOY.corpus.source == "builtin"


def test_own_programs_are_split_and_ordered_by_size():
    config = CorpusConfig(SPEC)
    train, validation = load_problems(config, "train"), load_problems(config, "validation")
    names = [problem.name for problem in (*train, *validation)]
    assert sorted(names) == sorted(WORKLOADS)
    assert validation
    sizes = [len(problem.graph) for problem in train]
    assert sizes == sorted(sizes)


def test_nothing_left_is_an_error():
    with pytest.raises(ConfigError, match="no graph of the train split is left"):
        load_problems(CorpusConfig(SPEC, max_nodes=3), "train")


def test_the_corpus_gives_its_own_splits(monkeypatch):
    asked = []
    monkeypatch.setattr(module, "load_corpus", lambda split, **_: asked.append(split) or [])
    for split in ("train", "validation"):
        with pytest.raises(ConfigError):
            load_problems(CorpusConfig(), split)
    assert asked == ["train", "validation"]


def test_inputs_are_those_of_the_program():
    program = captured("layernorm")
    problem = Problem("layernorm", "", program.graph, program.data, DEMO["layernorm"])
    found = program_inputs(problem)
    assert found is not None
    assert any(np.array_equal(one, np.asarray(program.args[0])) for one in found)
    other = Problem("other", "", captured("adam_step").graph, None, DEMO["layernorm"])
    assert program_inputs(other) is None  # another module than the program's
    assert program_inputs(Problem("bare", "", program.graph)) is None
