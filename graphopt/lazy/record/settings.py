"""What users can set: tiers, limits, strictness, logging."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from graphopt.errors import ConfigError
from graphopt.lazy.record import recorder, traces

_CHOICES: Final[dict[str, tuple[Any, ...]]] = {
    "tier": ("auto", "op-by-op", "compiled"),
    "background": (True, False),
    "on_cut": ("silent", "warn", "raise"),
    "sync_live": (True, False),
    "log": (True, False),
    "replay": (True, False),
    "batch_steps": (True, False, "at once"),
}
_NUMBERS: Final = ("compile_after", "trace_limit", "step_limit")


class Settings:
    """Process-wide settings of the lazy runtime.

    Attributes:
        tier: ``auto`` runs a graph op by op at first and compiles it when it is seen again;
            ``op-by-op`` never compiles; ``compiled`` compiles at once.
        compile_after: sighting at which a graph is compiled.
        background: compile beside the program, which goes on op by op meanwhile.
        on_cut: what an observation that has to run a graph does besides: nothing, warn once per
            line, or raise `CutForbiddenError`.
        sync_live: an observation also computes other live tensors that share work with it.
        log: one log line per graph (logger ``graphopt.lazy``).
        batch_steps: small steps that repeat wait for each other and run together, after some hundred
            of them; ``at once`` lets them from the second on.
    """

    tier: str = "auto"
    compile_after: int = 2
    background: bool = True
    on_cut: str = "silent"
    sync_live: bool = True
    log: bool = False
    batch_steps: bool | str = True


settings: Final = Settings()


def _owner(name: str) -> Any:
    return recorder.settings if name.endswith("_limit") or name == "replay" else settings


def _get(name: str) -> Any:
    return getattr(_owner(name), name)


def _set(name: str, value: Any) -> None:
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            raise ConfigError(
                what=f"{name}={value!r}", where="lt.config", fix=f"Use one of {_CHOICES[name]}."
            )
    elif name in _NUMBERS:
        if not isinstance(value, int) or value < 1:
            raise ConfigError(
                what=f"{name}={value!r}", where="lt.config", fix="Use a positive integer."
            )
    else:
        raise ConfigError(
            what=f"there is no setting {name!r}",
            where="lt.config",
            fix=f"Use {', '.join([*_CHOICES, *_NUMBERS])}.",
        )
    setattr(_owner(name), name, value)
    if name == "trace_limit":
        recorder.state.now.limit = value
    if _owner(name) is recorder.settings:
        traces.tree.clear()  # what is known ends where the old limits did
        recorder.state.now.leave()


def configure(**values: Any) -> None:
    """Sets settings for good; see `config`."""
    for name, value in values.items():
        _set(name, value)


@contextmanager
def config(**values: Any) -> Iterator[None]:
    """Changes settings inside a block, for all threads: ``with lt.config(tier="compiled"): ...``.

    Args:
        **values: attributes of `Settings`, and ``trace_limit`` and ``step_limit``, the recorded
            operations that cause an automatic cut outside and inside of a step, and ``replay``:
            recordings follow what was recorded before.

    Raises:
        ConfigError: no such setting, or not one of its values.
    """
    before = {name: _get(name) for name in values if name in (*_CHOICES, *_NUMBERS)}
    try:
        configure(**values)
        yield
    finally:
        configure(**before)
