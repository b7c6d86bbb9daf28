"""What the kernel that overwrites a buffer must not compute itself, as that reads the buffer elsewhere."""

from __future__ import annotations

from functools import cached_property

from graphopt.hlo.graph.derived import per_graph
from graphopt.hlo.graph.graph import Graph


class Overwritten:
    """In-place promises as one decision vector sees them.

    XLA has proved of the kernel that it made itself that no element is read after it is written. Nothing
    is known of what else would become part of that kernel.
    """

    def __init__(self, graph: Graph, fuse: list[bool]) -> None:
        """`fuse` [N]: True where a node is part of its users' kernels."""
        self.graph = graph
        self.fuse = fuse
        self.by_root = _promises_by_root(graph)

    def keeps_out(self, root: int, node: int) -> bool:
        """True if the kernel of `root` overwrites what `node`, with all that is fused into it, reads."""
        promises = self.by_root.get(root, 0)
        if not promises:
            return False
        foreign = promises & ~self.graph.in_place.zone[node]
        return bool(foreign and foreign & self._carried[node])

    @cached_property
    def _carried(self) -> list[int]:
        """Per node, bit set of the promises whose source it reads, itself or through fused operands."""
        carried = list(self.graph.in_place.reads)
        for node, operands in enumerate(self.graph.operand_lists):
            for operand in operands:
                if self.fuse[operand]:
                    carried[node] |= carried[operand]
        return carried


@per_graph
def _promises_by_root(graph: Graph) -> dict[int, int]:
    """Root of a kernel that may overwrite a buffer -> bit set of the promises that it then fulfils.

    A kernel that ends with a bitcast by XLA's decision may end in front of it (`joins.writing_item`).
    """
    found: dict[int, int] = {}
    for writers in graph.in_place.writer:
        for bit, writer in enumerate(writers):
            node = writer
            found[node] = found.get(node, 0) | (1 << bit)
            while graph.ops[node].name == "bitcast":
                (node,) = graph.operand_lists[node]
                found[node] = found.get(node, 0) | (1 << bit)
    return found
