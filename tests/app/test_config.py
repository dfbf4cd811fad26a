"""run.toml: what it may say, and the words when it is wrong."""

import inspect

import pytest

from app.config import fit_config, model_options, setting
from app.errors import InvalidInput
from geogp import GPRegressor


def write(tmp_path, text):
    path = tmp_path / "run.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_line_wins_over_the_file_and_the_file_over_the_defaults(tmp_path):
    path = write(tmp_path, 'method = "dbk-rbf"\nsplit = "block"\n[model]\nrank = 64\nsteps = 500\n')
    config = fit_config(path, {"split": "random", "seed": None}, {"rank": 32, "hidden": None})
    assert (config.method, config.split, config.seed, config.target) == ("dbk-rbf", "random", 0, None)
    assert config.model == {"rank": 32, "steps": 500}


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        ('methd = "dbk-rbf"', ["methd", "method"]),
        ("seed = -1", ["seed", "-1"]),
        ('target = "speed"', ["target", "speed"]),
        ('device = "tpu"', ["device", "tpu"]),
        ('[model]\nrank = "many"', ["model.rank", "many"]),
        ("[model]\nranks = 3", ["model.ranks", "rank"]),
        ("model = 3", ["model", "3"]),
        ("seed = = 1", ["TOML", "line 1"]),
    ],
)
def test_a_wrong_file_names_the_field(text, fragments, tmp_path):
    path = write(tmp_path, text)
    with pytest.raises(InvalidInput) as caught:
        fit_config(path, {}, {})
    assert all(fragment in str(caught.value) for fragment in [*fragments, "run.toml"])
    assert caught.value.exit_code == 3


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidInput, match=r"nowhere\.toml"):
        fit_config(tmp_path / "nowhere.toml", {}, {})


def test_settings_of_the_line():
    assert setting("rank=64") == ("rank", 64)
    assert setting("noise=constant") == ("noise", "constant")
    assert setting("fourier_scales=[1.0, 3.0]") == ("fourier_scales", [1.0, 3.0])
    with pytest.raises(InvalidInput, match="NAME=VALUE"):
        setting("rank")


def test_the_model_table_is_what_the_estimator_takes():
    taken = inspect.signature(GPRegressor.__init__).parameters
    own = ("self", "method", "spatial", "time", "device", "random_state")
    fields = model_options().model_fields
    assert list(fields) == [name for name in taken if name not in own]
    for name, field in fields.items():
        assert (field.annotation, field.default) == (taken[name].annotation, taken[name].default), name
