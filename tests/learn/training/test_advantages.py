"""Advantages and rewards against plain loops."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphopt.learn.config import PPOConfig
from graphopt.learn.training.advantages import BASELINES, advantages, rewards

REWARDS = st.lists(st.floats(-3, 3), min_size=2, max_size=20)


def plain_advantages(values, expected, config):
    """The definition, one number at a time."""
    baseline = {"greedy": values[0], "value": expected, "mean": sum(values) / len(values)}
    differences = [value - baseline[config.baseline] for value in values]
    spread = math.sqrt(sum(d * d for d in differences[1:]) / (len(values) - 1))
    out = []
    for index, difference in enumerate(differences):
        scaled = 0.0 if index == 0 else difference / max(spread, config.min_spread)
        out.append(min(max(scaled, -config.advantage_clip), config.advantage_clip))
    return out


@given(values=REWARDS, expected=st.floats(-2, 2), baseline=st.sampled_from(sorted(BASELINES)))
def test_advantages_against_a_loop(values, expected, baseline):
    config = PPOConfig(baseline=baseline)
    found = advantages(np.array(values), expected, config)
    assert found == pytest.approx(plain_advantages(values, expected, config), abs=1e-9)


@given(values=REWARDS, scale=st.floats(1.0, 100.0))
def test_advantages_do_not_depend_on_the_scale_of_clear_differences(values, scale):
    config = PPOConfig(baseline="greedy", min_spread=1e-12)
    values = np.round(np.array(values), 3)
    one = advantages(values, 0.0, config)
    assert one == pytest.approx(advantages(values * scale, 0.0, config), abs=1e-6)


def test_noise_is_not_blown_up():
    config = replace(PPOConfig(), min_spread=0.02)
    assert np.abs(advantages(np.array([0.0, 1e-4, -1e-4]), 0.0, config)).max() < 0.01


def test_rewards_are_log_speedups_cut_and_failures_fixed():
    seconds = np.array([1.0, 0.5, 2.0, 1e-9, np.nan, 0.0, np.inf])
    found = rewards(seconds, 1.0, clip=3.0, failure=-4.0)
    assert found == pytest.approx([0.0, math.log(2), -math.log(2), 3.0, -4.0, -4.0, -4.0])
