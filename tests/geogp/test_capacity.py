"""Fourier scales chosen on rows held out of the training rows."""

import geogp  # first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
import numpy as np
import pytest

import geogp.basis.capacity as C
import geogp.engines.asked as E
from app.config import fit_config
from app.errors import InvalidInput as Refused
from geogp.basis.capacity import LADDER, SCALES, Capacity, choose_capacity
from geogp.errors import InvalidInput
from geogp.holdout import kinds_asked, one_of_each_kind
from geogp.run import save

pytestmark = pytest.mark.filterwarnings("ignore::geogp.errors.NotDistanceAware")

ROWS, BLOCKS = {"rows": 1.0}, {"blocks": 1.0}


def field(wavelength, n=4000, noise=0.3, seed=0):
    """Two plane waves of one length over a square of 1,000 units."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1000, (n, 2))
    angle, phase = rng.uniform(0, np.pi, 2), rng.uniform(0, 2 * np.pi, 2)
    k = 2 * np.pi / wavelength * np.column_stack([np.cos(angle), np.sin(angle)])
    return X, np.cos(X @ k.T + phase).sum(1) + noise * rng.standard_normal(n)


def test_short_waves_are_heard_where_there_are_any():
    X, y = field(25.0, n=8000)  # 73 radians per standard deviation of position
    assert len(choose_capacity(X, y, spatial=(0, 1), asked=ROWS).fourier_scales) > len(SCALES)


def test_short_waves_are_left_out_where_there_are_none():
    X, y = field(1500.0, seed=1)
    found = choose_capacity(X, y, spatial=(0, 1), asked=ROWS)
    assert len(found.fourier_scales) < len(SCALES)
    # Both sides were tried.
    assert {2, 3, 4} <= {len(s["fourier_scales"]) for s in found.scores}


def test_waves_shorter_than_the_rows_can_tell_are_never_tried():
    X, y = field(60.0, n=2000)
    tried = [len(s["fourier_scales"]) for s in choose_capacity(X, y, spatial=(0, 1), asked=ROWS).scores]
    # 12 units from place to place and 290 of spread: 75 radians per sd are told apart, 120 are not.
    assert LADDER[max(tried) - 1] == 40.0


@pytest.fixture
def quick(monkeypatch):
    """Trials too short to tell anything, but as reproducible as long ones."""
    monkeypatch.setattr(C, "STEPS", 8)


def town(n=2400, seed=1):
    """Rows with a time and counts, places visited again and again."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(0, 50_000, (n // 8, 2))
    X = np.column_stack([places[rng.integers(0, len(places), n)], rng.integers(0, 10, n) / 4.0])
    counts = rng.integers(1, 50, n).astype(float)
    return X, np.sin(X[:, 0] / 3000) + rng.standard_normal(n) / np.sqrt(counts), counts


@pytest.mark.parametrize("most", [10_000, 2_100])
def test_the_order_of_rows_changes_nothing(quick, monkeypatch, most):
    monkeypatch.setattr(C, "MOST", most)
    X, y, counts = town()
    order = np.random.default_rng(0).permutation(len(y))
    one = choose_capacity(X, y, counts, spatial=(0, 1), time=2, asked=ROWS)
    other = choose_capacity(X[order], y[order], counts[order], spatial=(0, 1), time=2, asked=ROWS)
    assert one.scores and one == other


def test_units_change_nothing(quick):
    X, y, counts = town()
    one = choose_capacity(X, y, counts, spatial=(0, 1), time=2, asked=ROWS)
    other = choose_capacity(X * [1e-3, 1e-3, 1.0], 5 + 1e3 * y, counts, spatial=(0, 1), time=2, asked=ROWS)
    assert one.scores and one.fourier_scales == other.fourier_scales
    for a, b in zip(one.scores, other.scores, strict=True):
        assert a.pop("fourier_scales") == b.pop("fourier_scales")
        # Rounded to float32, then trained: a few steps carry 1e-7 to less than 1e-3.
        assert a == pytest.approx(b, rel=1e-3)


def test_kinds_that_are_not_asked_for_do_not_choose(quick, monkeypatch):
    said = {3: (1.0, 1.0), 4: (0.5, 1.5), 5: (0.6, 1.6), 2: (1.2, 0.5), 1: (1.3, 0.6)}

    def trained(self, scales):
        return dict(zip(("rows", "blocks"), said[len(scales)]))

    monkeypatch.setattr(C._Trials, "trained", trained)
    held = {"rows": np.arange(40_000), "blocks": np.arange(40_000)}
    monkeypatch.setattr(C, "one_of_each_kind", lambda *a, **k: (np.arange(1000), held))
    X, y, counts = town(40_000)

    def chosen(asked):
        return len(choose_capacity(X, y, counts, spatial=(0, 1), asked=asked).fourier_scales)

    assert chosen(ROWS) == 4 and chosen(BLOCKS) == 2
    # Each gains what the other loses; nobody said which matters.
    assert chosen(None) == 3
    said[4] = (0.5, 1.0)
    assert chosen(None) == 4
    # A gain of less than .01 is none, nor is one that few rows may show by chance.
    said[4], said[5] = (0.995, 1.0), (0.993, 1.0)
    assert chosen(ROWS) == 3
    said[4] = (0.98, 1.0)
    assert chosen(ROWS) == 4
    held["rows"] = np.arange(400)
    assert chosen(ROWS) == 3


def test_held_out_rows_are_of_one_kind_each_and_never_fitted():
    X, _, _ = town(6000)
    fitted, held = one_of_each_kind(X[:, :2], X[:, 2], most=3000, fewest=50, seed=0)
    assert set(held) == {"rows", "blocks", "future"}
    parts = [fitted, *held.values()]
    assert len(np.unique(np.concatenate(parts))) == sum(map(len, parts))
    assert len(fitted) > 0.4 * len(X)  # two of ten times are a fifth
    assert X[held["future"], 2].min() > X[fitted, 2].max()
    # A row's place may have been seen in another time; a block's has not.
    seen = {tuple(p) for p in X[fitted, :2]}
    assert not any(tuple(p) in seen for p in X[held["blocks"], :2])
    assert np.mean([tuple(p) in seen for p in X[held["rows"], :2]]) > 0.9


def test_what_is_asked_is_read_from_where_rows_lie():
    X, _, _ = town(6000)
    space, time = X[:, :2], X[:, 2]
    old = time < 2.0
    assert kinds_asked(space[old], time[old], space[~old], time[~old])["future"] > 0.95
    part = np.random.default_rng(0).random(len(X)) < 0.1
    assert kinds_asked(space[~part], time[~part], space[part], time[part])["rows"] > 0.95
    east = space[:, 0] > 40_000
    assert kinds_asked(space[~east], time[~east], space[east], time[east])["blocks"] > 0.95


def test_few_rows_and_constant_targets_keep_the_usual_scales():
    X, y = field(60.0, n=500)
    assert choose_capacity(X, y, spatial=(0, 1), asked=ROWS) == Capacity()
    X, y = field(60.0, n=2500)
    assert choose_capacity(X, np.full(len(y), 3.7), spatial=(0, 1), asked=ROWS) == Capacity()


def test_awkward_places_and_times_keep_the_usual_scales(quick):
    X, y, counts = town()
    one_place = X * [0.0, 0.0, 1.0]
    found = choose_capacity(one_place, y, counts, spatial=(0, 1), time=2, asked=ROWS)
    assert found.fourier_scales == SCALES
    late = np.column_stack([X[:, :2], np.where(np.arange(len(X)) < 200, np.arange(len(X)) % 8, 9.0)])
    assert choose_capacity(late, y, counts, spatial=(0, 1), time=2, asked=ROWS) == Capacity()


CHOSEN = Capacity((1.0, 4.0, 12.0, 40.0), {"rows": 1.0}, ({"fourier_scales": [1.0], "rows": 1.5},))


@pytest.fixture
def searched(monkeypatch):
    """What the searches of an estimator were asked; each finds `CHOSEN`."""
    calls = []

    def choose(*args, **keywords):
        calls.append(keywords)
        return CHOSEN

    monkeypatch.setattr(E, "TRIALS_WORTH", 0)
    monkeypatch.setattr(E, "choose_capacity", choose)
    return calls


SMALL = {"rank": 8, "hidden": 8, "epochs": 1}


def test_a_loaded_model_keeps_the_choice_and_does_not_search_again(searched, tmp_path):
    X, y, counts = town(300)
    model = geogp.GPRegressor("dbk-silu", spatial=(0, 1), time=2, **SMALL)
    model.fit(X[:250], y[:250], counts[:250], validation=(X[250:], y[250:], counts[250:]))
    assert len(searched) == 1 and searched[0]["asked"]["rows"] > 0.5
    assert model.capacity_ == CHOSEN and model.engine_.model.encoder.fourier_scales == CHOSEN.fourier_scales
    save(tmp_path / "run", model, {})
    run = geogp.load(tmp_path / "run")
    assert run.model.capacity_ == CHOSEN and len(searched) == 1
    assert run.facts["model"]["capacity"]["scores"] == [{"fourier_scales": [1.0], "rows": 1.5}]
    np.testing.assert_array_equal(run.model.predict(X[250:]), model.predict(X[250:]))


def test_a_run_from_before_the_choice_loads_as_it_was_fitted(searched):
    X, y, _ = town(300)
    model = geogp.GPRegressor("dbk-silu", spatial=(0, 1), time=2, fourier_scales=None, **SMALL).fit(X, y)
    tensors, facts = model.state()
    del facts["fourier_scales"], facts["capacity"]
    loaded = geogp.GPRegressor.from_state(tensors, facts)
    assert loaded.capacity_ is None and not searched
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


@pytest.mark.parametrize(
    "changes",
    [
        {"fourier_scales": (1.0, 3.0)},
        {"fourier_scales": None},
        {"spatial": None},  # generic features
        {"method": "sv-rbf"},  # no Fourier encoder
        {"method": "dbk-silu-exact"},  # its steps take all rows
    ],
)
def test_nothing_is_searched_where_there_is_nothing_to_choose(searched, changes):
    X, y, _ = town(300)
    settings = {"method": "dbk-silu", "spatial": (0, 1), **SMALL, **changes}
    model = geogp.GPRegressor(**settings).fit(X, y)
    assert not searched and model.capacity_ is None


def test_a_fit_as_short_as_the_trials_keeps_the_usual_scales(monkeypatch):
    monkeypatch.setattr(E, "choose_capacity", lambda *a, **k: pytest.fail("searched"))
    X, y, _ = town(3000)
    model = geogp.GPRegressor("dbk-silu", spatial=(0, 1), time=2, **SMALL).fit(X, y)
    assert model.engine_.model.encoder.fourier_scales == SCALES


def test_the_command_line_and_the_estimator_know_auto():
    assert fit_config(None, {}, {"fourier_scales": "auto"}).model == {"fourier_scales": "auto"}
    assert fit_config(None, {}, {"fourier_scales": [1.0, 3.0]}).model == {"fourier_scales": [1.0, 3.0]}
    with pytest.raises(Refused):
        fit_config(None, {}, {"fourier_scales": 3})
    X, y, _ = town(300)
    with pytest.raises(InvalidInput, match="'auto'"):
        geogp.GPRegressor("dbk-silu", fourier_scales="wide").fit(X, y)
