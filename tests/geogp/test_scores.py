"""Scores against their formulas written out, and against scoringrules."""

import math

import numpy as np
import pytest
import scoringrules
from scipy import stats

from geogp.predictive import Predictive
from geogp.scores import (
    LEVELS,
    binomial_band,
    centred_quantile_metric,
    error_of_mean,
    interval_score,
    pit,
    pool,
    pool_strata,
    score,
    score_strata,
)
from geogp.transforms import Log10

MEAN, SD = 3.0, 2.5  # of the training targets: scores are in units of z


def made(n: int = 400, seed: int = 0) -> tuple[Predictive, np.ndarray]:
    rng = np.random.default_rng(seed)
    m, s = rng.normal(MEAN, 1.0, n), rng.uniform(0.5, 2.0, n)
    return Predictive(m, s), m + s * rng.standard_normal(n)


def test_every_score_is_that_of_the_standardised_targets() -> None:
    predictive, y = made()
    z, m, s = (y - MEAN) / SD, (predictive.location - MEAN) / SD, predictive.scale / SD
    found = score(predictive, y, target_mean=MEAN, target_sd=SD)
    lower, upper = stats.norm.interval(0.95, m, s)
    expected = {
        "nll": -stats.norm.logpdf(z, m, s).mean(),
        "crps": scoringrules.crps_normal(z, m, s).mean(),
        "mae": np.abs(z - m).mean(),
        "rmse": math.sqrt(((z - m) ** 2).mean()),
        "interval_score95": scoringrules.interval_score(z, lower, upper, 0.05).mean(),
        "width95": (upper - lower).mean(),
    }
    for level in LEVELS:
        a, b = stats.norm.interval(level, m, s)
        expected[f"coverage{100 * level:.0f}"] = ((z > a) & (z < b)).mean()
    assert found == pytest.approx(expected, abs=1e-10) and list(expected)[-3:] == [
        "coverage50", "coverage80", "coverage95",
    ]  # fmt: skip


def test_an_observation_at_an_end_lies_inside() -> None:
    """Of 50, 80 and 95% intervals, each at its very ends."""
    one = Predictive(np.zeros(2), np.ones(2))
    for level in LEVELS:
        y = np.array([one.interval(level)[0][0], one.interval(level)[1][0]])
        assert score(one, y, target_mean=0.0, target_sd=1.0)[f"coverage{100 * level:.0f}"] == 1.0


def test_bounds_hold_the_crps_of_a_distribution_without_a_mean_and_of_no_other() -> None:
    heavy = Predictive(np.ones(3), np.full(3, 0.3), np.full(3, 3.0), Log10())
    y, bounds = np.array([5.0, 20.0, 40.0]), (1.0, 100.0)
    assert heavy.center != "mean"
    held = score(heavy, y, target_mean=0.0, target_sd=2.0, bounds=bounds)["crps"]
    assert held == pytest.approx(heavy.crps_of(lambda v: v, y, bounds=bounds).mean() / 2.0, rel=1e-12)
    light = Predictive(np.full(3, 10.0), np.full(3, 20.0))
    free, same = (
        score(light, y, target_mean=0.0, target_sd=1.0, bounds=b)["crps"] for b in (None, (9.0, 11.0))
    )
    assert free == same


@pytest.mark.parametrize("y", [-1.0, 0.0, 0.5, 2.0, 7.0])
def test_the_interval_score_is_width_and_what_a_miss_costs(y) -> None:
    found = interval_score(np.array([y]), np.array([0.0]), np.array([2.0]), 0.9)
    assert found[0] == pytest.approx(2.0 + 20.0 * max(-y, 0.0) + 20.0 * max(y - 2.0, 0.0))


def test_the_binomial_band_holds_its_mass_and_no_rows_say_nothing() -> None:
    for n, level, mass in ((500, 0.95, 0.99), (40, 0.5, 0.9), (1, 0.8, 0.5)):
        low, high = (round(v * n) for v in binomial_band(n, level, mass))
        inside = stats.binom.cdf(high, n, level) - stats.binom.cdf(low - 1, n, level)
        assert inside >= mass
        below, above = stats.binom.cdf(low - 1, n, level), stats.binom.sf(high, n, level)
        assert below < (1 - mass) / 2 and above <= (1 - mass) / 2
        assert stats.binom.cdf(low, n, level) >= (1 - mass) / 2 > stats.binom.sf(high, n, level) - 1e-12
        assert stats.binom.sf(high - 1, n, level) > (1 - mass) / 2  # and no wider
    assert binomial_band(0, 0.95) == (0.0, 1.0)


def test_the_error_of_a_mean_is_what_its_groups_say() -> None:
    rng = np.random.default_rng(0)
    values, each = rng.standard_normal(60), np.arange(60)
    assert error_of_mean(values, each) == pytest.approx(values.std() / 60**0.5, rel=1e-12)
    # Rows that are copies tell nothing new, whatever their groups are called and wherever they stand.
    order = rng.permutation(180)
    copies, names = np.repeat(values, 3)[order], (7 * np.repeat(each, 3) - 100)[order]
    assert error_of_mean(copies, names) == pytest.approx(error_of_mean(values, each), rel=1e-12)
    means = [rng.choice(values, 60).mean() for _ in range(4000)]
    assert error_of_mean(values, each) == pytest.approx(np.std(means), rel=0.05)


def test_strata_have_their_own_scores_sizes_and_bands() -> None:
    predictive, y = made(507)
    masks = {
        "many": np.arange(len(y)) < 500,
        "fewer": np.arange(len(y)) < 499,
        "one": np.arange(len(y)) == 3,
        "none": np.zeros(len(y), bool),
    }
    found = score_strata(predictive, y, masks, target_mean=MEAN, target_sd=SD, bounds=(0.0, 9.0))
    for name, mask in masks.items():
        n = int(mask.sum())
        own = {"n": n, "judged": n >= 500}
        if n:
            own |= {"coverage95_band": list(binomial_band(n, 0.95))}
            own |= score(predictive.rows(mask), y[mask], target_mean=MEAN, target_sd=SD)
        assert found[name] == own
    assert [found[name]["judged"] for name in masks] == [True, False, False, False]


def test_scores_of_parts_pool_to_those_of_the_whole() -> None:
    predictive, y = made(600)
    masks = [np.arange(600) < 100, (np.arange(600) >= 100) & (np.arange(600) < 350), np.arange(600) >= 350]
    parts = [score(predictive.rows(m), y[m], target_mean=MEAN, target_sd=SD) for m in masks]
    whole = score(predictive, y, target_mean=MEAN, target_sd=SD)
    assert pool([{**p, "said": "a"} for p in parts], [100, 250, 250]) == pytest.approx({**whole, "said": "a"})
    near = np.arange(600) % 3 == 0
    strata = [
        score_strata(predictive.rows(m), y[m], {"near": near[m], "none": ~m[m], "late": np.arange(600)[m] >= 350},
                     target_mean=MEAN, target_sd=SD)
        for m in masks
    ]  # fmt: skip
    pooled = pool_strata([*strata, {"near": {"n": 0}}])
    assert list(pool_strata([strata[0], {}])) == ["near", "none", "late"]
    for name, mask in (("near", near), ("late", np.arange(600) >= 350)):
        own = score_strata(predictive, y, {name: mask}, target_mean=MEAN, target_sd=SD)[name]
        band = own.pop("coverage95_band")
        assert pooled[name].pop("coverage95_band") == band and pooled[name] == pytest.approx(own)
    assert pooled["none"] == {"n": 0, "judged": False}


def test_the_centred_quantile_metric_is_the_mean_distance_of_coverages_over_levels() -> None:
    predictive, y = made(50)
    np.testing.assert_allclose(
        pit(predictive, y), stats.norm.cdf(y, predictive.location, predictive.scale), atol=1e-12
    )
    for told in ({"n_levels": 7}, {}):
        levels = [(i + 0.5) / told.get("n_levels", 100) for i in range(told.get("n_levels", 100))]
        gaps = []
        for level in levels:
            low, high = stats.norm.interval(level, predictive.location, predictive.scale)
            gaps.append(abs(((low <= y) & (y <= high)).mean() - level))
        assert centred_quantile_metric(predictive, y, **told) == pytest.approx(np.mean(gaps), abs=1e-12)
