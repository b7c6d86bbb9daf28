"""Where in the user's source an operation comes from, read from HLO metadata.

JAX records for every operation a stack of frames, innermost first by the parent links; ids count
from 1, 0 meaning none. The user's own line is the innermost frame outside of installed packages.
"""

from __future__ import annotations

import linecache
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.module.proto import OpMetadata, StackFrameIndexProto

_PACKAGES: Final = ("site-packages", "dist-packages")
MAX_FRAMES: Final = 64


@dataclass(frozen=True)
class SourceLine:
    """One line of source.

    Attributes:
        file: path as JAX recorded it.
        line: counting from 1.
        function: name of the function it is in; empty if unknown.
    """

    file: str
    line: int
    function: str

    @property
    def text(self) -> str:
        """The line itself, stripped; empty where the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        """``file.py:12``, the file without its directory."""
        return f"{Path(self.file).name}:{self.line}"


class ModuleLines:
    """Source lines of a module's instructions."""

    def __init__(self, proto: Any) -> None:
        """Reads the module's table of frames.

        Args:
            proto: the ``HloModuleProto``.
        """
        self._index: Any = StackFrameIndexProto.FromString(proto.stack_frame_index)
        self._known: dict[int, SourceLine | None] = {}

    def read(self, data: bytes) -> SourceLine | None:
        """The user's line that serialised ``OpMetadata`` names; None where JAX recorded none."""
        if not data:
            return None
        metadata = OpMetadata.FromString(data)
        frame = metadata.stack_frame_id
        if frame not in self._known:
            self._known[frame] = self._line_of_frame(frame)
        found = self._known[frame]
        if found is None and metadata.source_file:
            return SourceLine(metadata.source_file, metadata.source_line, "")
        return found

    def _line_of_frame(self, frame_id: int) -> SourceLine | None:
        frames = self._index.stack_frames
        innermost = None
        for _ in range(MAX_FRAMES):
            if not 0 < frame_id <= len(frames):
                break
            frame = frames[frame_id - 1]
            line = self._location(frame.file_location_id)
            if line is not None and not any(part in line.file for part in _PACKAGES):
                return line
            innermost = innermost or line
            frame_id = frame.parent_frame_id
        return innermost

    def _location(self, number: int) -> SourceLine | None:
        index = self._index
        if not 0 < number <= len(index.file_locations):
            return None
        location = index.file_locations[number - 1]
        if not 0 < location.file_name_id <= len(index.file_names):
            return None
        function = ""
        if 0 < location.function_name_id <= len(index.function_names):
            function = index.function_names[location.function_name_id - 1]
        return SourceLine(index.file_names[location.file_name_id - 1], location.line, function)


class SourceLines:
    """Source lines of a graph's nodes."""

    def __init__(self, graph: Graph) -> None:
        """Reads the table of frames of the graph's module."""
        self.graph = graph
        self._lines = ModuleLines(graph.source.module.proto)

    def of(self, node: int) -> SourceLine | None:
        """The user's line of a node; None where JAX recorded none."""
        return self._lines.read(self.graph.source.protos[node].metadata)


def operation_path(graph: Graph, node: int) -> str:
    """The user's operation name without the outermost ``jit(...)``: ``while/body/add``."""
    name = graph.source_line(node)
    head, slash, rest = name.partition("/")
    return rest if slash and head.startswith("jit(") else name
