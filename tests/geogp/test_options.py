"""What a field's options are when nothing is said, what they refuse, and the kernel that a fit starts from."""

from dataclasses import asdict

import numpy as np
import pytest
import torch

from geogp.errors import InvalidInput
from geogp.field import FieldOptions
from geogp.field.frame import frame_of

#: Of every table whatever its size and units: to change one of these is to change every map.
DEFAULTS = {
    "neighbours": 48, "components": None, "smooth": True, "row_noise": True, "testimony": True, "regional": 100.0,
    "varying": None, "following": False, "warp": True, "peak": True, "season": "year", "metric": True, "n_targets": 12000, "block_sizes": (10.0, 30.0),
    "members": 6, "hidden": 48, "epochs": 15, "steps": 120, "batch": 128, "region_rows": None, "seed": 0,
}  # fmt: skip


def test_nothing_said_they_are_these():
    assert asdict(FieldOptions()) == DEFAULTS


@pytest.mark.parametrize("name", ["neighbours", "n_targets", "hidden", "epochs", "steps", "batch"])
def test_numbers_of_things_are_whole_and_at_least_one(name):
    assert getattr(FieldOptions(**{name: 1}), name) == 1
    for value in (0, -1, 1.0, True, "3"):
        with pytest.raises(InvalidInput, match=f"{name} must be a whole number, at least 1; got"):
            FieldOptions(**{name: value})


@pytest.mark.parametrize(
    ("members", "some"), [(1, True), (3, True), (9, True), (2, False), (4, False), (0, False), (-3, False)]
)
def test_members_are_one_or_threes(members, some):
    if some:
        assert FieldOptions(members=members).members == members
        return
    with pytest.raises(InvalidInput, match="members is a multiple of 3, or 1"):
        FieldOptions(members=members)


@pytest.mark.parametrize("rows", [1999, 2000.0, True, 0, -5])
def test_a_region_has_two_thousand_rows_or_more(rows):
    with pytest.raises(InvalidInput, match="region_rows is a whole number of rows, 2000 or more"):
        FieldOptions(region_rows=rows)


def test_rows_are_divided_into_as_few_regions_as_hold_them():
    o = FieldOptions(region_rows=2000)
    assert [o.n_regions(n) for n in (0, 1, 2000, 2001, 4000, 4001)] == [1, 1, 1, 2, 2, 3]
    assert FieldOptions().n_regions(10**7) == 1


def test_a_thousand_rows_tell_a_smooth_noise():
    assert [FieldOptions().is_smooth(n) for n in (999, 1000)] == [False, True]
    assert not FieldOptions(smooth=False).is_smooth(1000)


def frame(time=None, others=0):
    X = np.random.default_rng(0).normal(size=(30, 3 + others))
    return frame_of(X[:, [0, 1, *range(2 if time else 3, 3 + others)]], (0, 1), time)


@pytest.mark.parametrize(
    ("time", "others", "spacings", "spans"),
    [(None, 0, (10.0, 50.0), None), (2, 0, (5.0, 26.0), (4.0, 4.0)), (2, 2, (5.0, 26.0), (4.0, 4.0)), (None, 1, (10.0, 50.0), None)],
)  # fmt: skip
def test_a_fit_starts_from_what_is_near_and_the_wide_field(time, others, spacings, spans):
    kernel = FieldOptions().starting_kernel(frame(time, others))
    lengths = kernel.log_lengthscale.exp().numpy()
    wanted = [
        [s / 3.5] * 2 + ([span / 0.4] if spans else []) + [4.0] * others
        for s, span in zip(spacings, spans or (0, 0))
    ]
    np.testing.assert_allclose(lengths, wanted)
    np.testing.assert_allclose(kernel.log_variance.exp(), [0.15, 0.15])
    assert kernel.smoothness == ("matern32", "matern32") and kernel.time_axis == time


def test_components_that_are_asked_for_are_taken():
    o = FieldOptions(components=(("matern12", 7.0, 0.8),))
    kernel = o.starting_kernel(frame(2))
    torch.testing.assert_close(kernel.log_lengthscale.exp(), torch.tensor([[2.0, 2.0, 2.0]]).double())
    assert kernel.smoothness == ("matern12",) and kernel.log_variance.exp().tolist() == pytest.approx([0.15])
