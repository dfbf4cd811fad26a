"""What Python is asked for is refused by the bounds of the command line, and no answer is a stale one."""

import numpy as np
import pytest
import torch
from odc.geo.geobox import GeoBox

import geogp
from geogp.blocks import MomentsCache, moments_of
from geogp.engines.asked import device_named, plan_of
from geogp.errors import ImpossibleCombination, InvalidInput
from geogp.run import Run
from geogp.transforms import transform_for
from tests.geogp.test_contracts import field, small

CRS = "EPSG:32604"
BOX = GeoBox.from_bbox((0, 0, 10, 10), CRS, resolution=1)


@pytest.fixture(scope="module")
def model():
    X, y = field()
    return small("sgpr").fit(X, y, np.arange(1, 61))


@pytest.mark.parametrize("device", ["no-such-device", "cuda:", "cuda:x", "cuda:99", "mps", "tpu", ""])
def test_a_device_that_is_not_here_is_refused_by_name(device):
    with pytest.raises(InvalidInput, match=f"device '{device}'"):
        small("sgpr", device=device).fit(*field())
    with pytest.raises(InvalidInput, match=f"device '{device}'"):
        geogp.GPRegressor.from_state(*small("sgpr").fit(*field()).state(), device=device)


def test_auto_is_what_there_is():
    assert device_named("auto") == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("counts", [0, -3, 0.5, np.nan, np.inf, 1e10])
def test_what_is_no_number_of_measurements_is_refused_everywhere(model, counts):
    X, y = field()
    run = Run("run", {"target": "value", "data": {"crs": CRS}}, model)
    questions = (
        lambda: model.predict(X, counts=counts),
        lambda: model.predict(X, counts=np.full(60, counts)),
        lambda: model.predict(X, return_cov=True, latent=True, counts=counts),
        lambda: model.interval(X, counts=counts),
        lambda: model.exceedance(X, 0.0, counts=counts),
        lambda: model.sample_y(X, counts=counts),
        lambda: geogp.area_moments(model, X, np.full((1, 60), 1 / 60), counts=counts),
        lambda: geogp.suggest_places(model, X, 1, counts=counts),
        lambda: geogp.predict(run, BOX, tests=counts),
        lambda: small("sgpr").fit(X, y, np.full(60, counts)),
        lambda: geogp.summarise(model, X, y, np.full(60, counts)),
    )
    for ask in questions:
        with pytest.raises(InvalidInput, match="at least 1"):
            ask()


@pytest.mark.parametrize(
    ("name", "choice"),
    [
        ("geogp", {"backbone": "mlp"}),
        ("geogp", {"residual": "none"}),
        ("geogp", {"noise": "constant"}),
        ("local-gp", {"expansion": "rbf"}),
        ("gp-rbf", {"noise": "smooth"}),
        ("gp-rbf", {"residual": "unit"}),
        ("dkl", {"objective": "collapsed_elbo"}),
        ("gp-averaged", {"noise": "counts"}),
    ],
)
def test_a_choice_that_would_change_nothing_is_refused(name, choice):
    (kind, value), *_ = choice.items()
    with pytest.raises(ImpossibleCombination, match=f"{kind} '{value}' cannot go with method '{name}'"):
        geogp.GPRegressor(name, **choice).fit(*field())


def test_a_choice_beside_a_stand_in_is_refused():
    """Three columns are no map: what is asked for of the field would be dropped in silence."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    with pytest.raises(ImpossibleCombination, match=r"noise 'counts' .* 'gp-averaged' takes its place"):
        geogp.GPRegressor(noise="counts").fit(X, y)
    parameters = geogp.GPRegressor(noise="counts").get_params()
    # ... but a fit that was stored when it was not refused still opens.
    assert plan_of(parameters, 3, False, 40, stored="gp-averaged").row.engine == "averaged"


@pytest.mark.parametrize("number", [0, -3, 2.5, True, "x"])
@pytest.mark.parametrize("name", ["neighbours", "n_targets", "hidden", "epochs", "steps", "batch"])
def test_options_of_the_field_are_numbers_of_things(name, number):
    with pytest.raises(InvalidInput, match=f"{name} must be a whole number, at least 1; got {number!r}"):
        geogp.GPRegressor(options={name: number}).fit(*field())


def test_steps_in_the_options_of_an_average_are_held_to_the_same():
    with pytest.raises(InvalidInput, match="steps must be a whole number, at least 1; got -3"):
        geogp.GPRegressor("gp-averaged", options={"steps": -3}).fit(*field())


@pytest.mark.parametrize("scales", [(0.0,), (1.0, -4.0), (np.nan,), (np.inf,), (2.0, "x"), (None,)])
def test_scales_that_hear_nothing_are_refused(scales):
    with pytest.raises(InvalidInput, match="fourier_scales must be positive numbers"):
        small("dbk-silu", fourier_scales=scales).fit(*field())


def spoilt(values, value):
    """Values whose last one is another."""
    out = np.array(values, dtype=float)
    out[-1] = value
    return out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda X, y, n: (X, spoilt(y, np.nan), n), "y holds NaN or infinity in 1 of 20 rows, row 19 first"),
        (lambda X, y, n: (X, spoilt(y, 1e300), n), "y holds a value of size 1e\\+300"),
        (lambda X, y, n: (spoilt(X, np.nan), y, n), "NaN"),
        (lambda X, y, n: (spoilt(X, 1e300), y, n), "X holds"),
        (lambda X, y, n: (np.c_[X, X], y, n), "4 features"),
        (lambda X, y, n: (X, y[:10], n), r"validation has 20 rows of X and values of shape \(10,\)"),
        (lambda X, y, n: (X, y, spoilt(n, 0)), "at least 1"),
        (lambda X, y, n: (X, y, None), "have counts and those of validation none"),
        (lambda X, y, n: (X, spoilt(y, 0.0), n), "holds a value of 0, which the scale of the fit"),
    ],
)
def test_validation_rows_are_held_to_what_training_rows_are(change, words):
    X, y = field()
    y, n = np.exp(y), np.arange(1.0, 61.0)
    held = change(X[:20], y[:20], n[:20])
    with pytest.raises(ValueError, match=words):
        small("dbk-rbf", target_transform="log10").fit(X, y, n, validation=held)


def test_validation_rows_without_counts_may_be_a_pair_and_nothing_else():
    X, y = field()
    pair, three = (
        small("dbk-silu").fit(X, y, validation=held).predict(X)
        for held in ((X[:20], y[:20]), (X[:20], y[:20], None))
    )
    np.testing.assert_array_equal(pair, three)
    for held, parts in (((X[:20],), 1), ((X[:20], None, None), 3), ((X, y, None, None), 4)):
        with pytest.raises(InvalidInput, match=rf"validation is \(X, y, counts\).*got {parts} parts"):
            small("dbk-silu").fit(X, y, validation=held)


def test_other_numbers_that_are_none_are_refused(model):
    X, _ = field()
    run = Run("run", {"target": "download", "data": {"crs": CRS}}, model)
    for level in (0, 1, 95, np.nan):
        with pytest.raises(InvalidInput, match="level must lie between 0 and 1"):
            model.interval(X, level)
        with pytest.raises(InvalidInput, match="level must lie between 0 and 1"):
            geogp.predict(run, BOX, level=level)
    for threshold in (np.nan, np.inf, -1.0, 0.0):
        with pytest.raises(InvalidInput, match="thresholds"):
            geogp.predict(run, BOX, thresholds=(25.0, threshold))
    for threshold in (np.nan, np.inf):
        with pytest.raises(InvalidInput, match="a threshold must be a finite number"):
            model.exceedance(X, threshold)
    for p in (-0.1, 90, np.nan):
        with pytest.raises(InvalidInput, match="p of a quantile must lie between 0 and 1"):
            model.predictive(X).quantile(p)
    for metres in (0, -5.0, np.nan):
        with pytest.raises(InvalidInput, match="max_distance_m must be a positive number of metres"):
            geogp.predict(run, BOX, max_distance_m=metres)
    with pytest.raises(InvalidInput, match="n_samples must be 1 or more; got 0"):
        model.sample_y(X, 0)
    with pytest.raises(InvalidInput, match=r"shape \(60,\); got shape \(3,\)"):
        model.predict(X, counts=[1, 2, 3])


@pytest.mark.parametrize("unit", [1e-12, 1e-150, 1e12])
@pytest.mark.parametrize("method", ["sgpr", "local-gp"])
def test_the_unit_of_the_target_changes_nothing(unit, method):
    X, y = field()
    changes = {"options": {"steps": 5}} if method == "local-gp" else {}
    plain, scaled = (small(method, **changes).fit(X, k * y) for k in (1.0, unit))
    for a, b in zip(plain.predict(X, return_std=True), scaled.predict(X, return_std=True)):
        np.testing.assert_allclose(b, unit * a, rtol=1e-4, atol=1e-4 * unit)
    positive = np.exp(np.tile(y, 10) + 0.3 * np.random.default_rng(0).standard_normal(600))
    names = [transform_for("auto", k * positive).to_dict()["inner"]["name"] for k in (1.0, unit)]
    assert names[0] == names[1]


def test_a_constant_target_stays_constant():
    X, _ = field()
    for constant in (0.0, 0.1, 1e-12, 1e9):
        model = small("sgpr").fit(X, np.full(60, constant))
        assert model.target_sd_ == (constant or 1.0)
        assert np.isfinite(model.predict(X[:3])).all()


def test_another_predictor_is_asked_though_the_places_are_the_same():
    X, y = field(1000)
    model = small("fmgp", options={"predictor": lambda X: np.zeros(len(X))}).fit(X, y)
    cache = MomentsCache(fewest_rows=10)
    assert (model.predict(X) == 0).all() and (moments_of(model, X, None, cache).in_units == 0).all()
    model.attach(lambda X: np.ones(len(X)))
    assert (model.predict(X) == 1).all()
    np.testing.assert_allclose(model.sample_y(X[:5], 4000).mean(1), 1.0, atol=0.1)
    assert (moments_of(model, X, None, cache).in_units == 1).all()


def test_a_cache_that_is_shared_keeps_models_apart():
    X, y = field(1000)
    low, high = (small("sgpr").fit(X, y + shift) for shift in (0.0, 1e3 * y))
    cache = MomentsCache(fewest_rows=10)
    first, second = (moments_of(model, X, None, cache) for model in (low, high))
    assert not torch.equal(first.mean, second.mean)
    assert moments_of(low, X, None, cache) is first and moments_of(high, X.copy(), None, cache) is second


def test_a_second_fit_and_an_update_answer_for_themselves():
    X, y = field(200)
    model = small("sgpr").fit(X, y)
    before = model.predict(X)
    newer = geogp.refresh(model, geogp.summarise(model, X[:50], y[:50]).values())
    assert not np.array_equal(newer.predict(X), before) and np.array_equal(model.predict(X), before)
    model.fit(X, -y)
    assert np.corrcoef(model.predict(X), before)[0, 1] < 0


def test_a_local_field_takes_steps_epochs_and_width_of_its_own():
    X, y = field(40)
    model = geogp.GPRegressor("geogp", steps=4, epochs=2, hidden=8, options={"epochs": 3}).fit(X, y)
    assert model.engine_.plan.options == {"steps": 4, "epochs": 3, "hidden": 8}


def test_the_two_columns_beside_a_time_are_the_position_and_stay_it():
    rng = np.random.default_rng(0)
    X = np.column_stack([2020 + rng.integers(0, 4, 80) / 4, rng.uniform(0, 1e4, (80, 2))])
    y = np.sin(X[:, 1] / 2e3) + 0.1 * rng.standard_normal(80)
    kinds = {"time": 0, "random_state": 0, "target_transform": "identity"}
    told = geogp.GPRegressor(spatial=(1, 2), **kinds).fit(X, y)
    model = geogp.GPRegressor(**kinds).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), told.predict(X))
    assert model.spatial is None  # as it was asked for
    again = geogp.GPRegressor.from_state(*model.state())
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_a_run_from_before_took_columns_beside_a_time_for_features_and_still_does():
    asked = geogp.GPRegressor("dbk-rbf", time=2).get_params(deep=False)
    assert plan_of(asked, 3, False, 80, stored="").shape.spatial is None
    assert plan_of(asked, 3, False, 80).shape.spatial == (0, 1)
