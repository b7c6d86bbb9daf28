"""A placement of equations -> segments: pieces of the program that run on one device in one go.

Two equations of one device share a segment if they have the same *level* (switches of device on the
longest path that leads to them) and the same *height* (switches on the longest path that leads away).
Along every edge within a device the level does not fall and the height does not rise, and along every
edge between devices the level rises, so segments sorted by (level, -height) are in a valid order, whatever
the placement: no cycles, hence no deadlock. The height keeps what other devices wait for apart from
what only this device needs; without it a device would finish everything before it sends anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from graphopt.placement.build import Traced

MAX_MERGES: Final = 256
"""Merges per cut; each looks at the whole program."""


@dataclass(frozen=True)
class Segment:
    """Equations that run together on one device.

    Attributes:
        device: index of the device.
        equations: equation numbers, ascending; replicated ones included.
        inputs: value numbers it takes, ascending.
        outputs: value numbers that other segments or the program's results need, ascending.
        sends: (device, value numbers) that are copied there as soon as the segment has been started.
    """

    device: int
    equations: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    sends: tuple[tuple[int, tuple[int, ...]], ...] = ()


@dataclass(frozen=True)
class Cut:
    """A whole program as segments, in an order in which they can be started.

    Attributes:
        segments: in that order.
        arguments: (device, value numbers) of arguments and constants needed there.
        devices: number of devices.
    """

    segments: tuple[Segment, ...]
    arguments: tuple[tuple[int, tuple[int, ...]], ...]
    devices: int

    @property
    def used_devices(self) -> int:
        """Devices that run at least one segment."""
        return len({segment.device for segment in self.segments})

    @property
    def copied_values(self) -> int:
        """Values that travel between devices in each run, arguments not counted."""
        return sum(len(values) for s in self.segments for _, values in s.sends)


@dataclass
class _Group:
    device: int
    key: tuple[int, int]
    equations: list[int] = field(default_factory=list)
    seconds: float = 0.0


def cut(
    traced: Traced,
    device: Sequence[int],
    *,
    seconds: Sequence[float] | None = None,
    worth_s: float = 0.0,
    home: int = 0,
) -> Cut:
    """Cuts a program along a placement.

    Args:
        traced: the program.
        device: device of every equation; those of replicated equations do not count.
        seconds: time of every equation; with it, neighbouring segments are merged where one of them is
            shorter than `worth_s` and no other device has to wait in between.
        worth_s: seconds that a segment must last to be worth starting.
        home: device where the results of the program go.
    """
    groups = _group(traced, device)
    if seconds is not None:
        for group in groups:
            group.seconds = sum(seconds[e] for e in group.equations)
        groups = _merge(traced, groups, worth_s)
    return _finish(traced, groups, max([*device, home, 0]) + 1, home)


def _group(traced: Traced, device: Sequence[int]) -> list[_Group]:
    program = traced.program
    maker: dict[int, int] = {}
    level = [0] * len(program.equations)
    for number, equation in enumerate(program.equations):
        if number in traced.replicated:
            continue
        for value in equation.used:
            source = maker.get(value)
            if source is not None:
                step = level[source] + (device[source] != device[number])
                level[number] = max(level[number], step)
        maker.update(dict.fromkeys(equation.outputs, number))
    height = [0] * len(program.equations)
    for number in range(len(program.equations) - 1, -1, -1):
        if number in traced.replicated:
            continue
        for value in program.equations[number].used:
            source = maker.get(value)
            if source is not None:
                step = height[number] + (device[source] != device[number])
                height[source] = max(height[source], step)
    groups: dict[tuple[int, int, int], _Group] = {}
    for number in range(len(program.equations)):
        if number not in traced.replicated:
            key = (level[number], -height[number], device[number])
            group = groups.setdefault(key, _Group(device[number], key[:2]))
            group.equations.append(number)
    return [groups[key] for key in sorted(groups)]


def _dependencies(traced: Traced, groups: list[_Group]) -> list[set[int]]:
    """Groups that each group needs directly."""
    owner: dict[int, int] = {}
    for index, group in enumerate(groups):
        for number in group.equations:
            owner.update(dict.fromkeys(traced.program.equations[number].outputs, index))
    needs: list[set[int]] = []
    for index, group in enumerate(groups):
        used = (v for n in group.equations for v in traced.program.equations[n].used)
        needs.append({owner[v] for v in used if v in owner} - {index})
    return needs


def _merge(traced: Traced, groups: list[_Group], worth_s: float) -> list[_Group]:
    """Joins short segments with neighbours on their device where that costs no overlap and no cycle."""
    for _ in range(MAX_MERGES):
        found = _find_merge(_dependencies(traced, groups), groups, worth_s)
        if found is None:
            break
        earlier, later, at_later = found
        first, second = groups[earlier], groups[later]
        first.equations = sorted([*first.equations, *second.equations])
        first.seconds += second.seconds
        del groups[later]
        if at_later:
            del groups[earlier]
            groups.insert(later - 1, first)
    return groups


def _find_merge(
    needs: list[set[int]], groups: list[_Group], worth_s: float
) -> tuple[int, int, bool] | None:
    """The first pair to join: (earlier, later, whether it takes the later one's place)."""
    device = [g.device for g in groups]
    last: dict[int, int] = {}
    for later, group in enumerate(groups):
        earlier = last.get(group.device)
        last[group.device] = later
        if earlier is None or min(groups[earlier].seconds, group.seconds) >= worth_s:
            continue
        # Others that wait for the earlier one would wait for the later one too, and the earlier one
        # would wait for what the later one gets from others.
        waited_for = any(
            earlier in needs[k] and device[k] != group.device for k in range(len(groups))
        )
        waits = any(device[k] != group.device for k in needs[later])
        if (waited_for and group.seconds >= worth_s) or (
            waits and groups[earlier].seconds >= worth_s
        ):
            continue
        between = range(earlier + 1, later)
        if all(not _reaches(needs, k, later) for k in between):
            return earlier, later, False
        if all(not _reaches(needs, earlier, k) for k in between):
            return earlier, later, True
    return None


def _reaches(needs: list[set[int]], source: int, target: int) -> bool:
    """Whether `target` needs `source`, directly or not; indices are in a valid order."""
    seen, stack = set(), [target]
    while stack:
        for need in needs[stack.pop()]:
            if need == source:
                return True
            if need > source and need not in seen:
                seen.add(need)
                stack.append(need)
    return False


def _finish(traced: Traced, groups: list[_Group], devices: int, home: int) -> Cut:
    program = traced.program
    made_in: dict[int, int] = {}
    for index, group in enumerate(groups):
        for number in group.equations:
            made_in.update(dict.fromkeys(program.equations[number].outputs, index))
    copies = _replicas(traced)
    closed = [sorted(_with_replicas(traced, g.equations, copies)) for g in groups]
    home_only = [v for v in program.outputs if isinstance(v, int)]
    wanted: dict[int, set[int]] = {}  # value -> groups that take it from outside
    inputs = []
    for index, numbers in enumerate(closed):
        own = {v for n in numbers for v in program.equations[n].outputs}
        taken = {v for n in numbers for v in program.equations[n].used} - own
        inputs.append(tuple(sorted(taken)))
        for value in taken:
            wanted.setdefault(value, set()).add(index)
    segments = []
    for index, group in enumerate(groups):
        own = {v for n in group.equations for v in program.equations[n].outputs}
        targets: dict[int, set[int]] = {}
        exported = set()
        for value in own:
            homes = {groups[g].device for g in wanted.get(value, ())}
            if value in wanted:
                exported.add(value)
            if value in home_only:
                exported.add(value)
                homes.add(home)
            for target in homes - {group.device}:
                targets.setdefault(target, set()).add(value)
        sends = tuple((d, tuple(sorted(targets[d]))) for d in sorted(targets))
        segments.append(
            Segment(
                group.device, tuple(closed[index]), inputs[index], tuple(sorted(exported)), sends
            )
        )
    arguments: dict[int, set[int]] = {}
    for index, group in enumerate(groups):
        outside = {v for v in inputs[index] if v < program.inputs}
        arguments.setdefault(group.device, set()).update(outside)
    arguments.setdefault(home, set()).update(v for v in home_only if v < program.inputs)
    segments.extend(_loose_results(traced, copies, home))
    return Cut(
        tuple(segments),
        tuple((d, tuple(sorted(v))) for d, v in sorted(arguments.items()) if v),
        devices,
    )


def _replicas(traced: Traced) -> dict[int, int]:
    """Value number -> replicated equation that makes it."""
    equations = traced.program.equations
    return {v: n for n in traced.replicated for v in equations[n].outputs}


def _with_replicas(traced: Traced, numbers: Sequence[int], copies: dict[int, int]) -> set[int]:
    found, stack = set(numbers), list(numbers)
    while stack:
        for value in traced.program.equations[stack.pop()].used:
            number = copies.get(value)
            if number is not None and number not in found:
                found.add(number)
                stack.append(number)
    return found


def _loose_results(traced: Traced, copies: dict[int, int], home: int) -> list[Segment]:
    """A segment for results of the program that are themselves replicated constants."""
    values = sorted({v for v in traced.program.outputs if isinstance(v, int) and v in copies})
    if not values:
        return []
    numbers = _with_replicas(traced, [copies[v] for v in values], copies)
    return [Segment(home, tuple(sorted(numbers)), (), tuple(values))]
