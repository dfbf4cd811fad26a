"""The estimator is a scikit-learn citizen: the checks, pipelines, cloning, cross-validation, repeated questions."""

import geogp  # first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
import pickle
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from geogp.engines.base import Engine
from geogp.engines.lowrank import LowRankEngine

QUICK = geogp.GPRegressor(method="dbk-rbf", target_transform="identity", epochs=40, rank=16, hidden=16)


@pytest.fixture(scope="module")
def field():
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 5000.0, (300, 2))
    y = np.sin(X[:, 0] / 800.0) + 0.2 * rng.standard_normal(300)
    return X, y


@pytest.fixture(scope="module")
def fitted(field):
    return clone(QUICK).fit(*field)


@pytest.mark.parametrize(
    ("estimator", "check"),
    [
        pytest.param(e, c, id=c.func.__name__)
        for e, c in estimator_checks_generator(geogp.GPRegressor(epochs=60))
    ],
)
def test_scikit_learn_check(estimator, check, monkeypatch):
    if check.func.__name__ == "check_array_api_input":
        pytest.skip("array API input needs SCIPY_ARRAY_API set before scipy is imported")
    with warnings.catch_warnings():
        # A method without distance-aware variance says so at fit; scikit-learn's checks know nothing of it.
        warnings.filterwarnings("ignore", module="geogp")
        # Some checks convert a memory-mapped, read-only array, which torch warns about.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        check(estimator)


def test_a_clone_fits_to_the_same_numbers(field, fitted):
    X, y = field
    again = clone(fitted).fit(X, y)
    assert np.array_equal(again.predict(X), fitted.predict(X))
    assert clone(fitted).get_params() == fitted.get_params()


def test_a_pickled_model_predicts_the_same(field, fitted):
    X, _ = field
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict(X), fitted.predict(X))


def test_pipeline_cross_validation_and_search(field):
    X, y = field
    pipe = make_pipeline(StandardScaler(), clone(QUICK))
    out_of_fold = cross_val_predict(pipe, X, y, cv=3)
    assert np.corrcoef(out_of_fold, y)[0, 1] > 0.7
    search = GridSearchCV(clone(QUICK), {"rank": [8, 16]}, cv=2).fit(X, y)
    assert search.best_params_["rank"] in (8, 16)
    assert search.best_estimator_.score(X, y) > 0.5


def test_sd_and_covariance_agree(field, fitted):
    X, _ = field
    mean, sd = fitted.predict(X[:20], return_std=True)
    mean_too, covariance = fitted.predict(X[:20], return_cov=True)
    assert np.allclose(mean, mean_too)
    assert np.allclose(np.sqrt(np.diag(covariance)), sd, rtol=1e-6)
    with pytest.raises(geogp.ImpossibleCombination):
        fitted.predict(X, return_std=True, return_cov=True)


def test_a_row_does_not_depend_on_its_batch(field, fitted):
    X, _ = field
    together = fitted.predict(X[:50])
    alone = np.concatenate([fitted.predict(x[None]) for x in X[:50]])
    assert np.allclose(together, alone, rtol=1e-9)


def test_a_second_question_about_the_same_inputs_is_not_computed_again(field, fitted, monkeypatch):
    X, _ = field
    calls = []
    original = LowRankEngine.moments
    monkeypatch.setattr(LowRankEngine, "moments", lambda *a: (calls.append(1), original(*a))[1])
    mean, _ = fitted.predict(X[:7], return_std=True)
    lower, upper = fitted.interval(X[:7], level=0.9)
    narrow = fitted.interval(X[:7], level=0.5)
    assert len(calls) == 1
    assert (lower < mean).all() and (mean < upper).all() and (narrow[0] > lower).all()
    fitted.interval(X[:8])
    assert len(calls) == 2


@pytest.mark.parametrize("method", ["dbk-rbf", "sv-rbf"])
@pytest.mark.parametrize("posterior", ["dense", "lowrank"])
def test_joint_samples_have_the_moments_of_the_posterior(field, method, posterior):
    X, y = field
    model = geogp.GPRegressor(
        method=method, target_transform="identity", epochs=30, rank=16, hidden=16, posterior=posterior
    ).fit(X, y)
    mean, covariance = model.predict(X[:12], return_cov=True, latent=True)
    draws = model.sample_y(X[:12], n_samples=20_000, random_state=1)
    assert draws.shape == (12, 20_000)
    assert np.array_equal(draws, model.sample_y(X[:12], n_samples=20_000, random_state=1))
    # Standard deviation of a sample mean and of a sample covariance of Gaussians; 5 of them.
    sd = np.sqrt(np.diag(covariance))
    assert (np.abs(draws.mean(1) - mean) < 5 * sd / 20_000**0.5).all()
    spread = np.sqrt((np.outer(sd, sd) ** 2 + covariance**2) / 20_000)
    assert (np.abs(np.cov(draws) - covariance) < 5 * spread).all()


def test_samples_of_many_places_need_no_square_matrix(field, fitted, monkeypatch):
    def refuse(*_):
        raise AssertionError("a low-rank method must draw weights, not factorise n x n")

    monkeypatch.setattr(LowRankEngine, "posterior_covariance", refuse)
    monkeypatch.setattr(Engine, "sample", refuse)
    places = np.random.default_rng(1).uniform(0.0, 5000.0, (20_000, 2))
    assert fitted.sample_y(places, n_samples=3).shape == (20_000, 3)


def test_mapie_conformal_intervals(field):
    pytest.importorskip("mapie", reason="MAPIE is in the bench extra, not installed here")
    from mapie.conformity_scores import ResidualNormalisedScore
    from mapie.regression import SplitConformalRegressor

    X, y = field
    score = StdConformityScore() if (StdConformityScore := _std_score()) else ResidualNormalisedScore()
    conformal = SplitConformalRegressor(
        clone(QUICK).fit(X[:200], y[:200]), confidence_level=0.9, conformity_score=score, prefit=True
    )
    conformal.conformalize(X[200:], y[200:])
    _, intervals = conformal.predict_interval(X[:50])
    assert (intervals[:, 0, 0] < intervals[:, 1, 0]).all()


def _std_score():
    import mapie.conformity_scores as scores

    return getattr(scores, "StdConformityScore", None)


def test_default_random_state_is_deterministic(field):
    X, y = field
    torch.manual_seed(1)
    a = clone(QUICK).fit(X, y).predict(X)
    torch.manual_seed(2)
    assert np.array_equal(a, clone(QUICK).fit(X, y).predict(X))
