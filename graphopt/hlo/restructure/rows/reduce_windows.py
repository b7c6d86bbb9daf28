"""Reductions: windows that do not overlap, and sums over everything.

XLA's tree rewriting turns a reduction of a large array into a ``reduce-window`` over tiles and a
``reduce`` of what is left; XLA:CPU then emits the window as scalar code. Two replacements:

* ``window-reduce``: non-overlapping windows become a reshape and a reduce.
* ``tree-reduce``: a reduction to a scalar becomes a tree of elementwise operations on slices, which
  vectorises, fuses with whatever makes the array, and splits over cores. A ``reduce-window`` in front
  of it is left out.

Both change the order in which elements are combined, as XLA itself does, so that sums of floating-point
numbers agree to rounding. As in XLA, the initial value may enter more than once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.module.proto import DType
from graphopt.hlo.restructure.sites import Candidate, Site
from graphopt.hlo.restructure.writing.blocks import Block
from graphopt.hlo.restructure.writing.inlining import inline, is_elementwise_function
from graphopt.hlo.restructure.writing.values import Value, array_shape

WAYS: Final = 4
"""Parts that one level of a tree combines."""

SMALL: Final = 16
"""A reduction of so few elements stays one."""

RULES: Final = {
    "window-overlaps": "windows overlap, have holes, or lie outside the array",
    "window-result": "the reduction has several results",
    "tree-result": "the reduction keeps dimensions",
    "tree-size": "too few elements for a tree",
    "tree-combiner": "the combiner is not one of the associative operations",
}

_ASSOCIATIVE: Final = frozenset({"add", "multiply", "maximum", "minimum", "and", "or", "xor"})


def is_associative(combiner: Any) -> bool:
    """True for a combiner that is one operation whose order does not matter, but for rounding."""
    opcodes = {i.opcode for i in combiner.instructions} - {"parameter"}
    return is_elementwise_function(combiner) and len(opcodes) == 1 and opcodes <= _ASSOCIATIVE


def forbids_window(candidate: Candidate) -> str | None:
    """Why a reduce-window cannot become a reduce."""
    if candidate.shape.element_type == DType.TUPLE:
        return "window-result"
    if not candidate.has_default_layouts():
        return "layout"
    return None if _tiles(candidate.instruction) else "window-overlaps"


def _tiles(instruction: Any) -> bool:
    """True for windows side by side, at most the first and last of them partly outside."""
    return all(
        w.size == max(w.stride, 1)
        and 0 <= w.padding_low < max(w.size, 1)
        and 0 <= w.padding_high < max(w.size, 1)
        and w.window_dilation <= 1
        and w.base_dilation <= 1
        and not w.window_reversal
        for w in instruction.window.dimensions
    )


def expand_window(site: Site) -> Value:
    """Pads, splits every dimension into windows, and reduces over the windows."""
    block = site.block
    x, init = site.operands
    sizes = [w.size for w in site.instruction.window.dimensions]
    counts = list(site.instruction.shape.dimensions)
    whole = [c * s for c, s in zip(counts, sizes, strict=True)]
    low = [w.padding_low for w in site.instruction.window.dimensions]
    # Windows need not reach the end of the array.
    kept = [min(n, w - p) for n, w, p in zip(x.dims, whole, low, strict=True)]
    x = padded(block, block.slice(x, [0] * len(kept), kept), init, whole, low)
    split = [n for pair in zip(counts, sizes, strict=True) for n in pair]
    inside = [2 * d + 1 for d in range(len(sizes))]
    function = site.instruction.called_computation_ids[0]
    return block.reduce(block.bitcast(x, split), init, inside, function, x.dtype)


def padded(block: Block, x: Value, init: Value, dims: Sequence[int], low: Sequence[int]) -> Value:
    """`x` grown to `dims` with `init`, so many elements of it in front."""
    if tuple(dims) == x.dims:
        return x
    out = block.add("pad", array_shape(x.dtype, dims), (x, init))
    for have, want, front in zip(x.dims, dims, low, strict=True):
        block.protos[-1].padding_config.dimensions.add(
            edge_padding_low=front, edge_padding_high=want - have - front
        )
    return out


def forbids_tree(candidate: Candidate) -> str | None:
    """Why a reduce cannot become a tree."""
    if candidate.shape.element_type == DType.TUPLE:
        return "window-result"
    if candidate.shape.dimensions:
        return "tree-result"
    source = source_node(candidate)
    if candidate.graph.elements[source] <= SMALL:
        return "tree-size"
    if not is_associative(candidate.applied):
        return "tree-combiner"
    own = Candidate(candidate.graph, source).shape
    return None if candidate.has_default_layouts() and _row_major(own) else "layout"


def _row_major(shape: Any) -> bool:
    rank = len(shape.dimensions)
    return list(shape.layout.minor_to_major) == list(range(rank - 1, -1, -1))


def source_node(candidate: Candidate) -> int:
    """The node that a reduction reduces, behind a reduce-window of its kind from the same initial value."""
    graph, node = candidate.graph, candidate.operands[0]
    if graph.ops[node].name != "reduce-window":
        return node
    window = Candidate(graph, node)
    same = _function_key(candidate.applied) == _function_key(window.applied)
    same = same and _is_same_number(graph, candidate.operands[1], window.operands[1])
    simple = forbids_window(window) is None and _covers(window)
    return window.operands[0] if same and simple else node


def _covers(window: Candidate) -> bool:
    """True if every element is in a window."""
    shape = window.operand_shape(0)
    return _all_inside(window.instruction, list(shape.dimensions), window.shape)


def _all_inside(instruction: Any, dims: Sequence[int], result: Any) -> bool:
    windows = instruction.window.dimensions
    return all(
        count * w.size >= w.padding_low + n
        for count, w, n in zip(result.dimensions, windows, dims, strict=True)
    )


def _function_key(computation: Any) -> tuple[Any, ...]:
    root = next(i for i in computation.instructions if i.id == computation.root_id)
    return root.opcode, root.shape.element_type, len(computation.instructions)


def behind(candidate: Candidate) -> list[int]:
    """Nodes beyond its operands that a reduction reads: what a reduce-window in front of it reads."""
    source = source_node(candidate)
    return [] if source == candidate.operands[0] else [source]


def expand_tree(site: Site) -> Value:
    """Combines slices of the outermost dimension, then of the flattened rest, until little is left."""
    block, init, combiner = site.block, site.operands[1], site.applied
    x = reduced_value(site)
    x = _level(block, x, init, combiner, _first_cut(x.dims))
    while prod(x.dims) > SMALL:
        x = block.bitcast(x, (prod(x.dims),))
        x = _level(block, x, init, combiner, 0)
    function = site.instruction.called_computation_ids[0]
    return block.reduce(x, init, list(range(len(x.dims))), function, x.dtype)


def _first_cut(dims: Sequence[int]) -> int:
    """The outermost dimension that divides into `WAYS` parts, the innermost aside; else the outermost.

    The last part of another would be padded, which asks for every element whether it is there. The innermost
    stays whole, so that loops over it are long.
    """
    wide = [d for d, n in enumerate(dims) if n > 1]
    return next((d for d in wide[:-1] if dims[d] % WAYS == 0), wide[0])


def reduced_value(site: Site) -> Value:
    """What a reduction reduces, a reduce-window in front of it left out."""
    x = site.operands[0]
    window = site.producer(x)
    if window is None or window.instruction.opcode != "reduce-window":
        return x
    whole = _merged(site, window)
    return x if whole is None else whole


def _merged(site: Site, window: Site) -> Value | None:
    """What the reduce-window in front of a reduction reads, if that may be read instead."""
    if not _tiles(window.instruction):
        return None
    source = window.operands[0]
    covers = _all_inside(window.instruction, source.dims, window.instruction.shape)
    same = _function_key(site.applied) == _function_key(window.applied)
    same = same and _is_same(site, site.operands[1], window.operands[1])
    return source if covers and same and _row_major(source.shape) else None


def _is_same_number(graph: Graph, one: int, other: int) -> bool:
    """True for one node, and for two constants that are equal."""
    constants = all(graph.ops[node].name == "constant" for node in (one, other))
    protos = graph.source.protos
    return one == other or (constants and protos[one].literal == protos[other].literal)


def _is_same(site: Site, one: Value, other: Value) -> bool:
    """The same of values."""
    known = site.instructions | {p.id: p for p in site.block.protos}
    protos = [known[value.id] for value in (one, other)]
    constants = all(proto.opcode == "constant" for proto in protos)
    return one.id == other.id or (constants and protos[0].literal == protos[1].literal)


def _level(block: Block, x: Value, init: Value, combiner: Any, dimension: int) -> Value:
    """One level: up to `WAYS` slices along a dimension, combined pairwise."""
    extent = x.dims[dimension]
    ways = next(w for w in range(min(WAYS, extent), 0, -1) if extent % w <= extent // w)
    part = extent // ways
    slices = [part_of(block, x, dimension, k * part, (k + 1) * part) for k in range(ways)]
    rest = extent - ways * part
    if rest:
        last = part_of(block, x, dimension, ways * part, extent)
        slices.append(padded(block, last, init, slices[0].dims, [0] * len(x.dims)))
    return combined(block, combiner, slices)


def combined(block: Block, combiner: Any, values: Sequence[Value]) -> Value:
    """Values of one shape, combined pairwise."""
    left = list(values)
    while len(left) > 1:
        pairs = [left[i : i + 2] for i in range(0, len(left), 2)]
        left = [inline(block, combiner, p)[0] if len(p) > 1 else p[0] for p in pairs]
    return left[0]


def part_of(block: Block, x: Value, dimension: int, start: int, stop: int) -> Value:
    """Elements of an array along one dimension."""
    starts, limits = [0] * len(x.dims), list(x.dims)
    starts[dimension], limits[dimension] = start, stop
    return block.slice(x, starts, limits)
