"""Sets of left-out rows: looked at side by side, fewer of them the more rows there are, and the same whatever is looked at
together."""

import numpy as np
import pytest
import torch

import geogp
from geogp.field import FieldOptions, left_out
from geogp.field.frame import frame_of
from geogp.field.noise import fit as noise_fit


@pytest.fixture
def rows():
    return torch.rand(1200, 2, generator=torch.Generator().manual_seed(0)).double()


@pytest.mark.parametrize(
    ("n", "most"), [(1000, 3000), (1_000_000, 3), (3_000_000, 1), (10_000_000, 1), (400_000_000, 1)]
)
def test_fewer_sets_at_once_the_more_rows(n, most):
    assert left_out.most_at_once(n) == most


def test_sets_are_looked_at_side_by_side_and_bounded(rows, monkeypatch):
    """Both where neighbours are found and where the noise learns from what is left out."""
    asked = {}
    for module in (left_out, noise_fit):

        def spy(work, pieces, *, most, name=module.__name__, real=module.side_by_side):
            asked[name] = most
            return real(work, pieces, most=most)

        monkeypatch.setattr(module, "side_by_side", spy)
    monkeypatch.setattr(left_out, "ROWS_AT_ONCE", 5 * len(rows))
    o = {"steps": 4, "epochs": 1}
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
