"""The inverse of the error function of double precision in vector code.

Giles' polynomials (2012), as XLA has them, with a logarithm in vector code. All of it must be traced under
``jax.enable_x64(True)``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from jax import lax

from graphopt.forms.doubles.logarithms import logarithm_of_one_more
from graphopt.forms.functions.widening import where

_CENTRE: Final = (
    1.6536545626831027, 0.24015818242558962, -0.006033670871430149, -0.000740702534166267,
    0.00018673420803405714, -1.3882523362786469e-05, -1.3654692000834679e-06,
    4.2347877827932404e-07, -2.9070369957882005e-08, -4.112633980346984e-09,
    1.0512122733215323e-09, -5.415412054294628e-11, -1.2975133253453532e-11,
    2.6335093153082323e-12, -8.151934197605472e-14, -4.054566272975207e-14, 6.637638134358324e-15,
    2.0972767875968562e-17, -1.333171662854621e-16, 1.1157877678025181e-17, 1.28584807152564e-18,
    -1.6850591381820166e-19, -3.64441206401782e-21,
)  # fmt: skip
"""erfinv(x) / x in w - 3.125 for w = -log(1 - x^2) below 6.25."""
_SIDES: Final = (
    3.0838856104922208, 1.0052589676941592, 0.005370914553590064, -0.003751208507569241,
    0.002491442096107851, -0.0016882755560235047, 0.0009532893797373805, -0.0003550375203628475,
    2.4031110387097894e-05, 6.828485145957318e-05, -4.7318229009055734e-05,
    1.2475304481671779e-05, 2.9234449089955446e-06, -4.013867526981546e-06, 1.5027403968909828e-06,
    1.8239629214389228e-08, -2.7517406297064545e-07, 9.075656193888539e-08, 2.2137376921775787e-09,
)  # fmt: skip
"""The same in sqrt(w) - 3.25 for w below 16."""
_ENDS: Final = (
    4.849906401408584, 1.0103004648645344, -0.00013871931833623122, -0.00021503011930044477,
    7.599527703001776e-05, -1.968177810553167e-05, 4.526062597223154e-06, -9.9298272942317e-07,
    2.2900482228026655e-07, -6.771199775845234e-08, 2.914795345090108e-08, -1.496002662714924e-08,
    7.61570120807834e-09, -3.789465440126737e-09, 1.5076572693500548e-09, -2.555641816996525e-10,
    -2.7109920616438573e-11, 0.0, 0.0,
)  # fmt: skip
"""The same in sqrt(w) - 5 beyond."""


def inverse_error_function(x: Any) -> Any:
    """erfinv(x) of a float64 array; infinite at one and minus one, no number beyond."""
    w = -logarithm_of_one_more(-(x * x))
    centre, side = w < 6.25, w < 16.0
    t = where(centre, w - 3.125, lax.sqrt(w) - where(side, 3.25, 5.0))
    near = lax.full_like(t, _CENTRE[-1])
    for c in reversed(_CENTRE[:-1]):
        near = near * t + c
    far = where(side, _SIDES[-1], _ENDS[-1])
    for one, other in zip(reversed(_SIDES[:-1]), reversed(_ENDS[:-1]), strict=True):
        far = far * t + where(side, one, other)
    return lax.select(lax.abs(x) == 1.0, x * np.inf, lax.select(centre, near, far) * x)
