"""The corpus: what its programs promise, how families are split, what the commands print."""

from __future__ import annotations

import functools
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import pytest
from support.captures import capture

from graphopt.cli import main
from graphopt.corpus import Program, check_split, corpus_programs
from graphopt.corpus.demo import DEMO
from graphopt.corpus.fuzzing import FUZZ
from graphopt.corpus.registry import SELECTIONS, select_corpus
from graphopt.corpus.split import (
    SPLITS,
    TRIVIAL_NODES,
    find_overlaps,
    load_split,
    parse_split,
    split_of,
    structure,
)
from graphopt.corpus.workloads import builtin_programs, find_program, load_programs
from graphopt.errors import ConfigError
from graphopt.evaluate.fuzzing.corpus import answer
from graphopt.hlo import Graph

PROGRAMS = list(corpus_programs())

# One or two programs of every family that are quick to compile; `graphopt corpus verify` does all.
SAMPLE = (
    "rnn_lm_decode", "rnn_lm_8_forward", "gnmt_greedy_decode", "gru_forward", "peephole_lstm_norm",
    "mamba_block", "retention_chunks", "linen_encoder_forward", "llama_block", "cosine_attention",
    "online_softmax_attention", "transformer_xl_4_forward", "inception_a_block",
    "amoebanet_normal_cell", "wavenet_conditioned", "resnet_bottleneck_forward",
    "mobilenet_inverted_residuals", "mlp_mixer_forward", "top2_gather", "edge_conv_knn",
    "label_propagation", "gan_grads", "ddim_sampling", "rectified_flow_heun", "layer_norm_grad",
    "adaptive_instance_norm", "info_nce_grad", "distillation_grad", "lion_update",
    "muon_orthogonal_update", "pendulum_energy_swing", "cartpole_batch", "value_iteration",
    "dqn_double_grad", "lorenz_rk4", "rope_constraints", "nbody_leapfrog", "jacobi_poisson",
    "gray_scott", "burgers_godunov", "maxwell_fdtd", "funnel_leapfrog_chains",
    "hierarchical_poisson_grad", "hmm_forward_backward", "american_binomial", "affine_warp_batch",
    "median_and_morphology", "biquad_cascade", "fft_long_convolution",
    "two_dimensional_histogram", "murmur_hash_lanes", "crc32_table", "game_of_life", "langton_ant",
    "conjugate_gradient", "matrix_exponential_taylor", "soft_kmeans", "boosted_trees_predict",
    "int8_quantized_mlp", "bf16_attention_block",
)  # fmt: skip

REWRITTEN = (
    "rnn_lm_decode", "llama_block", "ddim_sampling", "lion_update", "cartpole_batch", "lorenz_rk4",
    "jacobi_poisson", "hmm_forward_backward", "crc32_table", "bf16_attention_block",
)  # fmt: skip


# The programs.


def test_there_are_many_programs_of_many_families():
    families = Counter(program.family for program in PROGRAMS)
    assert len(PROGRAMS) >= 120
    assert len(families) >= 15
    assert min(families.values()) >= 3


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_metadata(program: Program):
    assert split_of(program.family) in SPLITS
    if program.name.endswith("_grad"):
        assert program.gradient
    assert not program.description.endswith(".")


def test_names_are_unique_over_all_sets():
    names = [p.name for p in (*DEMO, *FUZZ, *PROGRAMS)]
    assert len(set(names)) == len(names)
    assert list(builtin_programs()) == names


def test_descriptions_tell_programs_apart():
    descriptions = [program.description for program in PROGRAMS]
    assert len(set(descriptions)) == len(descriptions)


@dataclass(frozen=True)
class Taken:
    """A program's graphs for the split check."""

    name: str
    split: str
    graphs: list[Graph] = field(repr=False)


@functools.cache
def taken(name: str) -> tuple[Taken, Any]:
    """A program's graph and its result; captured once per test process."""
    program = corpus_programs()[name]
    fn, args = program.build()
    done = capture(fn, *args)
    return Taken(name, split_of(program.family), [done.graph]), done.result


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_runs_as_its_metadata_says(name):
    program = corpus_programs()[name]
    leaves, again = (jax.tree.leaves(program.build()[1]) for _ in range(2))
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)
    assert all(np.array_equal(a, b) for a, b in zip(leaves, again, strict=True))
    captured, result = taken(name)
    for leaf in jax.tree.leaves(result):
        if np.issubdtype(leaf.dtype, np.inexact):
            assert np.isfinite(np.asarray(leaf)).all()
    assert any(op.name == "while" for op in captured.graphs[0].ops) == program.loops


def test_the_sample_covers_every_family():
    assert {corpus_programs()[name].family for name in SAMPLE} == set(load_split())


def test_no_module_of_the_sample_is_in_two_splits_or_twice():
    entries = [taken(name)[0] for name in SAMPLE]
    check_split(entries)
    assert find_overlaps(entries) == []


@pytest.mark.parametrize("name", REWRITTEN)
def test_a_sample_computes_the_same_when_rewritten(name):
    rows = answer({"spec": "corpus", "name": name, "policies": ["xla-default", "heuristic"]})[
        "rows"
    ]
    assert [(row["policy"], row["status"]) for row in rows if row["status"] != "kept"]
    assert all(row["status"] in ("ok", "kept") for row in rows), rows


# Selections.


def test_selections_are_program_sets():
    import graphopt.corpus

    for name, attribute in (("train", "TRAIN"), ("held-out", "HELD_OUT"), ("tuning", "TUNING")):
        assert load_programs(name) == getattr(graphopt.corpus, attribute)
        assert load_programs(f"graphopt.corpus:{attribute}") == load_programs(name)
    assert set(SELECTIONS) == {"corpus", "tuning", *SPLITS}
    with pytest.raises(KeyError):
        select_corpus("test")
    with pytest.raises(AttributeError, match="NONSENSE"):
        _ = graphopt.corpus.NONSENSE


def test_a_program_is_a_builder_and_keeps_its_facts():
    program = load_programs("graphopt.corpus:HELD_OUT")["pendulum_cross_entropy"]
    assert program.chaotic
    assert program.family == "control"
    fn, args = program()
    assert callable(fn)
    assert len(args) == 2


def test_splits_partition_the_corpus():
    parts = [set(select_corpus(split)) for split in SPLITS]
    assert sum(map(len, parts)) == len(PROGRAMS)
    assert set().union(*parts) == set(select_corpus("corpus"))
    held_out = {p.family for p in select_corpus("held-out").values()}
    assert len(held_out) >= 5
    assert len(parts[2]) >= 35


def test_tuning_programs_are_of_many_kinds():
    tuning = select_corpus("tuning")
    assert len(tuning) >= 10
    assert len({p.family for p in tuning.values()}) >= 10
    assert not any(p.chaotic for p in tuning.values())


@pytest.mark.parametrize("name", ["lstm", "fibonacci", "black_scholes"])
def test_programs_of_all_sets_are_found_by_name(name):
    assert find_program(name).name == name


# The split.


def test_every_family_has_a_split_and_every_split_a_family():
    assert set(load_split()) == {program.family for program in PROGRAMS}
    assert set(load_split().values()) == set(SPLITS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not an object"),
        ('{"a": "test"}', "the split 'test'"),
        ('{"a": null}', "the split None"),
        ('{"a": "train", "a": "held-out"}', "twice"),
    ],
)
def test_a_malformed_split_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_split(text)


def test_an_unknown_family_is_refused():
    with pytest.raises(ConfigError, match="nonsense"):
        split_of("nonsense")


def _chain(x, count):
    for _ in range(count):
        x = np.float32(0.5) * jax.numpy.sin(x) + jax.numpy.cos(x)
    return x


@pytest.fixture(scope="module")
def graphs():
    """Two sizes of one program, another program, and a trivial module."""
    small, large = np.ones(8, np.float32), np.ones((9, 7), np.float32)
    return {
        "small": capture(lambda x: _chain(x, 5), small).graph,
        "large": capture(lambda x: _chain(x, 5), large).graph,
        "other": capture(lambda x: _chain(x, 6), small).graph,
        "trivial": capture(lambda x: x + 1, small).graph,
    }


def test_structure_ignores_sizes_only(graphs):
    assert structure(graphs["small"]) == structure(graphs["large"]) != structure(graphs["other"])
    assert graphs["small"].fingerprint != graphs["large"].fingerprint


def test_the_same_module_in_two_splits_is_a_leak(graphs):
    entries = [Taken("a", "train", [graphs["small"]]), Taken("b", "held-out", [graphs["small"]])]
    (overlap,) = find_overlaps(entries)
    assert overlap.kind == "fingerprint"
    assert overlap.leaks
    with pytest.raises(ConfigError, match=r"a \(train\), b \(held-out\)"):
        check_split(entries)


def test_the_same_program_at_another_size_is_a_leak_too(graphs):
    entries = [
        Taken("a", "train", [graphs["other"], graphs["small"]]),
        Taken("b", "validation", [graphs["large"]]),
    ]
    with pytest.raises(ConfigError, match="same structure"):
        check_split(entries)


def test_a_copy_within_a_split_is_found_but_no_leak(graphs):
    entries = [Taken("a", "train", [graphs["small"]]), Taken("b", "train", [graphs["small"]])]
    (overlap,) = find_overlaps(entries)
    assert not overlap.leaks
    check_split(entries)


def test_different_and_trivial_modules_may_be_anywhere(graphs):
    assert len(graphs["trivial"]) < TRIVIAL_NODES
    both = [graphs["trivial"]]
    entries = [
        Taken("a", "train", [graphs["small"], *both]),
        Taken("b", "held-out", [graphs["other"], *both]),
    ]
    assert find_overlaps(entries) == []


# The command; captures go to a directory of the test's own.


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHOPT_CORPUS", str(tmp_path / "corpus"))
    return tmp_path / "corpus"


def test_list(directory, capsys):
    assert main(["corpus", "list", "--split", "held-out", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {row["name"] for row in listed} == set(select_corpus("held-out"))
    assert {row["nodes"] for row in listed} == {None}
    assert not directory.exists(), "listing writes nothing"


def test_list_as_a_table(directory, capsys):
    assert main(["corpus", "list", "game_of_life", "--markdown"]) == 0
    assert "| game_of_life | automata | validation | loops | - |" in capsys.readouterr().out


def test_show_captures_and_stats_count_it(directory, capsys):
    assert main(["corpus", "show", "murmur_hash_lanes", "--json"]) == 0
    (shown,) = [json.loads(capsys.readouterr().out)]
    assert shown["nodes"] > 20
    assert shown["argument_bytes"] == 16 * 65536 * 4
    assert "jit_murmur_hash_lanes" in shown["graphs"][0]
    assert main(["corpus", "stats", "--json"]) == 0
    rows = {row["family"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["integer"]["captured"] == 1
    assert rows["integer"]["nodes_total"] == shown["nodes"]
    assert sum(row["programs"] for row in rows.values()) == len(PROGRAMS)


def test_stats_as_markdown(directory, capsys):
    assert main(["corpus", "stats", "--markdown"]) == 0
    output = capsys.readouterr().out
    assert output.count("\n| ") >= len(load_split())
    assert f"{len(PROGRAMS)} programs in {len(load_split())} families" in output


def test_capture_check_and_verify(directory, capsys):
    names = ["modular_power", "fft_long_convolution"]
    assert main(["corpus", "capture", *names, "--json", "--workers", "1"]) == 0
    assert sorted(json.loads(capsys.readouterr().out)["captured"]) == sorted(names)
    assert main(["corpus", "check", *names]) == 0
    assert "0 modules in two splits" in capsys.readouterr().out
    assert main(["corpus", "verify", names[0], "--workers", "1"]) == 0
    assert "0 failed or different" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list", "nonsense"], "no program nonsense"),
        (["show"], "no program is named"),
        (["list", "game_of_life", "--split", "train"], "no program is left"),
        (["capture", "modular_power", "--workers", "0"], "Use one"),
    ],
)
def test_mistakes_are_one_line(directory, capsys, arguments, message):
    assert main(["corpus", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
