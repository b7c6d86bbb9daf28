"""What depends on several decisions at once, and by which rules it is settled (`Clustering.overrides`)."""

from __future__ import annotations

from typing import Final

SETTLED: Final[dict[str, str]] = {
    "redundant-work": "a fused node would be computed anew far too often; it is written to memory",
    "code-size": "a fused node would be copied too often in one cluster; it is written to memory",
    "cluster-size": "a fused node would make its cluster or the module too large; it is written to memory",
    "library-operation": "the library cannot compute an operand: it is written to memory, or, if it must "
    "stay fused, the cluster goes to the loop generator",
    "read-from-memory": "an operand fused into what no cluster computes is written to memory",
    "in-place-order": "an operand would be read by the kernel that overwrites what it reads; it is written "
    "to memory",
    "not-in-region": "a native operation that no region can contain keeps its default unit",
    "no-partner": "a root that asks to join, but has no legal partner, keeps a cluster of its own",
    "region-too-small": "native kernels too few to make a region stay kernels",
}
"""Rule name -> what is done. Clusters equal to XLA's own are exempt from those about size and work."""
