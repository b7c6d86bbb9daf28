"""Explanations as a picture: one bar of clusters per side, as long as its time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from graphopt.extras import require
from graphopt.machine import UnitKind
from graphopt.render.modules import ModuleExplanation
from graphopt.render.parts import NO_REGION, Side, time_text

COLORS = {
    UnitKind.LOOP: "#4477aa",
    UnitKind.LIBRARY: "#228833",
    UnitKind.RUNTIME: "#aa7722",
    UnitKind.NATIVE: "#aa3377",
}
"""Colour of each kind of unit, told apart by readers who see colours differently too."""

SIZE_INCHES = (9.0, 3.0)
DPI = 100


def explanation_image(modules: Sequence[ModuleExplanation]) -> NDArray[np.uint8]:
    """uint8 [300, 900, 3]; the first module, or an empty frame if there is none.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    require("an explanation as a picture", "plots")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE_INCHES, dpi=DPI)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0.09, 0.24, 0.88, 0.6))
    if modules:
        _draw(axes, modules[0])
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())
    return np.ascontiguousarray(pixels[:, :, :3])


def _draw(axes: object, module: ModuleExplanation) -> None:
    from matplotlib.axes import Axes
    from matplotlib.patches import Patch

    assert isinstance(axes, Axes)
    for height, side in ((1.0, module.default), (0.0, module.chosen)):
        _bar(axes, module, side, height)
    longest = max(module.default.seconds, module.chosen.seconds, 1e-12)
    axes.set_xlim(0.0, longest * 1e6)
    axes.set_ylim(-0.1, 1.9)
    axes.set_yticks([0.4, 1.4], ["chosen", "default"])
    axes.set_xlabel(f"microseconds per run ({module.clock})")
    axes.set_title(
        f"{module.name[:60]}: {time_text(module.default.seconds)} -> "
        f"{time_text(module.chosen.seconds)} ({module.speedup:.2f}x)",
        fontsize=10,
    )
    patches = [Patch(color=color, label=kind.value) for kind, color in COLORS.items()]
    axes.legend(handles=patches, loc="upper right", fontsize=7, ncols=len(patches))


def _bar(axes: object, module: ModuleExplanation, side: Side, height: float) -> None:
    from matplotlib.axes import Axes

    assert isinstance(axes, Axes)
    spans: dict[UnitKind, list[tuple[float, float]]] = {}
    start = 0.0
    for part in side.parts:
        kind = module.graph.units[part.unit].kind
        if part.region != NO_REGION:
            kind = UnitKind.NATIVE
        spans.setdefault(kind, []).append((start, part.seconds * 1e6))
        start += part.seconds * 1e6
    for kind, found in spans.items():
        axes.broken_barh(found, (height, 0.8), color=COLORS[kind], edgecolor="white", linewidth=0.3)
