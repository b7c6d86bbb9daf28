"""Timelines: who ran what when, and what travelled; measured or simulated, as SVG and HTML."""

from __future__ import annotations

import html
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import jax

from graphopt.devices.runtime import PlacedProgram
from graphopt.placement.event_loop import Event

_ROW: Final = 26
_LEFT: Final = 120
_WIDTH: Final = 1000
_COLOURS: Final = (
    "#4878a8",
    "#d58936",
    "#5a9f62",
    "#b04a5a",
    "#7a68a6",
    "#8a6d4b",
    "#c979a6",
    "#777",
)


def measure_events(program: PlacedProgram, arguments: Sequence[Any]) -> list[Event]:
    """Runs once and notes when each segment and each copy was there.

    One thread per device waits for its results in the order in which they were started. A segment is
    taken to begin when its device was free and the host had started it; how long it waited for inputs
    from other devices shows as time in which the device has nothing done.
    """
    jax.block_until_ready(program(arguments))
    origin = time.perf_counter()
    segments = program.cut.segments
    queues: dict[int, SimpleQueue[Any]] = {s.device: SimpleQueue() for s in segments}
    rows: dict[int, list[tuple[int, str, float, float]]] = {d: [] for d in queues}

    def wait(device: int) -> None:
        while (item := queues[device].get()) is not None:
            number, kind, started, arrays = item
            jax.block_until_ready(arrays)
            rows[device].append((number, kind, started, time.perf_counter() - origin))

    threads = [threading.Thread(target=wait, args=(d,), daemon=True) for d in queues]
    for thread in threads:
        thread.start()

    before = 0.0  # when the host turned to what it reports next

    def watch(number: int, kind: str, arrays: Any) -> None:
        nonlocal before
        queues[segments[number].device].put((number, kind, before, arrays))
        before = time.perf_counter() - origin

    try:
        results = program.run(arguments, watch)
    finally:
        for queue in queues.values():
            queue.put(None)
    for thread in threads:
        thread.join()
    jax.block_until_ready(results)
    return _as_events(program, rows)


def _as_events(
    program: PlacedProgram, rows: dict[int, list[tuple[int, str, float, float]]]
) -> list[Event]:
    events = []
    for device, items in rows.items():
        free = 0.0
        for number, kind, started, ended in items:
            begin = min(max(free, started), ended)
            sends = program.cut.segments[number].sends
            if kind == "run":
                events.append(Event(begin, ended, device, None, f"segment {number}"))
                free = ended
            elif sends:
                to = sends[0][0]
                events.append(Event(begin, ended, device, to, f"results of segment {number}", 1))
    return sorted(events, key=lambda e: e.start_s)


def to_svg(events: Sequence[Event], names: Sequence[str], title: str) -> str:
    """One row per device, and one for what each device sends.

    Args:
        events: computations and transfers.
        names: of the devices.
        title: printed above.
    """
    end = max((e.end_s for e in events), default=0.0) or 1.0
    height = _ROW * (2 * len(names) + 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 20}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<text x="4" y="16" font-weight="bold">{html.escape(title)}: {end * 1e3:.3f} ms</text>',
    ]
    for device, name in enumerate(names):
        top = _ROW * (2 * device + 1)
        parts.append(f'<text x="4" y="{top + 17}">{html.escape(name)}</text>')
        parts.append(f'<text x="24" y="{top + _ROW + 15}" fill="#666">sends</text>')
        parts.append(
            f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{top + _ROW - 2}" y2="{top + _ROW - 2}" '
            'stroke="#ddd"/>'
        )
    parts += [_bar(event, end, names) for event in events]
    parts += [_tick(k, end, height) for k in range(6)]
    return "\n".join([*parts, "</svg>"])


def _bar(event: Event, end: float, names: Sequence[str]) -> str:
    x = _LEFT + _WIDTH * event.start_s / end
    width = max(0.5, _WIDTH * (event.end_s - event.start_s) / end)
    sending = event.to is not None
    top = _ROW * (2 * event.device + 1) + (_ROW + 4 if sending else 3)
    colour = _COLOURS[(event.device if event.to is None else event.to) % len(_COLOURS)]
    label = f"{event.label}, {(event.end_s - event.start_s) * 1e3:.4f} ms"
    if event.to is not None:
        label += f", to {names[event.to]}"
    return (
        f'<rect x="{x:.2f}" y="{top}" width="{width:.2f}" height="{8 if sending else _ROW - 8}" '
        f'fill="{colour}" stroke="#fff" stroke-width="0.4"><title>{html.escape(label)}</title></rect>'
    )


def _tick(number: int, end: float, height: int) -> str:
    x = _LEFT + _WIDTH * number / 5
    return (
        f'<text x="{x:.0f}" y="{height - 6}" text-anchor="middle" fill="#666">'
        f"{end * 1e3 * number / 5:.2f} ms</text>"
    )


def save_html(path: Path, drawings: Sequence[str], title: str) -> None:
    """Writes drawings of `to_svg` below each other into one self-contained page."""
    body = "\n".join(f"<div>{drawing}</div>" for drawing in drawings)
    path.write_text(
        f"<!doctype html><meta charset='utf-8'><title>{html.escape(title)}</title>"
        f"<h1 style='font:bold 18px sans-serif'>{html.escape(title)}</h1>\n{body}\n"
    )
