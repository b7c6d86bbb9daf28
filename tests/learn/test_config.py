"""Settings: YAML, presets, the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from graphopt.cli import main as graphopt_main
from graphopt.errors import ConfigError
from graphopt.learn.advantages.config import AdvantagesConfig, load_settings
from graphopt.learn.cli import main, parse
from graphopt.learn.config import CONFIG_NAME, TOY, TrainConfig, from_dict, load_config, to_dict

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_settings_load(path):
    if path.stem == "advantages":  # of another command
        assert load_settings(path) != AdvantagesConfig()
    else:
        assert load_config(path).stages


def test_the_toy_settings_are_those_of_the_file():
    (path,) = (path for path in CONFIGS if path.stem == "toy")
    assert load_config(path) == TOY


@pytest.mark.parametrize("config", [TrainConfig(), TOY], ids=["default", "toy"])
def test_settings_survive_yaml(config):
    assert from_dict(yaml.safe_load(yaml.safe_dump(to_dict(config)))) == config


BAD = {
    "ppo.clipping is not a setting": {"ppo": {"clipping": 0.1}},
    "ppo.clip must be float": {"ppo": {"clip": "wide"}},
    "ppo.epochs must be int": {"ppo": {"epochs": True}},
    "ppo must be a mapping": {"ppo": 3},
    r"stages\[1\].steps must be int": {"stages": [{}, {"steps": "many"}]},
    "stages must be a list": {"stages": {}},
    "stages is too small": {"stages": []},
    "rollout.samples is too small": {"rollout": {"samples": 1}},
    "ppo.baseline must be one of": {"ppo": {"baseline": "median"}},
    "unusable network size heads": {"model": {"heads": 7}},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_settings_are_named(message):
    with pytest.raises(ConfigError, match=message):
        from_dict(BAD[message])


def test_an_unreadable_file_is_named(tmp_path):
    for text in ("a: [", "- 1", None):
        path = tmp_path / "settings.yaml"
        if text is None:
            path = tmp_path / "missing.yaml"
        else:
            path.write_text(text)
        with pytest.raises(ConfigError):
            load_config(path)


def test_flags_override_files(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text("seed: 4\nppo: {clip: 0.3, epochs: 5}\n")
    found = parse(["--config", str(path), "--ppo.clip", "0.1", "--out", "here"])
    assert (found.settings.seed, found.settings.ppo.clip, found.settings.ppo.epochs) == (4, 0.1, 5)
    assert found.out == Path("here")
    assert parse(["--toy"]).settings == TOY
    assert parse(["--toy", "--seed", "3"]).settings.seed == 3


def test_resuming_takes_the_settings_of_the_run(tmp_path):
    (tmp_path / CONFIG_NAME).write_text("seed: 4\n")
    arguments = ["--out", str(tmp_path)]
    assert parse([*arguments, "--resume"]).settings.seed == 4
    assert parse([*arguments, "--resume", "--seed", "5"]).settings.seed == 5
    assert parse(arguments).settings == TrainConfig()


def test_the_command_reports_errors(tmp_path, capsys):
    assert main(["--config", str(tmp_path / "missing.yaml")]) == 2
    assert "missing.yaml cannot be read" in capsys.readouterr().err
    assert main(["--toy", "--config", "a.yaml"]) == 2
    assert main(["--toy", "--resume", "--out", str(tmp_path / "nothing")]) == 2


def test_graphopt_train_is_the_same_command(tmp_path, capsys):
    assert graphopt_main(["train", "--config", str(tmp_path / "missing.yaml")]) == 2
    assert "missing.yaml cannot be read" in capsys.readouterr().err


def test_help_documents_every_field(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for fragment in ("--ppo.clip", "--rollout.samples", "--model.joint", "Ratios are clipped"):
        assert fragment in text
