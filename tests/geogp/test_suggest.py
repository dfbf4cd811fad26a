"""Where to measure next: against brute force, against measuring indeed, and points that spread."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import geogp
from geogp.errors import InvalidInput
from geogp.suggest import greedy, suggest_places


@pytest.fixture(scope="module", autouse=True)
def every_row_before():
    """All earlier rows tell the drift: nothing is approximated."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("geogp.field.mean.drift.ANCESTORS", 500)
        yield


@pytest.fixture(scope="module")
def model():
    """A Gaussian local field whose observations, all everyone's neighbours, lie in the west."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(0, 5000, 80), rng.uniform(0, 10_000, 80)])
    y = np.sin(X[:, 0] / 3000) + np.cos(X[:, 1] / 2000) + 0.2 * rng.standard_normal(80)
    model = geogp.GPRegressor(
        "local-gp", target_transform="identity", options={"neighbours": 100, "steps": 8, "metric": False}
    ).fit(X, y)
    field = model.engine_.field
    gp = replace(field.gp, weighted=False, degrees_of_freedom=None)
    known = replace(field.known, gp=gp, averaged=None)
    model.engine_.field = replace(
        field, known=known.told(known.seen)
    )  # the drift, too, of Gaussian observations
    return model


@pytest.fixture(scope="module")
def cells():
    return grid(1000.0)


def grid(step):
    x, y = np.meshgrid(*2 * [np.arange(500.0, 10_000, step)])
    return np.column_stack([x.ravel(), y.ravel()])


def variance_after(model, added, P):
    """Mean variance at P of a field that knows one more observation at each of `added`, in squared units of y."""
    field = model.engine_.field
    X, y, n = torch.as_tensor(added), torch.zeros(len(added)).double(), torch.ones(len(added)).double()
    new = field.observations(X, y, n)
    seen = type(new)(
        *(
            torch.cat([getattr(field.seen, f), getattr(new, f)])
            for f in ("X", "value", "counts", "noise_variance")
        )
    )
    told = field.conditioned_on(seen).moments(torch.as_tensor(P))
    return model.target_sd_**2 * float(told.latent_variance.mean())


def test_the_first_is_the_best_of_all(model, cells):
    found = suggest_places(model, cells, 1)
    now = model.target_sd_**2 * float(model.moments(cells).latent_variance.mean())
    every = np.array([variance_after(model, cells[[c]], cells) for c in range(len(cells))])
    assert found.average_before[0] == pytest.approx(now, rel=1e-8)
    assert found.chosen[0] == np.argmin(every)
    assert found.average_after[0] == pytest.approx(every.min(), rel=1e-6)


def test_measuring_there_brings_what_was_promised(model, cells):
    """Variances do not depend on the values, so the promise is exact where all observations are neighbours."""
    found = suggest_places(model, cells, 8)
    for i in (1, 4, 8):
        told = variance_after(model, cells[found.chosen[:i]], cells)
        assert found.average_after[i - 1] == pytest.approx(told, rel=1e-6)
    assert (found.average_after < found.average_before).all()
    np.testing.assert_array_equal(found.average_before[1:], found.average_after[:-1])
    assert (np.diff(found.average_before - found.average_after) < 1e-12).all()  # ever less
    assert (found.variance_after < found.variance_before).all()


def test_points_spread(model):
    """Unlike the places of the largest sd, which lie side by side."""
    cells = grid(500.0)
    chosen = cells[suggest_places(model, cells, 6).chosen]
    widest = cells[np.argsort(-model.moments(cells).latent_variance.numpy())[:6]]

    def closest(P):
        d = np.linalg.norm(P[:, None] - P[None], axis=-1)
        return d[np.triu_indices(len(P), 1)].min()

    assert closest(chosen) > 1.9 * closest(widest) and len(np.unique(chosen, axis=0)) == 6
    assert (chosen[:, 0] > 4000).mean() > 0.8  # where nobody measured


def test_the_order_of_the_candidates_does_not_matter(model, cells):
    p = np.random.default_rng(0).permutation(len(cells))
    a, b = suggest_places(model, cells, 5), suggest_places(model, cells[p], 5)
    np.testing.assert_array_equal(cells[a.chosen], cells[p][b.chosen])
    np.testing.assert_allclose(a.average_after, b.average_after, rtol=1e-8)


def test_places_and_weights_say_what_the_map_is(model, cells):
    south = cells[cells[:, 1] < 3000]
    found = suggest_places(model, cells, 3, places=south)
    assert (cells[found.chosen][:, 1] < 4500).all()
    told = variance_after(model, cells[found.chosen], south)
    assert found.average_after[-1] == pytest.approx(told, rel=1e-6)
    same = suggest_places(model, cells, 3, weights=(cells[:, 1] < 3000).astype(float))
    np.testing.assert_array_equal(same.chosen, found.chosen)


def test_a_noisy_measurement_brings_less(model, cells):
    C = np.diag([1.0, 1.0, 0.5])
    assert greedy(C, np.array([1.0, 0.1, 0.1]), 3).chosen.tolist() == [1, 0, 2]
    found = greedy(C, np.array([1.0, 0.1, 0.1]), 1)
    assert found.average_after[0] == pytest.approx((2.5 - 1 / 1.1) / 3)
    assert found.variance_after[0] == pytest.approx(0.1 / 1.1) and len(found) == 1
    np.testing.assert_array_equal(C, np.diag([1.0, 1.0, 0.5]))


@pytest.mark.parametrize("method", ["dbk-silu", "sgpr"])
def test_other_methods_suggest_too(method, cells):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10_000, (200, 2))
    model = geogp.GPRegressor(method, target_transform="identity", rank=16, hidden=8, epochs=2).fit(
        X, np.sin(X[:, 0] / 3000)
    )
    found = suggest_places(model, cells, 4)
    assert len(set(found.chosen.tolist())) == 4 and (np.diff(found.average_after) <= 0).all()


@pytest.mark.parametrize(
    ("n", "weights", "words"),
    [
        (0, None, "between 1 and 3"),
        (4, None, "between 1 and 3"),
        (1, [1.0], "3 numbers"),
        (1, [0, 0, 0], "all zero"),
    ],
)
def test_what_is_refused(n, weights, words):
    with pytest.raises(InvalidInput, match=words):
        greedy(np.eye(3), np.ones(3), n, weights=weights)
