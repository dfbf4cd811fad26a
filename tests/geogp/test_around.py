"""Places that share neighbourhoods, written out place by place: which rows a cell rests on, who is heard, and the blend."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from geogp.field import FieldOptions, LocalField, LocalKernel, neighbours
from geogp.field.predict import around as module
from geogp.field.predict.around import around, asked_of
from geogp.field.solve import conditional_moments
from geogp.field.surroundings import NAMES, Given, Witnesses, busyness_of
from tests.geogp.test_conditioned import ahead, known_of

FIELDS = ("mean", "variance", "features", "leaning", "testimony")


def places(known, X, n=25):
    new = ahead(X[:n], 0.4)
    new[:, :2] += 1.3
    new[n // 2 :, 2] = new[0, 2]
    new[3, :2] = X[3, :2]
    return known.frame.coordinates(new)


def close(a, b, **how):
    for name in FIELDS:
        torch.testing.assert_close(getattr(a, name), getattr(b, name), **how)


@pytest.mark.parametrize("nu", [None, 5.0])
def test_with_all_rows_it_is_what_all_rows_say(nu):
    known, X = known_of(60, neighbours=60, smooth=True, nu=nu)
    C = places(known, X)
    wanted = known.survey(C, known.neighbours_of(C), known.latest)
    found = around(known, C)
    for name in ("mean", "variance", "leaning"):
        torch.testing.assert_close(getattr(found, name), getattr(wanted, name), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.features[:, :3], wanted.features[:, :3], rtol=1e-5, atol=1e-6)


def by_hand(known, C):
    """Each place's answer, cell by cell."""
    seen, columns = known.left, known.columns
    shares = known.cells.shares(known.frame.near(C).numpy()[:, :2])
    busy = busyness_of(seen)
    both = torch.stack([seen.value, busy], 1)
    total = torch.zeros(len(C), len(NAMES)).double()
    leaning = torch.zeros(len(C), columns.shape[1]).double()
    testimony = []
    k = min(known.options.neighbours, len(seen))
    for at in range(len(C)):
        said = 0.0
        for of in np.flatnonzero(shares.place == at):
            centre = np.concatenate([shares.centre[shares.cell[of]], C[at, 2:3].numpy()])[None]
            index = neighbours.query(known.search, centre, known.rows_a_cell)
            dealt = torch.from_numpy(neighbours.dealt(known.search, centre, index, k))
            index, w = torch.from_numpy(index), float(shares.weight[of])
            x = C[at][None]
            c = conditional_moments(
                known.gp.kernel, x, seen.X, both, seen.noise_variance, index, known.gp.tails
            )
            near = Witnesses.of(seen, busy, index, x[:, None], 2)
            given = Given(c.mean[:, None, 0], c.variance[:, None], c.mean[:, None, 1], c.covariance[:, None])
            distance = near.distances(x[:, None]) * 3.5
            # The nearest half in space and time, those of the place itself, and those on all sides of the cell.
            apart = (near.distances(x[:, None]) ** 2 + near.age[:, None] ** 2)[0, 0]
            apart[index[0] < 0] = torch.inf
            heard = apart <= apart.sort().values[min(k - k // 2, len(apart)) - 1] * (1 + 1e-6)
            heard = (heard | (distance[0, 0] < 1e-6) | dealt[0]) & (index[0] >= 0)
            features, told = near.say(
                known.gp.kernel,
                x[:, None],
                given,
                heard[None, None],
                distance,
                known.latest,
                known.hears_in_detail,
            )
            total[at] += w * features[0, 0]
            leaning[at] += w * (c.weights[0] * (index[0] >= 0)) @ columns[index[0].clamp_min(0)]
            said = said + w * told[0, 0]
        testimony.append(said)
    return total, leaning, torch.stack(testimony)


@pytest.mark.parametrize("detail", [False, True])
@pytest.mark.parametrize("seen_at", [None, 40])
def test_a_place_is_told_by_the_cells_that_it_lies_in(detail, seen_at):
    known, X = known_of(240, seen_at, neighbours=11, smooth=detail, nu=5.0)
    C = places(known, X)
    assert known.rows_a_cell < 240
    found = around(known, C)
    features, leaning, testimony = by_hand(known, C)
    torch.testing.assert_close(found.features, features, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.leaning, leaning, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(found.testimony, testimony, rtol=1e-4, atol=1e-4)
    assert torch.equal(found.mean, found.features[:, 0]) and torch.equal(found.variance, found.features[:, 1])
    assert found.testimony.shape[1] == (29 if detail else 0)


def test_what_is_told_of_together_changes_nothing(monkeypatch):
    known, X = known_of(240, neighbours=11, smooth=True)
    C = places(known, X, 60)
    whole = around(known, C)
    for name, value in (("COVARIANCES", 900), ("CROSSED", 60), ("SEARCHED_TOGETHER", 2), ("PAIRS", 5)):
        monkeypatch.setattr(module, name, value)
        close(around(known, C), whole, rtol=1e-5, atol=1e-6)
    alone = around(known, C[7:8])
    for name in FIELDS:
        torch.testing.assert_close(getattr(alone, name)[0], getattr(whole, name)[7], rtol=1e-5, atol=1e-6)


def test_no_place_is_told_of_nowhere():
    known, X = known_of(smooth=True)
    none = around(known, known.frame.coordinates(X[:0]))
    assert [len(getattr(none, name)) for name in FIELDS] == [0] * 5
    assert none.testimony.shape[1] == 29 and none.leaning.shape[1] == 4


def test_neighbourhoods_are_a_cell_and_a_time_those_of_most_places_first():
    known, X = known_of(240, neighbours=11)
    C = places(known, X, 40)
    times = known.frame.near(C).numpy()[:, 2:]
    asked, pairs = asked_of(known, C, times)
    shares = known.cells.shares(C[:, :2].numpy())
    assert (asked.count.diff() <= 0).all() and int(asked.count.sum()) == len(pairs) == len(shares.place)
    assert asked.rows.shape[1] == asked.dealt.shape[1] == 0
    wanted = {}
    for place, cell, weight in zip(shares.place, shares.cell, shares.weight):
        wanted.setdefault((*shares.centre[cell], *times[place]), []).append((place, weight))
    assert len(wanted) == len(asked)
    for centre, first, count in zip(asked.centre.tolist(), asked.first.tolist(), asked.count.tolist()):
        mine = slice(first, first + count)
        found = list(zip(pairs.place[mine].tolist(), pairs.weight[mine].tolist()))
        assert found == sorted(wanted[tuple(centre)])


@pytest.mark.parametrize(
    ("count", "most", "places", "pieces"),
    [
        ([3, 2, 2, 1], 10, 100, [[0, 1, 2, 3]]),
        ([3, 2, 2, 1], 2, 100, [[0, 1], [2, 3]]),
        ([3, 2, 2, 1], 10, 5, [[0, 1], [2, 3]]),
        ([3, 2, 2, 1], 10, 4, [[0], [1, 2], [3]]),
        ([9, 9], 10, 4, [[0], [1]]),
        ([1] * 6, 2, 100, [[0, 1], [2, 3], [4, 5]]),
    ],
)
def test_pieces_are_of_so_many_neighbourhoods_and_places(count, most, places, pieces):
    assert [p.tolist() for p in module._pieces(torch.tensor(count), most, places)] == pieces


def test_the_nth_smallest_is_that_of_a_sort():
    values = torch.randn(3, 4, 9, generator=torch.Generator().manual_seed(0))
    for n in (1, 4, 9):
        assert torch.equal(module._nth(values, n), values.sort(-1).values[..., n - 1 : n])


def test_rows_that_are_not_there_say_nothing():
    known, X = known_of(240, 40, neighbours=11, smooth=True)
    C = places(known, X)
    honest = module._with_rows

    def fewer(known, asked):
        found = honest(known, asked)
        rows = found.rows.clone()
        rows[:, 10:] = -1
        return replace(found, rows=rows, dealt=found.dealt & (rows >= 0))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_with_rows", fewer)
        few = around(known, C)
        patch.setattr(
            module,
            "_with_rows",
            lambda known, asked: replace(
                f := fewer(known, asked), rows=f.rows[:, :10], dealt=f.dealt[:, :10]
            ),
        )
        ten = around(known, C)
    torch.testing.assert_close(few.features, ten.features, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(few.leaning, ten.leaning)
    assert (few.variance > around(known, C).variance).all()


def test_stations_that_measure_many_times_leave_no_squares_on_a_map():
    """96 rows near a cell's centre would be of eight stations, and a cell of sixteen."""
    rng = np.random.default_rng(0)
    P, times = rng.uniform(0, 10.0, (60, 2)), np.arange(46.0) / 46
    X = np.column_stack([np.repeat(P, 46, axis=0), np.tile(times, 60)])
    d = np.linalg.norm(P[:, None] - P[None], axis=-1)
    f = np.linalg.cholesky(np.exp(-d / 4.0) + 1e-9 * np.eye(60)) @ rng.standard_normal(60)
    y = np.repeat(f, 46) + 0.2 * rng.standard_normal(len(X))
    options = FieldOptions(smooth=False, steps=1, n_targets=50, metric=False)
    field = LocalField.fit(torch.from_numpy(X), torch.from_numpy(y), None, time=2, options=options)
    known = field.known
    lengths = torch.tensor([[4.0, 4.0, 100.0]]).double()
    kernel = LocalKernel((lengths / known.frame.space_unit).log(), torch.zeros(1).double(), ("matern12",), 2)
    known = replace(
        known, gp=replace(known.gp, kernel=kernel, tau2=0.04, s2=0.0, weighted=False, degrees_of_freedom=None)
    )
    known = known.told(known.gp.observed(known.seen.X, known.seen.value, known.seen.counts))
    E, N = np.meshgrid(np.linspace(0, 10, 40), np.linspace(0, 10, 40))
    C = known.frame.coordinates(torch.from_numpy(np.column_stack([E.ravel(), N.ravel(), np.ones(1600)])))
    left = known.left
    K = kernel(left.X, left.X) + torch.diag(left.noise_variance)
    exact = kernel(C, left.X) @ torch.linalg.solve(K, left.value)
    error = around(known, C).mean - exact
    assert (
        error.square().mean().sqrt() < 0.07 * exact.std()
    )  # .10 with as many rows and as large cells as elsewhere
    assert error.abs().max() < 0.32 * exact.std()
