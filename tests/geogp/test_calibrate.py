"""Calibration: exact finite-sample coverage, no change without evidence, an honest certificate."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest

from geogp.calibrate import (
    Calibration,
    certificate,
    conformal_factor,
    fit_calibration,
    groups_of,
    standardised_miss,
)
from geogp.predictive import Predictive
from geogp.scores import SMALLEST_GROUP, binomial_band


def draws(n, stretch=1.0, seed=0, df=5.0):
    rng = np.random.default_rng(seed)
    one = np.ones(n)
    return stretch * rng.standard_t(df, n), 0 * one, one, df * one


def test_the_factor_covers_new_rows():
    covered = []
    for seed in range(200):
        miss = standardised_miss(*draws(99, 1.7, seed), 0.95)
        fresh = standardised_miss(*draws(50, 1.7, 10_000 + seed), 0.95)
        covered.append((fresh <= conformal_factor(miss)).mean())
    low, _ = binomial_band(200 * 50, 0.95)
    # P(covered) is at least .95 exactly; the 200 factors add a sd of sqrt(.95 * .05 / 100 / 200) = .0015.
    assert np.mean(covered) > low - 3 * 0.0015


def test_no_factor_without_evidence():
    miss = standardised_miss(*draws(2000), 0.95)
    got = fit_calibration(miss, np.arange(2000) % 2)
    assert got.pooled == 1.0 and got.factors == (1.0, 1.0)


def test_rows_of_one_block_are_not_evidence():
    # 20 blocks of 100 rows; all rows of two blocks miss: 10% of the rows, two votes.
    inside = np.where(np.repeat(np.arange(20), 100) < 2, 2.0, 0.5)
    block = np.repeat(np.arange(20), 100)
    # 5 points too few where the band is 1.3 wide: 1 - (1.3/5)² = .93 of the way to the conformal factor 2, in logs.
    assert fit_calibration(inside, 0 * block).pooled == pytest.approx(2.0**0.88, rel=0.05)
    assert fit_calibration(inside, 0 * block, cluster=block).pooled == 1.0


def test_the_factor_grows_from_one_as_the_evidence_does():
    # Of 1,000 rows k miss by a factor of 3: 2.58 standard errors end near 71, and nothing jumps there.
    factors = [fit_calibration(np.where(np.arange(1000) < k, 3.0, 0.5), np.zeros(1000, int)).pooled for k in
               (50, 65, 73, 80, 120, 400)]  # fmt: skip
    assert factors[0] == factors[1] == 1.0
    assert 1.0 < factors[2] < 1.3
    assert np.all(np.diff(factors[1:]) > 0)
    assert 2.8 < factors[-1] <= 3.0


def test_wide_and_narrow_groups_get_their_own_factor_and_small_ones_the_pooled():
    y, m, s, df = draws(3100)
    group = np.repeat([0, 1, 2], [1500, 1500, 100])
    y = y * np.array([0.6, 1.8, 1.0])[group]
    got = fit_calibration(standardised_miss(y, m, s, df, 0.95), group)
    assert got.factors[0] == pytest.approx(0.6, rel=0.12)
    assert got.factors[1] == pytest.approx(1.8, rel=0.12)
    assert got.factors[2] is None
    assert got.factor(np.array([2, 7]))[0] == got.pooled == got.factor(np.array([2, 7]))[1]


def test_groups_cross_count_bins_with_distance():
    group = groups_of(np.array([1.0, 1.0, 3.0, 10.0, 500.0]), np.array([0.0, 9.0, 0.0, 0.0, 9.0]))
    assert group.tolist() == [0, 1, 2, 4, 7]


def test_empty_calibration_changes_nothing():
    assert Calibration().factor(np.array([0, 3])).tolist() == [1.0, 1.0]
    assert conformal_factor(np.empty(0)) == 1.0


def test_certificate_reports_bands_and_judges_only_large_groups():
    y, m, s, df = draws(4000)
    few = np.arange(4000) < 100
    inside = {level: standardised_miss(y, m, s, df, level) <= 1.0 for level in (0.5, 0.95)}
    got = certificate(inside, {"few": few, "none": np.zeros(4000, dtype=bool)})
    assert json.loads(json.dumps(got)) == got and got["levels"] == [0.5, 0.95]
    assert set(got["groups"]) == {"all", "few"}
    everyone = got["groups"]["all"]
    assert everyone["judged"] and everyone["within"] == [True, True]
    assert got["groups"]["few"]["within"] == [None, None] and not got["groups"]["few"]["judged"]
    for achieved, (low, high) in zip(everyone["achieved"], everyone["band"]):
        assert low <= achieved <= high
    narrow = {0.95: standardised_miss(y, m, 0.8 * s, df, 0.95) <= 1.0}
    assert certificate(narrow, {})["groups"]["all"]["within"] == [False]


def test_gaussian_rows_have_infinite_degrees_of_freedom():
    miss = standardised_miss(np.array([1.959964]), np.zeros(1), np.ones(1), np.array([np.inf]), 0.95)
    assert miss[0] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("percent", [50, 80, 95, 99])
def test_the_factor_is_the_smallest_of_the_rows_that_promises_the_level(percent):
    """The k-th of n exchangeable rows is at or above a new one with probability k / (n + 1): exactly, by counting."""
    rng = np.random.default_rng(percent)
    for n in (1, 2, 9, 18, 19, 20, 99, 100, 199, 240):
        miss = rng.permutation(np.arange(1.0, n + 1))
        promised = [k for k in range(1, n + 1) if Fraction(k, n + 1) >= Fraction(percent, 100)]
        assert conformal_factor(miss, percent / 100) == (promised[0] if promised else n), n
    assert conformal_factor(np.arange(1.0, 200.0)) == 190.0  # of 95% where nothing is said


def test_a_miss_of_one_is_the_end_of_the_interval():
    """On either side, of skewed distributions too, wherever they lie and however wide they are."""
    location, scale = np.array([3.0, -2.0, 40.0]), np.array([0.5, 2.0, 7.0])
    shape = {"degrees_of_freedom": np.array([4.0, 9.0, np.inf]), "log_skewness": np.array([-0.3, 0.0, 0.3])}
    for level in (0.5, 0.95):
        for end in Predictive(location, scale, **shape).interval(level):
            for times in (0.25, 1.0, 3.0):
                y = location + times * (end - location)
                miss = standardised_miss(y, location, scale, level=level, **shape)
                np.testing.assert_allclose(miss, times, rtol=1e-9)


def test_counts_and_distances_at_an_edge_belong_to_the_lower_group():
    counts = np.array([1.0, 2.0, 4.0, 5.0, 19.0, 20.0])
    assert groups_of(counts, 0 * counts).tolist() == [0, 2, 2, 4, 4, 6]
    assert groups_of(counts, 0 * counts + 1.75).tolist() == [0, 2, 2, 4, 4, 6]
    assert groups_of(counts, 0 * counts + 1.76).tolist() == [1, 3, 3, 5, 5, 7]


def test_each_group_has_its_factor_and_any_other_number_the_pooled_one():
    known = Calibration(2.0, (3.0, None, 5.0))
    assert known.factor(np.array([-1, 0, 1, 2, 3, 99])).tolist() == [2.0, 3.0, 2.0, 5.0, 2.0, 2.0]
    assert known.level == 0.95


def test_rows_at_the_end_of_their_interval_are_inside():
    miss = np.where(np.arange(1000) < 950, 1.0, 2.0)
    assert fit_calibration(miss, np.zeros(1000, int)).pooled == 1.0


def test_a_group_needs_so_many_rows_and_no_more():
    for size, own in ((SMALLEST_GROUP - 1, False), (SMALLEST_GROUP, True)):
        group = np.repeat([0, 1], [size, 2000])
        got = fit_calibration(np.where(group == 0, 2.0, 0.5), group)
        assert (got.factors[0] is not None) == own and got.rows == (size, 2000)
    got = fit_calibration(np.full(3, 2.0), np.array([1, 1, 1]), smallest=3)
    assert got.factors[0] is None and got.factors[1] > 1.0  # an empty group has no factor of its own


def test_the_factor_is_that_of_the_formula():
    """Of n rows k lie outside at a miss of 3: 3 to the power 1 - (m/d)^2, with m the wider of band and blocks."""
    n, k = 1000, 120
    miss, d = np.where(np.arange(n) < k, 3.0, 0.5), k / n - 0.05
    band = 0.95 - binomial_band(n, 0.95)[0]
    rows = 2.58 * math.sqrt((k / n) * (1 - k / n) / n)
    got = fit_calibration(miss, np.zeros(n, int)).pooled
    assert got == pytest.approx(3.0 ** (1 - (max(band, rows) / d) ** 2), rel=1e-12)
    wide = fit_calibration(
        np.full(n, 0.5), np.zeros(n, int)
    ).pooled  # all inside: blocks say nothing, the band is .018
    above = binomial_band(n, 0.95)[1] - 0.95
    assert wide == pytest.approx(0.5 ** (1 - (above / 0.05) ** 2), rel=1e-12)


def test_no_rows_need_no_factor():
    got = fit_calibration(np.empty(0), np.empty(0, int))
    assert (got.pooled, got.factors, got.rows) == (1.0, (), ())


def test_a_share_at_either_end_of_its_band_is_within_and_the_next_row_is_not():
    n = SMALLEST_GROUP
    low, high = (round(n * end) for end in binomial_band(n, 0.95))
    for hits, within in ((low - 1, False), (low, True), (high, True), (high + 1, False)):
        got = certificate({0.95: np.arange(n) < hits}, {})["groups"]["all"]
        assert got["judged"] and got["within"] == [within] and got["n"] == n
