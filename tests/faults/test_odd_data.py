"""Few, equal, lined up, repeated, huge and tiny rows: a sentence, or finite numbers with a sd above 0."""

import numpy as np
import pytest

import geogp
from geogp.methods import METHODS

#: One method of each engine, with settings that make its fit a moment.
SETTINGS = {
    "lowrank": {"rank": 8, "hidden": 8, "epochs": 1, "batch_size": 64},
    "local": {"options": {"steps": 3, "epochs": 1}},
    "exact": {"epochs": 2},
    "closed_form": {"rank": 8, "epochs": 1},
}
FIRST = {engine: next(n for n, row in METHODS.items() if row.engine == engine) for engine in SETTINGS}
rng = np.random.default_rng(0)
X, Y = rng.uniform(0, 20_000, (40, 2)), rng.standard_normal(40)
LINE = np.column_stack([X[:, 0], np.zeros(len(X))])
ODD = {
    "no row": (X[:0], Y[:0]),
    "one row": (X[:1], Y[:1]),
    "two rows": (X[:2], Y[:2]),
    "a constant": (X, 0 * Y + 3),
    "repeated rows": (np.repeat(X[:5], 8, axis=0), np.repeat(Y[:5], 8)),
    "a line": (LINE, Y),
    "a turned line": (LINE @ np.array([[0.6, 0.8], [-0.8, 0.6]]), Y),
    "one place": (0 * X + 5000, Y),
    "one place but one row": (np.vstack([0 * X[1:] + 5000, X[:1]]), Y),
    "huge values": (X, 1e12 * Y),
    "tiny values": (X, 1e-12 * Y),
    "far from the origin": (X + 1e7, Y),
    "one row far off": (np.vstack([X[1:], X[:1] + 5e6]), Y),
}


@pytest.mark.parametrize("method", FIRST.values())
@pytest.mark.parametrize("name", ODD)
@pytest.mark.filterwarnings("ignore")
def test_odd_data_give_a_sentence_or_sound_numbers(method, name) -> None:
    places, values = ODD[name]
    model = geogp.GPRegressor(method, **SETTINGS[METHODS[method].engine])
    try:
        model.fit(places, values)
    except (ValueError, geogp.NumericalFailure) as error:
        assert "\n" not in str(error) and len(str(error)) > 20
        assert name in ("no row", "one row", "two rows", "a constant", "one place"), str(error)
        return
    assert name != "no row"
    for X_new in (places[:3], places[:1] + 3000.0, places[:1] + 1e6):
        mean, sd = model.predict(X_new, return_std=True)
        lower, upper = model.interval(X_new, level=0.95)
        assert np.isfinite([*mean, *sd, *lower, *upper]).all() and (sd > 0).all() and (upper > lower).all()
        _, surface = model.predict(X_new, return_std=True, latent=True)
        assert (surface >= 0).all() and np.isfinite(surface).all()
