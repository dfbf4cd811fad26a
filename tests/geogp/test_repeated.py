"""Places that are measured again and again at one time: rows by their means, and neighbours that are other places."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import geogp
from geogp.field.kernel import LocalKernel
from geogp.field.likelihood.repeated import Places
from geogp.field.likelihood.restricted import Dense, Repeated, Rows, plane_over, restricted
from geogp.field.likelihood.trained import Trained

KERNEL = LocalKernel(torch.zeros(1, 2).double(), torch.zeros(1).double(), ("matern32",))


def rows_of(n_places: int, times: int, seed: int = 0) -> Rows:
    """Rows of places, shuffled, with counts and weights that differ."""
    g = torch.Generator().manual_seed(seed)
    X = (
        torch.rand(n_places, 2, generator=g)
        .double()
        .repeat(times, 1)[torch.randperm(n_places * times, generator=g)]
    )
    n = len(X)
    counts = torch.randint(1, 9, (n,), generator=g).double()
    weights = 0.5 + torch.rand(n, generator=g).double()
    return Rows(
        X,
        torch.sin(3 * X[:, 0]) + torch.randn(n, generator=g).double(),
        counts,
        torch.ones(n, 1).double(),
        weights,
    )


def slopes(likelihood, rows: Rows) -> tuple[float, list[torch.Tensor]]:
    model = Trained(KERNEL, 1, None, None, student=False, per_count=True)
    with torch.no_grad():
        model.shift.fill_(0.3)
    total = likelihood.backward(model, rows)
    return total, [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]


@pytest.mark.parametrize("times", [2, 5])
def test_means_of_places_say_what_all_rows_say(times):
    """The likelihood and its slopes, but for a constant that the plane's columns bring."""
    rows = rows_of(14, times)
    places = Places.of(rows.X)
    assert places.repeat and len(places.first) == 14
    assert torch.equal(rows.X[places.first][places.at], rows.X)
    whole = Dense(plane_over(rows.X))
    means = Repeated(whole, places, Dense(plane_over(rows.X[places.first])))
    total, exact = slopes(whole, rows)
    found, of_means = slopes(means, rows)
    for ours, theirs in zip(of_means, exact):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)
    # At other numbers of the model the constant is the same.
    other = Rows(rows.X, 2.0 * rows.y, rows.counts, rows.columns, 3.0 * rows.weights)
    assert slopes(means, other)[0] - found == pytest.approx(slopes(whole, other)[0] - total, rel=1e-9)
    weights = [
        one.student_weights(Trained(KERNEL, 1, None, None, student=False, per_count=True), rows, 4.0)
        for one in (means, whole)
    ]
    assert torch.equal(*weights)


def test_rows_are_taken_by_places_where_these_repeat():
    rows = rows_of(30, 2)
    assert isinstance(restricted(rows.X, KERNEL, dense_below=100, seed=0), Repeated)
    apart = rows.X.clone()
    apart[0] += 1.0  # 31 places of 60 rows: fewer than two a place
    assert isinstance(restricted(apart, KERNEL, dense_below=100, seed=0), Dense)
    late = torch.cat([rows.X, torch.arange(60.0)[:, None].double()], 1)
    assert not Places.of(late).repeat


@pytest.mark.parametrize("metres", [0.0, 1.0])
def test_a_place_says_as_much_in_forty_rows_as_in_their_mean(metres):
    """Of 40 rows at each of 50 places the nearest 48 were one place's: the map between places was worse for more rows."""
    rng = np.random.default_rng(0)
    places, waves, phase = (
        rng.uniform(0, 50_000, (50, 2)),
        rng.normal(size=(200, 2)) / 8000,
        rng.uniform(0, 6.28, 200),
    )

    def surface(X):
        return np.cos(X @ waves.T + phase).sum(1) * 0.1

    X = np.repeat(places, 40, axis=0)
    y = surface(X) + 0.3 * rng.normal(size=len(X))
    new = rng.uniform(2000, 48_000, (800, 2))

    def miss(*data, **more):
        quick = {"steps": 40, "n_targets": 1000}
        model = geogp.GPRegressor("local-gp", target_transform="identity", random_state=0, options=quick)
        model.fit(*data, **more)
        return np.sqrt(np.mean((model.predict(new) - surface(new)) ** 2)), model

    raw, model = miss(X + rng.uniform(-metres, metres, X.shape), y)
    means, _ = miss(places, y.reshape(50, 40).mean(1), counts=np.full(50, 40))
    known = model.engine_.field.known
    assert raw < 1.25 * means and known.rows_a_cell == 512
    wider = replace(known, options=replace(known.options, neighbours=400))
    assert wider.rows_a_cell == 800  # what is asked for is not cut
    spread, _ = miss(places, y[::40])
    assert raw < 0.8 * spread  # than one row of each place
