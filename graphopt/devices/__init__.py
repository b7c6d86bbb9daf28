"""Several devices: cutting programs, running the pieces, measuring the machine, `place`."""

from graphopt.devices.calibrate import calibrate
from graphopt.devices.options import Options
from graphopt.devices.place import Placed, Plan, place
from graphopt.devices.runtime import PlacedProgram
from graphopt.devices.segments import Cut, Segment, cut

__all__ = [
    "Cut",
    "Options",
    "Placed",
    "PlacedProgram",
    "Plan",
    "Segment",
    "calibrate",
    "cut",
    "place",
]
