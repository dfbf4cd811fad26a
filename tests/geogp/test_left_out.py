"""Sets of left-out rows: looked at side by side, fewer of them the more rows there are, and the same whatever is looked at
together."""

import numpy as np
import pytest
import torch

import geogp
from geogp.field import FieldOptions, left_out, neighbours
from geogp.field.candidate import _share
from geogp.field.frame import frame_of
from geogp.field.noise import fit as noise_fit
from geogp.holdout import left_out_kinds
from geogp.linalg.distinct import order_of


@pytest.fixture
def rows():
    return torch.rand(1200, 2, generator=torch.Generator().manual_seed(0)).double()


@pytest.mark.parametrize(
    ("n", "most"), [(1000, 3000), (1_000_000, 3), (3_000_000, 1), (10_000_000, 1), (400_000_000, 1)]
)
def test_fewer_sets_at_once_the_more_rows(n, most):
    assert left_out.most_at_once(n) == most


def test_sets_are_looked_at_side_by_side_and_bounded(rows, monkeypatch, kernels_in_parts):
    """Both where neighbours are found and where the noise learns from what is left out."""
    asked = {}
    for module in (left_out, noise_fit):

        def spy(work, pieces, *, most=None, name=module.__name__, real=module.side_by_side):
            if most is None:
                return real(work, pieces)
            asked[name] = most
            return real(work, pieces, most=most)

        monkeypatch.setattr(module, "side_by_side", spy)
    monkeypatch.setattr(left_out, "ROWS_AT_ONCE", 5 * len(rows))
    o = {"steps": 4, "epochs": 1, "n_targets": 1500, "members": 1}
    geogp.GPRegressor(random_state=0, options=o).fit(rows.numpy(), rows[:, 0].sin().numpy())
    assert asked == {left_out.__name__: 5, noise_fit.__name__: 5}


def test_what_is_found_is_that_of_each_set_alone(rows, monkeypatch):
    frame = frame_of(rows.numpy(), (0, 1), None)
    C = frame.coordinates(rows)
    many = left_out.leave_out(C, frame, FieldOptions())
    monkeypatch.setattr(left_out, "ROWS_AT_ONCE", 1)
    alone = left_out.leave_out(C, frame, FieldOptions())
    assert [out.kind for out in many] == [out.kind for out in alone]
    for a, b in zip(many, alone, strict=True):
        assert torch.equal(a.neighbours, b.neighbours) and torch.equal(a.rows, b.rows)
        # None of the rows that are left out is a neighbour, and none is known.
        assert not np.isin(a.neighbours.numpy(), a.rows.numpy()).any()
        assert not a.known[a.rows].any()


def test_what_is_left_out_again_hears_the_rest_and_is_none_of_many_rows(rows, monkeypatch):
    frame = frame_of(rows.numpy(), (0, 1), None)
    C = frame.coordinates(rows)
    again = left_out.leave_out_again(C, frame, FieldOptions(n_targets=2000, neighbours=20))
    assert {out.kind for out in again} == {"rows", "blocks"}
    for out in again:
        assert not out.known[out.rows].any()
        found = neighbours.query(frame.search_among(C[out.reference]), C[out.rows].numpy(), 20)
        assert np.array_equal(out.neighbours.numpy(), out.reference.numpy()[found])
    monkeypatch.setattr(left_out, "order_of", lambda _: pytest.fail("asked for the order of many rows"))
    assert left_out.leave_out_again(C, frame, FieldOptions(n_targets=400)) == []


@pytest.mark.parametrize("in_order", [True, False])
def test_a_set_s_neighbours_are_those_of_its_own_search(rows, in_order):
    """Rows of one place in two quarters among them, in the order of coordinates or in that of a metric that was turned."""
    places = rows[rows[:, 0].argsort()][:600].repeat_interleave(2, 0)
    X = torch.cat([places, torch.arange(1200)[:, None] % 2], dim=1)
    frame = frame_of(X.numpy(), (0, 1), 2, (1.0, 0.0, 0.0, 1.0) if in_order else (0.8, -0.6, 0.6, 0.8))
    C = frame.coordinates(X)
    assert (order_of(list(C.numpy().T)) is None) == in_order
    for out in left_out.leave_out(C, frame, FieldOptions(neighbours=20)):
        found = neighbours.query(frame.search_among(C[out.reference]), C[out.rows].numpy(), 20)
        assert np.array_equal(out.neighbours.numpy(), out.reference.numpy()[found])


@pytest.mark.parametrize("asked", [300, 100_000])
def test_they_are_those_of_the_places_and_times_and_no_more_than_there_are(rows, asked):
    X = torch.cat([rows, (8 * rows[:, :1] * rows[:, 1:]).floor()], dim=1)
    frame = frame_of(X.numpy(), (0, 1), 2)
    C, o = frame.coordinates(X), FieldOptions(n_targets=asked, neighbours=40)
    plan = left_out_kinds(
        C[:, :2].numpy(), C[:, 2].numpy(), n_targets=min(asked, 1200), block_sizes=o.block_sizes, sides=True
    )
    out = left_out.leave_out(C, frame, o)
    assert {"rows", "blocks", "sides", "future"} == {one.kind for one in out}
    for one, said in zip(out, plan, strict=True):
        assert one.kind == said.kind and one.reference.tolist() == said.reference.tolist()
        assert one.rows.tolist() == said.target.tolist()


def test_where_as_many_are_asked_for_as_there_are_all_that_are_known_are_neighbours(rows):
    frame = frame_of(rows[:400].numpy(), (0, 1), None)
    for out in left_out.leave_out(frame.coordinates(rows[:400]), frame, FieldOptions(neighbours=450)):
        assert (out.neighbours.sort(1).values == out.reference).all()


def test_of_few_rows_none_are_left_out(rows):
    for n, some in ((399, False), (400, True)):
        frame = frame_of(rows[:n].numpy(), (0, 1), None)
        assert bool(left_out.leave_out(frame.coordinates(rows[:n]), frame, FieldOptions())) == some


@pytest.mark.parametrize("k", [1, 4, 9])
def test_the_nearest_others_are_the_nearest_and_never_the_row_itself(k):
    P = torch.rand(60, 2, generator=torch.Generator().manual_seed(k)).double()
    away = torch.cdist(P, P).fill_diagonal_(torch.inf)
    assert torch.equal(left_out.nearest_others(P, k), away.argsort(1)[:, :k])
    crowd = torch.cat([P, P[:1].repeat(20, 1)])  # more at one place than are asked for
    found = left_out.nearest_others(crowd, k)
    assert found.shape == (80, k) and (found != torch.arange(80)[:, None]).all()
    for i in (0, *range(60, 80)):
        assert (crowd[found[i]] == P[0]).all()
    few = left_out.nearest_others(P[:3], 5)
    assert ((few >= 0).sum(1) == 2).all() and (few[:, 2:] == -1).all()


def test_the_horizon_is_the_farthest_that_was_left_out():
    X = torch.rand(900, 3, generator=torch.Generator().manual_seed(0)).double()
    X[:, 2] = (12 * X[:, 2]).floor()
    frame = frame_of(X.numpy(), (0, 1), 2)
    C = frame.coordinates(X)
    out = left_out.leave_out(C, frame, FieldOptions())
    ahead = [
        float(frame.times(C[o.rows]).max() - frame.times(C[o.reference]).max())
        for o in out
        if o.kind == "future"
    ]
    assert len(set(ahead)) > 1 and left_out.horizon_of(out, C, frame) == pytest.approx(max(ahead))
    assert left_out.horizon_of([o for o in out if o.kind != "future"], C, frame) == 0.0


def test_sides_count_less_than_what_most_predictions_are_like():
    kinds = ("rows", "blocks", "future", "sides")
    assert [_share(kind) for kind in kinds] == [1.0, 1.0, 1.0, 0.3]
