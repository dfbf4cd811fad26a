"""The reference pages: complete, and true about places far from data."""

import numpy as np
import pytest

import geogp
from geogp.methods import METHODS
from geogp.pages import far, formula, page
from geogp.update import updatable

pytestmark = pytest.mark.filterwarnings("ignore::geogp.errors.NotDistanceAware")


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_page(name):
    text, row = page(name), METHODS[name]
    assert text.startswith(f"# {name}\n")
    for part in ("Formula", "Choices", "When to use it", "Far from data", "Cost", "Source", "Use"):
        assert f"\n## {part}\n" in text
    assert "O(n" in text and "Mean: " in text and "Latent sd: " in text and "None" not in text
    for choice in (row.expansion, row.residual, row.objective, row.backbone):
        assert f"| {choice} |" in text
    assert "|  |" not in text  # every choice says what it is
    assert len(formula(row)) >= 3 and all("  " not in line.strip()[-2:] for line in formula(row))
    assert (name in updatable()) == ("cannot change its runs" not in text)
    assert len(row.use_when.split()) >= 6


def test_an_unknown_method_has_no_page():
    with pytest.raises(geogp.ImpossibleCombination, match="there is no method 'nope'"):
        page("nope")


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 50_000, (300, 2))
    y = 3.0 + np.sin(X[:, 0] / 8000) * np.cos(X[:, 1] / 9000) + 0.2 * rng.normal(size=300)
    angle = rng.uniform(0, 2 * np.pi, 60)
    away = 25_000 + 1e6 * np.column_stack([np.cos(angle), np.sin(angle)])
    return X, y, rng.uniform(0, 50_000, (100, 2)), away


@pytest.mark.parametrize("name", METHODS)
def test_far_from_data_a_method_does_what_its_page_says(name, world):
    X, y, near, away = world
    row = METHODS[name]
    size = {"options": {"steps": 20, "n_targets": 300, "epochs": 2, "metric": False}} if row.engine == "local" else {
        "steps": 120, "rank": row.rank if row.rank == 1 else 36, "hidden": 16
    }  # fmt: skip
    if name == "fmgp":
        size["options"] = {"predictor": lambda inputs: np.full(len(inputs), 3.5)}
    target = np.log10(1 + np.round(np.exp(y))) if name == "cox" else y
    model = geogp.GPRegressor(name, **size).fit(X, target)
    here, there = model.moments(near), model.moments(away)
    sd, prior = there.latent_variance.sqrt(), there.prior_variance.sqrt()
    mean_here = here.latent_variance.sqrt().mean()
    said_mean, said_sd = (line.split(": ", 1)[1] for line in far(row)[0:3:2])
    assert bool((sd <= prior * 1.001 + 1e-6).all())
    if row.residual == "distance":
        assert "by the residual's v" in said_sd and row.reverts_to_prior
        a = float(model.engine_.model.residual.sill)
        assert float(there.latent_variance.min()) > 0.97 * a > 2.0 * float(here.latent_variance.mean())
        assert "falls, but not to 0" in far(row)[-1]
    elif row.reverts_to_prior:
        assert "prior's" in said_sd and float((sd / prior).min()) > 0.97
        if "plane" in said_mean:  # three half extents of a plane that is next to level here
            assert float(there.mean.abs().max()) < 3.0 * float(model.moments(X).mean.abs().max())
        else:
            assert float(there.mean.std()) < 0.05  # one level everywhere, whatever the direction
    elif said_sd.startswith("0, as everywhere"):
        assert float(sd.max()) == 0.0
    elif said_sd.startswith("0, and so is"):
        assert float(sd.max()) < 1e-3 and float(prior.max()) < 1e-3
    elif said_sd.startswith("larger than at the data"):
        assert float(mean_here) < float(sd.mean()) < 0.98 * float(prior.mean())
    elif "little more than at the data" in said_sd or "between" in said_sd:
        assert 0.4 * float(mean_here) < float(sd.mean()) < 0.95 * float(prior.mean())
        assert "network" in said_mean
    else:
        assert "outermost" in said_sd
    if name == "fmgp":
        assert np.all(model.predict(away) == 3.5)
