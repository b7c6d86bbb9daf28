"""What is computed of turned products, turned in the module that is edited, before anything is replaced."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.replace.apart import Apart
from graphopt.hlo.restructure.rows.turned.regions import Region, region_of
from graphopt.hlo.restructure.table import RESTRUCTURES
from graphopt.hlo.restructure.writing.turning import turn


def turned(graph: Graph, codes: NDArray[np.int8], apart: Apart) -> Apart:
    """The module with all that is turned in its new order, but for the products, which are written later."""
    products = [n for n in np.flatnonzero(codes).tolist() if RESTRUCTURES[int(codes[n])].turns]
    if not products:
        return apart
    values = set[int]()
    for node in products:
        region = region_of(graph, node)
        assert isinstance(region, Region)
        values.update(region.dots, region.inside)
    places = {place for place, node in apart.origins.items() if node in values}
    by_id = {computation.id: computation for computation in apart.computations}
    changed = turn(by_id, places)
    return replace(
        apart,
        computations=[changed.get(c.id, c) for c in apart.computations],
        known={number: known for number, known in apart.known.items() if number not in changed},
    )
