"""A run: networks for every fold and variant, their scores on unseen families, the policy of all duels.

Every finished network is kept with what it says of the states that it has not seen, so that a run that was
interrupted goes on behind the last one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from graphopt.errors import ConfigError
from graphopt.learn.advantages.batches import Sizes, sizes_of
from graphopt.learn.advantages.config import AdvantagesConfig
from graphopt.learn.advantages.data import Labelled, folds_of
from graphopt.learn.advantages.fit import Flat, Said, fit, say, together
from graphopt.learn.advantages.scores import Scores, score
from graphopt.learn.advantages.trees import fit_trees
from graphopt.policy.advantages.alternative_columns import SEVERAL
from graphopt.policy.advantages.checkpoint import AdvantageSpec, save_advantages
from graphopt.policy.advantages.config import AdvantageConfig
from graphopt.policy.advantages.decider import Rule

UNITS: Final = "networks"
"""Folder of finished networks."""

POLICY: Final = "policy"
REPORT: Final = "report.json"

ENSEMBLE: Final = "ensemble"
NETWORK: Final = "network"
"""Names of rows of the report: the ensemble, and the one network that it teaches, which is what decides."""

Tell = Callable[[str, int, int, float], None]
"""Told of the network in training, its epoch, all of them, and the loss."""


@dataclass(frozen=True)
class Unit:
    """One network or forest, trained on some states and asked about others.

    Attributes:
        name: of its file.
        train: places of states to learn from.
        judged: places of states that it is asked about.
        model: sizes; None for trees.
        seed: of weights and order.
    """

    name: str
    train: tuple[int, ...]
    judged: tuple[int, ...]
    model: AdvantageConfig | None
    seed: int


class Run:
    """One run in its folder.

    Attributes:
        config: settings.
        states: all that is known.
        out: folder.
    """

    def __init__(
        self, config: AdvantagesConfig, states: Sequence[Labelled], out: Path, tell: Tell
    ) -> None:
        """Draws the folds.

        Raises:
            ConfigError: there are fewer families than folds, or the folder holds a run of other settings or
                duels.
        """
        self.config, self.out, self._tell = config, out, tell
        self.states = list(states)
        self.folds = folds_of(self.states, config.folds, config.seed)
        self._digest = digest_of(config, self.states)
        self._sizes: Sizes = sizes_of(self.states, config.fit)
        self._check_folder()

    def _check_folder(self) -> None:
        path = self.out / UNITS / "run.json"
        if path.exists() and json.loads(path.read_text())["digest"] != self._digest:
            raise ConfigError(
                what="there is a run with other settings or duels",
                where=str(self.out),
                fix="Choose another --out, or remove the folder.",
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"digest": self._digest, "config": asdict(self.config)}) + "\n")

    def judge(self) -> dict[str, Scores]:
        """Scores of every variant on families that it has not seen."""
        said: dict[str, list[Said | None]] = {}
        for fold in range(self.config.folds):
            inside = tuple(np.flatnonzero(self.folds == fold).tolist())
            outside = self._part(np.flatnonzero(self.folds != fold).tolist())
            for name, answers in self._fold(fold, outside, inside).items():
                rows = said.setdefault(name, [None] * len(self.states))
                for place, answer in zip(inside, answers, strict=True):
                    rows[place] = answer
        return {
            name: score(self.states, [answer for answer in rows if answer is not None])
            for name, rows in said.items()
        }

    def _fold(
        self, fold: int, train: tuple[int, ...], judged: tuple[int, ...]
    ) -> dict[str, list[Said]]:
        """What everyone says of one fold."""
        config = self.config
        _, all_said, taught = self._ensemble(f"fold{fold}", train, judged)
        out = {NETWORK: taught, ENSEMBLE: all_said}
        for name in config.variants:
            model = _VARIANTS[name](config.model)
            few = train[::4] if name == "quarter" else train
            unit = Unit(f"fold{fold}-{name}", few, judged, model, config.seed)
            out[name] = self._made(unit)[1]
        return out

    def _ensemble(
        self, name: str, train: tuple[int, ...], judged: tuple[int, ...]
    ) -> tuple[Flat, list[Said], list[Said]]:
        """The one network that an ensemble teaches; what the ensemble and what it say of judged states."""
        config = self.config
        both = tuple(sorted({*train, *judged}))
        answers = []
        for member in range(config.members):
            unit = Unit(f"{name}-{member}", train, both, config.model, config.seed + 1 + member)
            answers.append(self._made(unit)[1])
        mixed = dict(zip(both, together(answers), strict=True))
        unit = Unit(f"{name}-taught", train, judged, config.model, config.seed)
        flat, said = self._made(unit, [mixed[place] for place in train])
        return flat, [mixed[place] for place in judged], said

    def _part(self, places: list[int]) -> tuple[int, ...]:
        """As many of the states as are learned from."""
        rng = np.random.default_rng(self.config.seed)
        count = max(1, round(self.config.data_share * len(places)))
        return tuple(rng.permutation(places)[:count].tolist())

    def _made(self, unit: Unit, taught: Sequence[Said] | None = None) -> tuple[Flat, list[Said]]:
        """Trains a unit, or reads it."""
        path = self.out / UNITS / f"{unit.name}.npz"
        if path.exists():
            return _read(path, unit)
        train = [self.states[place] for place in unit.train]
        judged = [self.states[place] for place in unit.judged]
        flat: Flat = {}
        if unit.model is None:
            self._tell(unit.name, 0, 1, float("nan"))
            said = fit_trees(train, judged, self.config.fit, unit.seed)
        else:
            epochs = self.config.fit.epochs

            def tell(epoch: int, loss: float) -> None:
                """One epoch more."""
                self._tell(unit.name, epoch, epochs, loss)

            flat = fit(
                train, unit.model, self.config.fit, unit.seed, taught, self._sizes, tell
            )  # fmt: skip
            said = say(judged, unit.model, flat)
        _write(path, flat, said)
        return flat, said

    def policy(self, metrics: Mapping[str, float]) -> Path:
        """Trains on all states and writes the policy.

        Args:
            metrics: what is known of such a policy on unseen families.
        """
        everything = self._part(list(range(len(self.states))))
        flat, _, _ = self._ensemble("all", everything, (0,))
        seen = Counter(kind for place in everything for kind in self.states[place].kinds)
        kinds = [k for k, n in seen.items() if n >= self.config.least_seen and k != SEVERAL]
        rule = Rule(self.config.start, self.config.deviations, kinds=tuple(sorted(kinds)))
        spec = AdvantageSpec(
            model=self.config.model,
            rule=rule,
            trained_on=tuple(sorted({self.states[place].family for place in everything})),
            duels=sum(len(self.states[place]) for place in everything),
            metrics={name: value for name, value in metrics.items() if np.isfinite(value)},
        )
        save_advantages(self.out / POLICY, spec, flat)
        return self.out / POLICY

    @property
    def networks(self) -> int:
        """Networks and forests of the whole run."""
        each = self.config.members + 1
        return self.config.folds * (each + len(self.config.variants)) + each


_VARIANTS: Final[dict[str, Callable[[AdvantageConfig], AdvantageConfig | None]]] = {
    "trees": lambda model: None,
    "mlp": lambda model: replace(model, graph=False, attention=False),
    "no-graph": lambda model: replace(model, graph=False),
    "no-attention": lambda model: replace(model, attention=False),
    "quarter": lambda model: model,
}
"""Variant -> its network; None for trees."""


def digest_of(config: AdvantagesConfig, states: Sequence[Labelled]) -> str:
    """Hex digest of settings and duels."""
    digest = hashlib.sha256(json.dumps(dataclasses.asdict(config), sort_keys=True).encode())
    for one in states:
        digest.update(f"{one.task} {one.start} {one.kinds}".encode())
        digest.update(one.target.tobytes())
    return digest.hexdigest()[:16]


def _write(path: Path, flat: Flat, said: Sequence[Said]) -> None:
    """Writes a finished unit; it appears whole or not at all."""
    answers = {
        "mean": np.concatenate([mean for mean, _ in said]),
        "deviation": np.concatenate([deviation for _, deviation in said]),
        "counts": np.array([len(mean) for mean, _ in said]),
    }
    partial = path.with_suffix(".partial.npz")
    weights = {f"weights {name}": value for name, value in flat.items()}
    np.savez(partial, **answers, **weights)  # type: ignore[arg-type]
    partial.replace(path)


def _read(path: Path, unit: Unit) -> tuple[Flat, list[Said]]:
    """A finished unit.

    Raises:
        ConfigError: the file is damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays}
        ends = np.cumsum(found["counts"])[:-1]
        parts = (np.split(found[name], ends) for name in ("mean", "deviation"))
        said = list(zip(*parts, strict=True))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ConfigError(
            what=f"a network of the run cannot be read: {error}",
            where=str(path),
            fix="Remove the file; the same command trains it again.",
        ) from error
    if len(said) != len(unit.judged):
        raise ConfigError(
            what=f"a network knows {len(said)} states instead of {len(unit.judged)}",
            where=str(path),
            fix="Remove the file; the same command trains it again.",
        )
    flat = {n.removeprefix("weights "): v for n, v in found.items() if n.startswith("weights ")}
    return flat, said


def write_report(out: Path, report: Mapping[str, Any]) -> Path:
    """Writes ``report.json`` into a run's folder."""

    def plain(value: Any) -> Any:
        """NaN as null: JSON has none."""
        if isinstance(value, Mapping):
            return {key: plain(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [plain(inner) for inner in value]
        return None if isinstance(value, float) and not np.isfinite(value) else value

    path = out / REPORT
    path.write_text(json.dumps(plain(report), indent=1) + "\n")
    return path
