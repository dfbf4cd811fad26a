"""What is no number, or not one that can be computed with, is refused in one sentence that names it."""

import numpy as np
import pandas as pd
import pytest

import geogp
from geogp.errors import check_settings
from geogp.update import knowing

N = 60
X = np.random.default_rng(0).uniform(0, 1e4, (N, 2))
Y = np.sin(X[:, 0] / 2e3)
FRAME = pd.DataFrame(X, columns=["e", "n"])


def model(**more):
    return geogp.GPRegressor("dbk-rbf", epochs=2, rank=8, **more)


@pytest.fixture(scope="module")
def fitted():
    return model().fit(FRAME.to_numpy(), Y)


def said(pattern, of, *given, **more):
    """What a call says, which is one sentence of the documented type."""
    with pytest.raises(geogp.InvalidInput, match=pattern) as caught:
        of(*given, **more)
    text = str(caught.value)
    assert "\n" not in text and text.endswith(".") and len(text) < 200
    return text


def holed(X, column, n, value=np.nan):
    X = X.copy()
    X[:n, column] = value
    return X


DATES = pd.date_range("2020", periods=N)
COLUMNS = {
    "dates": (FRAME.assign(t=DATES), "column 't' of X .*dates; give years, such as 2024.25"),
    "dates with a zone": (FRAME.assign(t=DATES.tz_localize("UTC")), "column 't' of X .*give years"),
    "dates as objects": (
        FRAME.assign(t=[d.to_pydatetime() for d in DATES]).astype({"t": object}),
        "'t' .*give years",
    ),
    "an array of dates": (np.tile(DATES.to_numpy()[:, None], 2), "column 0 of X .*give years"),
    "words": (FRAME.assign(b="q"), "column 'b' of X must be numbers; got 'q': drop the column"),
    "categories": (FRAME.assign(b=pd.Categorical(["u", "v"] * 30)), "column 'b' of X .*got 'u'"),
    "words in lists": ([["a", 1.0]] * N, "column 0 of X must be numbers; got 'a'"),
    "complex": (X + 1j, "Complex data not supported: column 0 of X"),
    "NaN": (holed(X, 1, 3), "column 1 of X holds NaN in 3 of 60 rows; drop"),
    "NaN of a frame": (
        FRAME.mask(FRAME.index.to_series() < 2, axis=0),
        "column 'e' of X holds NaN in 2 of 60",
    ),
    "NA": (FRAME.astype("Float64").where(FRAME.gt(FRAME.min())), "column 'e' of X holds NaN in 1 of 60"),
    "infinity": (holed(X, 0, 2, -np.inf), "column 0 of X holds infinity in 2 of 60"),
    "two of a name": (pd.concat([FRAME, FRAME], axis=1), "several columns called 'e'"),
    "a width below all numbers": (X * 1e-200, "column 0 of X spans .*e-197, and at least 1e-100 is needed"),
}


@pytest.mark.parametrize("case", list(COLUMNS))
def test_columns_that_hold_no_numbers_are_named(case):
    table, pattern = COLUMNS[case]
    said(pattern, model().fit, table, Y)


def test_what_can_be_read_as_numbers_still_is(fitted):
    want = fitted.predict(X[:5])
    for table in (FRAME.astype("Float64"), X.astype(str), X.tolist(), X.astype(object), FRAME.astype(object)):
        np.testing.assert_allclose(model().fit(table, Y).predict(table[:5]), want, rtol=1e-6)
    np.testing.assert_allclose(model().fit(X, [str(v) for v in Y]).predict(X[:5]), want, rtol=1e-6)
    model().fit(FRAME.assign(b=pd.Categorical([1, 2] * 30), yes=X[:, 0] > 5e3), Y)
    model().fit(X * 1e-90, Y)


def test_predictions_are_asked_of_numbers(fitted):
    said("column 1 of X holds NaN in 1 of 60 rows", fitted.predict, holed(X, 1, 1))
    said("column 0 of X must be numbers; got 'a'", fitted.predict, [["a", "b"]])
    said("x_ref must be numbers; got 'q'", fitted.kernel_slice, X[:3], ["q", "r"])
    said("x_ref holds nan", fitted.kernel_slice, X[:3], [np.nan, 1.0])


@pytest.mark.parametrize(
    ("y", "pattern"),
    [
        (["a"] * N, "y must be numbers; got 'a'"),
        (Y + 1j, "Complex data not supported: y"),
        (DATES, "y must be numbers, and holds dates"),
    ],
)
def test_values_are_numbers(fitted, y, pattern):
    said(pattern, model().fit, X, y)
    said(pattern, knowing, fitted, X, y)
    said(pattern, model().fit, X, Y, validation=(X, y))


def test_counts_and_validation_are_what_they_are_called():
    said("counts must be numbers; got 'many'", model().fit, X, Y, counts=["many"] * N)
    said("counts must be numbers", model().fit, X, Y, counts=[[1, 2], [3]])
    said("validation is .X, y, counts., .*got int", model().fit, X, Y, validation=5)
    said("validation is .*got str", model().fit, X, Y, validation="ab")
    said("options must be keywords .*got .1.", model(options=[1]).fit, X, Y)
    check_settings({"options": {"neighbours": 8}})


@pytest.mark.parametrize(
    ("bad", "got"),
    [(np.ones(20), "an array of shape .20,."), ([1.0, 2.0], ".1.0, 2.0."), ("0.9", "'0.9'"), (None, "None")],
)
def test_one_number_is_one_number(fitted, bad, got):
    said(f"a threshold must be one number; got {got}", fitted.exceedance, X, bad)
    said(f"level must be one number; got {got}", fitted.interval, X, bad)
    said(f"the p of a quantile must be one number; got {got}", fitted.predictive(X).quantile, bad)


def test_one_number_of_any_type_is_taken(fitted):
    want = fitted.exceedance(X[:4], 0.5)
    for threshold in (np.float64(0.5), np.array(0.5), np.float32(0.5)):
        np.testing.assert_array_equal(fitted.exceedance(X[:4], threshold), want)


@pytest.mark.parametrize("bad", [1.5, "3", None, True])
def test_draws_are_counted(fitted, bad):
    said("n_samples must be a whole number, 1 or more; got", fitted.sample_y, X[:3], bad)
    assert fitted.sample_y(X[:3], np.int64(2)).shape == (3, 2)
