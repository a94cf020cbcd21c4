from pathlib import Path

import pytest

from sbjax.configuration import ConfigurationError, ModelSource, load_config, make_method
from sbjax.methods import PEARL, AdaEDL, Autoregressive, SpecBranch, SpS

CONFIGS = sorted((Path(__file__).parents[1] / "configs").glob("*.toml"))

GOOD = """
name = "pair"
dtype = "float32"
[target]
hub = "owner/large"
[draft]
folder = "small"
[method]
name = "SpS"
draft_length = 3
[sampling]
temperature = 0.5
top_k = 40
"""


def write(tmp_path, text):
    path = tmp_path / "pair.toml"
    path.write_text(text)
    return path


def test_every_pair_of_the_design_has_a_configuration():
    assert {path.stem for path in CONFIGS} == {
        "demo",
        "qwen2.5-coder",
        "llama-68m-7b",
        "vicuna-68m-13b",
        "deepseek-coder-1.3b-33b",
        "llama-3.1-8b-70b",
    }


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_configurations_load(path):
    config = load_config(path)
    assert config.name == path.stem
    assert config.draft is not None
    for source in (config.target, config.draft):
        if source.folder is not None:
            assert source.folder.is_absolute() and ".." not in source.folder.parts
        else:
            assert source.hub.count("/") == 1
    assert config.target != config.draft


def test_fields(tmp_path):
    config = load_config(write(tmp_path, GOOD))
    assert config.target == ModelSource(hub="owner/large")
    assert config.draft == ModelSource(folder=tmp_path.resolve() / "small")
    assert make_method(config.method.name, config.method.settings) == SpS(draft_length=3)
    assert dict(config.sampling) == {"temperature": 0.5, "top_k": 40}


@pytest.mark.parametrize(
    ("table", "method"),
    [
        ('name = "PEARL"\ndraft_length = "auto"', PEARL(draft_length="auto")),
        ('name = "AdaEDL"\ngamma = 1', AdaEDL(gamma=1)),
        (
            'name = "SpecBranch"\nbranches = 8\nhedge = "point"\nepsilon = 0.3',
            SpecBranch(branches=8, hedge="point", epsilon=0.3),
        ),
    ],
)
def test_every_method_can_be_configured(tmp_path, table, method):
    config = load_config(write(tmp_path, GOOD.replace('name = "SpS"\ndraft_length = 3', table)))
    assert make_method(config.method.name, config.method.settings) == method


def test_settings_are_read_only(tmp_path):
    config = load_config(write(tmp_path, GOOD))
    with pytest.raises(TypeError, match="does not support item assignment"):
        config.sampling["temperature"] = 1.0


def test_draft_and_sampling_may_be_left_out(tmp_path):
    text = 'name = "a"\ndtype = "bfloat16"\n[target]\nhub = "o/n"\n[method]\nname = "Autoregressive"\n'
    config = load_config(write(tmp_path, text))
    assert config.draft is None and dict(config.sampling) == {}
    assert make_method(config.method.name, config.method.settings) == Autoregressive()


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('name = "pair"', 'nmae = "pair"', "nmae"),
        ('name = "pair"', "", "missing key name"),
        ('name = "pair"', "name = 3", "name must be str"),
        ('dtype = "float32"', 'dtype = "float31"', "float31"),
        ('hub = "owner/large"', "", "exactly one of hub and folder"),
        ('hub = "owner/large"', 'hub = "o/n"\nfolder = "x"', "exactly one of hub and folder"),
        ('hub = "owner/large"', 'hug = "owner/large"', "hug"),
        ('name = "SpS"', "", r"\[method\] missing key name"),
        ('name = "SpS"', 'name = "SpecBrunch"', "SpecBrunch.*there are PEARL, AdaEDL, .*, SpecBranch"),
        (
            "draft_length = 3",
            "draft_lenght = 3",
            r"\[method\] SpS has no setting draft_lenght; it has draft_length",
        ),
        ("draft_length = 3", "draft_length = 0", r"\[method\] draft_length must be at least 1, got 0"),
        (
            'name = "SpS"\ndraft_length = 3',
            'name = "PEARL"\nbranches = 2',
            r"PEARL has no setting branches; it has draft_length",
        ),
        (
            'name = "SpS"\ndraft_length = 3',
            'name = "SpecBranch"\nhedge = "points"',
            "hedge must be one of point, outcomes, got 'points'",
        ),
        ("draft_length = 3", 'draft_length = "car"', "draft_length must be an integer, got 'car'"),
        ('name = "SpS"', 'name = "Autoregressive"', "has no setting draft_length; it has none"),
        ("top_k = 40", "top_k = 1.5", r"top_k must be int, got 1\.5"),
        ("top_k = 40", "top_k = true", "top_k must be int, got True"),
        ("top_k = 40", "repetition_penalty = 1.1", "repetition_penalty"),
        ("top_k = 40", "top_k = ", "not a TOML file"),
    ],
)
def test_wrong_keys_are_named_with_their_file(tmp_path, old, new, named):
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(ConfigurationError, match=named) as raised:
        load_config(path)
    assert str(path) in str(raised.value)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_config(tmp_path / "none.toml")
