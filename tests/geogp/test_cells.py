"""Places of a cell share one neighbourhood: the same answer whatever else is asked, no seam, the exact GP in the limit."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from geogp.field import FieldOptions, LocalField, neighbours
from geogp.field.predict import moments
from geogp.field.predict.around import around
from geogp.field.predict.cells import OVERLAP, SHARE, Cells, near_each_other
from geogp.field.student import heavy_tailed, student_weights
from geogp.field.variation import Variation
from tests.quick import in_parts

QUICK = FieldOptions(neighbours=12, steps=3, n_targets=150, epochs=2, metric=False, hidden=8)


def world(n=700, in_time=False, covariate=False, seed=0):
    """Rows of places that come again, crowded on one side."""
    rng = np.random.default_rng(seed)
    place = 20_000 * rng.beta(1.0, 2.0, (n // 4 if in_time else n, 2))
    X = place[rng.integers(0, len(place), n)] if in_time else place
    if in_time:
        X = np.column_stack([X, rng.integers(0, 12, n) / 4.0])
    if covariate:
        X = np.column_stack([X, np.sin(X[:, 0] / 4000)])
    y = np.sin(X[:, 0] / 3000) + 0.3 * rng.standard_t(4.0, n)
    return torch.from_numpy(X), torch.from_numpy(y)


def fitted(options=QUICK, **what):
    X, y = world(**what)
    time = 2 if what.get("in_time") else None
    with in_parts():
        return LocalField.fit(X, y, None, time=time, options=options), X


@pytest.fixture(scope="module")
def recurring():
    return fitted(replace(QUICK, smooth=True), n=1200, in_time=True)


# -- the cells ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cells():
    return Cells.over(np.random.default_rng(0).normal(size=(800, 2)), 12)


def test_weights_of_a_place_sum_to_one_everywhere(cells):
    P = np.random.default_rng(1).uniform(-30, 30, (4000, 2))  # far beyond the data, too
    shares = cells.shares(P)
    np.testing.assert_allclose(np.bincount(shares.place, shares.weight, minlength=4000), 1.0, rtol=1e-12)
    assert (shares.weight > 0).all() and np.bincount(shares.place).max() > 1


def by_place(shares):
    return [
        sorted(zip(map(tuple, shares.centre[shares.cell[mine]].tolist()), shares.weight[mine].tolist()))
        for mine in (shares.place == i for i in range(shares.place.max() + 1))
    ]


def test_a_places_cells_do_not_depend_on_what_else_is_asked(cells):
    P = np.random.default_rng(2).normal(size=(60, 2))
    together = by_place(cells.shares(P))
    assert together == [by_place(cells.shares(p[None]))[0] for p in P]
    assert together == by_place(cells.shares(P[::-1]))[::-1]


def test_weights_change_gradually_from_cell_to_cell(cells):
    t = np.linspace(-2, 2, 40_001)
    shares = cells.shares(np.stack([t, 0.3 * t + 0.1], axis=1))
    table = np.zeros((len(shares.centre), len(t)))
    table[shares.cell, shares.place] = shares.weight
    side = np.sqrt(2.0) * SHARE * cells.tree.query(shares.centre, k=[12])[0].min()
    # A ramp falls by one over twice the overlap, of at least a quarter of the smallest side; others share its loss.
    slope = 1.0 / (OVERLAP * 0.5 * 0.5 * side)
    assert (table.max(axis=1) > 0.5).sum() > 20
    assert np.abs(np.diff(table, axis=1)).max() < 4.0 * slope * 1.05 * (t[1] - t[0])


def test_cells_are_small_where_places_are_dense(cells):
    dense, sparse = np.zeros((1, 2)), np.full((1, 2), 2.5)
    near, far = (cells.shares(np.repeat(p, 500, axis=0) + 0.3 * np.random.default_rng(3).normal(size=(500, 2))) for p in (dense, sparse))  # fmt: skip
    assert len(near.centre) > 4 * len(far.centre)


def leaves(observed, nth, place):
    """(centre, weight) of each cell of a place, by going down the tree for it alone."""
    P = np.unique(observed, axis=0)
    low, high = P.min(0), P.max(0)
    whole = 3.0 * float((high - low).max() or 1.0)
    first = (low + high) / 2 - whole / 2
    at, nth = np.clip((place - first) / whole, 0, 1), min(nth, len(P))
    found = []

    def down(corner, sides, depth):
        middle = corner + sides / 2
        off = np.abs(at - middle) / (sides / 2)
        if (off > 1.1 + 1e-12).any():
            return
        away = np.sort(np.linalg.norm(P - (first + whole * middle), axis=1))
        if nth == 0 or np.linalg.norm(sides) / 2 * whole <= 0.45 * away[nth - 1] or depth == 60:
            weight = np.clip((1.1 - off) / 0.2, 0, 1).prod()
            found.extend([(tuple(first + whole * middle), weight)] if weight > 0 else [])
            return
        half = np.where(np.arange(2) == depth % 2, 0.5, 1.0) * sides
        down(corner, half, depth + 1)
        down(corner + sides - half, half, depth + 1)

    down(np.zeros(2), np.ones(2), 0)
    total = sum(weight for _, weight in found)
    return sorted((centre, weight / total) for centre, weight in found)


@pytest.mark.parametrize(("n", "nth"), [(60, 6), (60, 0), (3, 6), (1, 6)])
def test_cells_are_those_of_going_down_the_tree_for_each_place(n, nth):
    """Inside, at the edge and far beyond it, where two places are one, and where there are fewer than so many."""
    rng = np.random.default_rng(n + nth)
    observed = rng.uniform(-3, 5, (n, 2))
    observed = np.concatenate([observed, observed[:2]])
    asked = np.concatenate([rng.uniform(-4, 6, (80, 2)), [[1e3, -1e3], [1.0, 40.0]], observed[:2]])
    shares = Cells.over(observed, nth).shares(asked)
    assert (np.diff(shares.cell) >= 0).all() and set(shares.cell) == set(range(len(shares.centre)))
    for mine, place in zip(by_place(shares), asked, strict=True):
        told = leaves(observed, nth, place)
        np.testing.assert_allclose([c for c, _ in mine], [c for c, _ in told], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose([w for _, w in mine], [w for _, w in told], atol=1e-9)


@pytest.mark.parametrize("d", [1, 2])
def test_places_told_of_together_lie_near_each_other(d):
    """Each once; as many pieces as halving makes, which hardly overlap; none as long as the whole."""
    P = np.random.default_rng(d).uniform(size=(5_000, d)) * [1.0, 3.0][:d]
    pieces = list(near_each_other(P, 400))
    assert np.array_equal(np.sort(np.concatenate(pieces)), np.arange(5_000))
    assert len(pieces) == 16 and all(len(p) in (312, 313) and (np.diff(p) > 0).all() for p in pieces)
    extents = np.array([np.ptp(P[p], axis=0) for p in pieces])
    assert extents.prod(axis=1).sum() < 1.05 * np.ptp(P, axis=0).prod() and extents.max() < 0.9
    same = list(near_each_other(np.ones((900, d)), 400))
    assert sorted(map(len, same)) == [225] * 4
    assert [len(p) for p in near_each_other(P[:0], 400)] == [0]
    assert [len(p) for p in near_each_other(P[:400], 400)] == [400]  # as many as may be stay together


def test_at_an_observed_place_the_halving_ends():
    """With the nearest place itself as the measure no square is small enough: the deepest is taken."""
    shares = Cells.over(np.array([[0.0, 0.0], [1.0, 1.0]]), 1).shares(np.array([[0.0, 0.0]]))
    assert np.abs(shares.centre).max() < 3.0 / 2**29 and shares.weight.sum() == pytest.approx(1.0)


# -- what they say --------------------------------------------------------------------------------------


@pytest.mark.agrees(
    methods=["geogp", "local-gp"],
    of="mean and variance of the surface at places of a cell, all rows in its neighbourhood",
    with_="dense algebra on 50 rows: time, covariates, lengthscales that vary",
    tolerance=1e-8,
    source="Rasmussen and Williams 2006, eq. 2.22-2.24",
)
@pytest.mark.parametrize("kind", ["space", "time", "covariate", "varying"])
def test_with_all_rows_it_is_the_dense_process(kind, tolerance):
    for one, other in dense_beside_cells(kind, None):
        assert torch.allclose(one, other, atol=tolerance, rtol=0)


@pytest.mark.agrees(
    methods=["geogp", "local-gp"],
    of="the same of Student-t observations, whose weights are found in float32",
    with_="dense algebra on 50 rows: time, covariates, lengthscales that vary",
    tolerance=1e-6,
    source="Rasmussen and Williams 2006, eq. 2.22-2.24; Tipping and Lawrence 2005, section 3",
)
@pytest.mark.parametrize("kind", ["space", "time", "covariate", "varying"])
def test_with_all_rows_it_is_the_dense_process_of_weighted_rows(kind, tolerance):
    for one, other in dense_beside_cells(kind, 4.0):
        assert torch.allclose(one, other, atol=tolerance, rtol=0)


def dense_beside_cells(kind, nu):
    """Mean, leaning and variance by cells, each beside what dense algebra gives."""
    field, X = fitted(
        replace(QUICK, neighbours=50, smooth=False),
        n=50,
        in_time=kind == "time",
        covariate=kind == "covariate",
    )
    known = field.known
    gp = replace(known.gp, degrees_of_freedom=nu, weighted=nu is not None)
    if kind == "varying":
        bumps = Variation.flat(known.seen.X[:, :2], 4)
        bumps = replace(bumps, lengthscale=torch.linspace(-0.5, 0.5, 4).double(), variance=bumps.width * 0.1)
        gp = replace(gp, kernel=replace(gp.kernel, variation=bumps))
    known = replace(known, gp=gp)
    new = known.frame.coordinates(X[:9] + 200.0 * torch.randn(9, X.shape[1], generator=torch.Generator().manual_seed(0)))  # fmt: skip
    here = around(known, new)
    with torch.no_grad():
        A, y, noise = known.seen.X, known.left.value, known.seen.noise_variance
        K, k = gp.kernel(A, A), gp.kernel(new, A)
        if heavy_tailed(gp.tails):
            noise = noise / student_weights(K[None], noise[None], y[None], gp.tails)[0]
        solved = torch.linalg.solve(K + torch.diag(noise), torch.cat([y[:, None], known.columns, k.T], 1))
    q = known.columns.shape[1]
    variance = gp.kernel.prior_at(new) - (k * solved[:, 1 + q :].T).sum(1)
    return (
        (here.mean, k @ solved[:, 0]),
        (here.leaning, k @ solved[:, 1 : 1 + q]),
        (here.variance, variance),
    )


def test_every_order_and_chunking_gives_the_same(recurring):
    field, X = recurring
    new = X[:300] + 50.0 * torch.randn(300, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor(
        [1, 1, 0]
    )
    whole = field.moments(new)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(1))
    parts = [field.moments(new[rows]) for rows in order.split(70)]
    for name in ("location", "latent_variance", "noise_variance"):
        again = torch.cat([getattr(m, name) for m in parts])
        torch.testing.assert_close(again, getattr(whole, name)[order], rtol=0, atol=1e-6)
        alone = torch.cat([getattr(field.moments(new[i : i + 1]), name) for i in range(12)])
        torch.testing.assert_close(alone, getattr(whole, name)[:12], rtol=0, atol=1e-6)


def test_no_seam_shows_between_cells():
    field, X = fitted(replace(QUICK, neighbours=48), n=1200, in_time=True)
    t = torch.linspace(0, 1, 8001).double()[:, None]
    low, high = X[:, :2].quantile(0.2, 0), X[:, :2].quantile(0.8, 0)
    line = torch.cat([low + t * (high - low), torch.full_like(t, 2.0)], dim=1)
    known, C = field.known, field.frame.coordinates(line)
    here = around(known, C)
    shares = known.cells.shares(field.frame.near(C).numpy()[:, :2])
    assert len(shares.centre) > 10
    # Each place's own neighbours change one by one, and the mean with them.
    own = known.survey(C, known.neighbours_of(C), known.latest)
    assert (own.mean.diff().abs() / own.variance[1:].sqrt()).max() > 0.1
    # A step of an eight-thousandth moves the mean by nothing to speak of, over the edges of cells as well.
    step = here.mean.diff().abs() / here.variance[1:].sqrt()
    assert step.max() < 0.02
    assert (here.variance.diff().abs() / here.variance[1:]).max() < 0.02


def test_variance_lies_between_nothing_and_the_prior(recurring):
    field, X = recurring
    for new in (X[:200], 3.0 * X[:200], X[:5] + 1e7):
        C = field.frame.coordinates(new)
        variance = around(field.known, C).variance
        assert (variance > 0).all() and (variance <= field.gp.kernel.prior_at(C) + 1e-12).all()


@pytest.fixture(scope="module")
def plain():
    return fitted(replace(QUICK, smooth=False), n=400, in_time=True)[0]


@pytest.mark.parametrize("what", ["one place", "two places", "one row", "one time"])
def test_odd_observations_are_no_special_case(what, plain):
    rng = np.random.default_rng(4)
    n = 1 if what == "one row" else 120
    place = {"one place": np.zeros((n, 2)), "two places": 5000.0 * rng.integers(0, 2, (n, 1)).repeat(2, 1)}
    P = place.get(what, rng.uniform(0, 9000, (n, 2)))
    T = np.ones(n) if what == "one time" else np.arange(n) / 4.0
    seen = plain.observations(
        torch.from_numpy(np.column_stack([P, T])), torch.from_numpy(rng.normal(size=n)), None
    )
    known = plain.conditioned_on(seen).known
    new = torch.from_numpy(np.column_stack([rng.uniform(-100, 9000, (40, 2)), rng.uniform(0, 9, 40)]))
    m = replace(plain, known=known).moments(new)
    assert all(torch.isfinite(getattr(m, name)).all() for name in ("location", "latent_variance"))
    assert (m.latent_variance > 0).all()


def test_what_would_have_been_dealt_out_is_what_a_smaller_search_deals():
    rng = np.random.default_rng(5)
    X = np.column_stack([rng.uniform(size=(18, 2)).repeat(9, 0), np.tile(np.arange(9) / 8.0, 18)])
    search, new = neighbours.build(X, scale=np.ones(3), time_axis=2), rng.uniform(size=(25, 3))
    rows = neighbours.query(search, new, 48)
    few = neighbours.query(search, new, 24)
    dealt = neighbours.dealt(search, new, rows, 24)
    for i in range(len(new)):
        assert set(rows[i, dealt[i]]) == set(few[i, 12:])


def test_no_place_asked(recurring):
    field, X = recurring
    assert len(field.moments(X[:0])) == 0


def test_answers_stand_in_the_order_of_the_questions(recurring, monkeypatch):
    field, X = recurring
    new, counts = X[:150] + 40.0, [None, 1.0 + torch.arange(150.0).double() % 7]
    whole = field.moments_by_count(new, counts)
    later = new + torch.tensor([0.0, 0.0, 1.0])
    variance = torch.stack([field.moments(each).latent_variance for each in (new, later)])
    change = field.correlation(new, later, variance)
    monkeypatch.setattr(moments, "PLACES_AT_ONCE", 40)
    monkeypatch.setattr("geogp.field.local_field.PLACES_AT_ONCE", 40)
    for told, expected in zip(field.moments_by_count(new, counts), whole, strict=True):
        torch.testing.assert_close(told.location, expected.location, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(told.scale, expected.scale, rtol=1e-9, atol=1e-9)
    again = field.correlation(new, later, variance)
    torch.testing.assert_close(again, change, rtol=1e-9, atol=1e-9)
    assert change.std() > 1e-5 and whole[0].location.std() > 0.1
