"""A pytest plugin: lazy tensors run in the tier that ``GRAPHOPT_LAZY_TIER`` names."""

from __future__ import annotations

import os

import graphopt.lazy as lt

lt.configure(tier=os.environ["GRAPHOPT_LAZY_TIER"], background=False)
