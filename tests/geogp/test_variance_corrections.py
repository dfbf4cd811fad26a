"""The diagonal correction and the distance term: what they add, where, and how it enters the fit."""

import geogp  # first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse

from geogp.basis.build import Shape, Size, build
from geogp.basis.model import in_double
from geogp.basis.objectives import OBJECTIVES, Weights
from geogp.basis.residuals.distance import variogram
from geogp.basis.residuals.unit import Unit
from geogp.basis.statistics import Statistic
from geogp.basis.train import terms_of
from geogp.data import Data
from geogp.engines.closed_form import condition
from geogp.engines.growth import _left_out, growth_of
from geogp.holdout import side_and_blocks
from geogp.methods import METHODS, method
from geogp.update import refresh, summarise

pytestmark = pytest.mark.filterwarnings("ignore::geogp.errors.NotDistanceAware")
SHAPE = Shape(2, None, None, False)


def rows(n: int, seed: int = 0) -> Data:
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 2, generator=g, dtype=torch.float64)
    return Data(X, torch.sin(2 * X[:, 0]) + 0.1 * torch.randn(n, generator=g, dtype=torch.float64))


def model_of(name: str, rank: int = 5):
    model = build(method(name), SHAPE, Size(hidden=8, rank=rank), seed=0).double()
    with torch.no_grad():
        model.noise.log_variance.fill_(-1.5)
    return model


def test_the_elbo_with_the_correction_is_the_plain_elbo_less_the_trace():
    data = rows(12)
    corrected, plain = model_of("svdbk").train(), model_of("svdbk-c").train()
    losses = [OBJECTIVES["elbo"](terms_of(m, data, 12), Weights()) for m in (corrected, plain)]
    size = plain.features(data.X).square().sum(1)
    trace = (size.max() - size).sum() / (2 * plain.noise(data.X, None)[0])
    assert torch.allclose(losses[0] - losses[1], trace / 12, rtol=1e-10)


@pytest.mark.agrees(
    methods=["dbk-corrected", "dbk-corrected-c", "dbk-corrected-r", "dbk-corrected-cr"],
    of="posterior mean and variance",
    with_="dense N x N algebra with the correction in every row's own variance, 30 rows",
    tolerance=1e-8,
    source="low-rank-deep-kernel-decomposition, eq. 1, 11, 12",
)
@pytest.mark.parametrize("name", ["dbk-corrected", "dbk-corrected-c", "dbk-corrected-r", "dbk-corrected-cr"])
def test_the_closed_form_posterior_is_the_dense_one_of_the_source(name, tolerance):
    data, new = rows(30), rows(7, seed=1)
    model = model_of(name, rank=method(name).rank or 5).eval()
    condition(model, data)
    moments = model.moments(new.X)
    # Dense, eq. 1 with K^ = Phi Phi' + diag(c): the correction is part of every row's own variance.
    Phi, phi = model.features(data.X), model.features(new.X)
    noise = model.noise(data.X, None)
    c, c_new = torch.zeros(30).double(), torch.zeros(7).double()
    if method(name).residual == "unit":
        level = Phi.square().sum(1).max()
        c = level - Phi.square().sum(1)
        c_new = torch.clamp(level - phi.square().sum(1), min=0)
    S = torch.linalg.inv(Phi @ Phi.T + torch.diag(c + noise))
    k = Phi @ phi.T
    assert torch.allclose(moments.mean, k.T @ S @ (data.y - model.constant_mean), rtol=0, atol=tolerance)
    variance = phi.square().sum(1) - (k * (S @ k)).sum(0) + c_new
    assert torch.allclose(moments.latent_variance, variance, rtol=0, atol=tolerance)


def test_the_corrected_prior_variance_is_the_same_everywhere_the_basis_is_small():
    data = rows(40)
    model = model_of("svdbk").eval()
    model.residual.settle(model, data)
    with torch.no_grad():
        prior = model.moments(data.X).prior_variance
        alone = model_of("svdbk-c").moments(data.X).prior_variance
    assert torch.allclose(prior, prior.max().expand(40))
    assert float(alone.std()) > 0


def test_the_variogram_finds_sill_and_range():
    g = torch.Generator().manual_seed(1)
    P = 10 * torch.rand(1200, 2, generator=g, dtype=torch.float64)
    K = 0.8 * torch.exp(-torch.cdist(P, P) / 0.7)
    y = torch.linalg.cholesky(K + 0.2 * torch.eye(1200)) @ torch.randn(1200, generator=g, dtype=torch.float64)
    sill, reach = variogram(P, y)
    # Effective sample size is about (10 / 1.4)^2 = 50 patches: 25% of spread, twice that as a bound.
    assert 0.4 < sill < 1.2 and 0.35 < reach < 1.4


def test_a_map_with_the_distance_term_is_widest_where_nobody_measured():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 4000, (300, 2))
    y = np.sin(X[:, 0] / 500) + 0.1 * rng.standard_normal(300)
    plain = geogp.GPRegressor("dbk-silu", residual="none", epochs=30, rank=16, hidden=16).fit(X, y)
    model = geogp.GPRegressor("dbk-silu", epochs=30, rank=16, hidden=16).fit(X, y)
    assert model.row_.reverts_to_prior and not plain.row_.reverts_to_prior
    far = np.array([[20_000.0, 20_000.0], [40_000.0, 0.0]])
    near, away = model.moments(X).latent_variance, model.moments(far).latent_variance
    assert float(away.min()) > float(near.quantile(0.9))
    assert np.array_equal(plain.predict(far), model.predict(far))
    tensors, facts = model.state()
    again = geogp.GPRegressor.from_state(tensors, facts)
    assert torch.equal(again.moments(far).latent_variance, away)


# -- the distance term in a fit -------------------------------------------------------------------------

TINY = {"epochs": 10, "rank": 12, "hidden": 8, "fourier_scales": (1.0,), "random_state": 0}


def grown(n: int = 120, **changes):
    """A fit of rows in the left half of a square, and places that reach into the right one."""
    rng = np.random.default_rng(1)
    X = rng.uniform(0, (2, 4), (n, 2))
    y = np.sin(2 * X[:, 0]) + np.cos(X[:, 1]) + 0.1 * rng.standard_normal(n)
    model = geogp.GPRegressor("dbk-silu", residual="distance", **{**TINY, **changes}).fit(X, y)
    return model, X, y, rng.uniform(0, 4, (150, 2))


def test_covariances_draws_and_averages_know_the_distance_term():
    """All of one process: the root of the residual beside the features, by hand."""
    model, _, _, new = grown()
    engine = model.engine_
    places = torch.as_tensor(new)
    inner = in_double(engine.model)
    with torch.no_grad():
        phi = inner.features(places).numpy()
        L = inner.weights().scale_tril.numpy()
        Z, h, _ = inner.represent(places)
        R = inner.residual.root(Z).toarray()
        variance = inner.residual.variance(inner.expansion, Z, h, inner.features(places))
    surface = inner.factors.surface
    np.testing.assert_allclose(np.square(R).sum(axis=1), variance.numpy(), atol=1e-9)
    assert variance.max() > 0.3 * float(inner.residual.sill)
    S = surface * (phi @ L) @ (phi @ L).T + R @ R.T
    np.testing.assert_allclose(engine.posterior_covariance(places).numpy(), S, atol=1e-6)
    np.testing.assert_allclose(np.diag(S), model.moments(new).latent_variance.numpy(), rtol=1e-5)
    K = engine.prior_covariance(places, places[:7]).numpy()
    np.testing.assert_allclose(K, (surface * phi @ phi.T + R @ R.T)[:, :7], atol=1e-4)
    _, correlation = engine.prior_slice(places, places[3:4])
    assert float(correlation[3]) == pytest.approx(1.0, abs=1e-4) and correlation.max() < 1.0001
    joint = engine.joint(places, model.moments(new).latent_variance)
    W = sparse.csr_array(np.random.default_rng(0).dirichlet(np.ones(150), 4))
    np.testing.assert_allclose(joint.covariance(W), W @ S @ W.T, rtol=1e-4)
    generator = torch.Generator().manual_seed(0)
    for draws in (joint.draw(6000, generator), engine.sample(places, 6000, generator).numpy()):
        # An entry of the covariance of 6,000 draws is off by some 1.3% of the variances.
        assert np.abs(np.cov(draws) - S).max() < 0.07 * S.max()
    # An average over places without data is known far less well than one of as many independent places.
    far = np.flatnonzero(new[:, 0] > 3)
    average = R[far].mean(axis=0)
    assert (average @ average) > 5 * variance.numpy()[far].mean() / len(far)


def test_an_update_moves_the_places_it_grows_from():
    """Weights and residual are then those of a model that met all rows, whichever parts they came in."""
    model, X, y, new = grown()
    more = np.column_stack([new[:, 0] / 2 + 2, new[:, 1]])
    z = np.sin(2 * more[:, 0])
    parts = summarise(model, np.vstack([X, more]), np.r_[y, z], groups=np.r_[["old"] * 120, ["new"] * 150])
    newer = refresh(model, parts.values())
    assert model.moments(more).latent_variance.mean() > 3 * newer.moments(more).latent_variance.mean()
    anchors = newer.engine_.model.residual.anchors
    # A fifth of the rows had chosen the epoch.
    assert len(anchors) == 270 and len(model.engine_.model.residual.anchors) == 96
    assert newer.engine_.model.residual.taught() == model.engine_.model.residual.taught()
    # Statistics of before and after belong together, and forgetting the new rows leads back.
    again = summarise(newer, more, z)["all"]
    assert again.basis == parts["new"].basis
    torch.testing.assert_close(again.factor, parts["new"].factor)
    back = refresh(newer, [parts["old"]])
    close = {"rtol": 1e-4, "atol": 1e-6}
    torch.testing.assert_close(
        back.moments(new).latent_variance,
        refresh(model, [parts["old"]]).moments(new).latent_variance,
        **close,
    )
    kept = Statistic.from_tensors(parts["new"].to_tensors())
    same = refresh(newer, [kept, parts["old"]])
    torch.testing.assert_close(same.moments(new).latent_variance, newer.moments(new).latent_variance, **close)
    with pytest.raises(geogp.InvalidInput, match="do not say where their rows lie"):
        refresh(model, [replace(parts["old"], places=None)])


def test_a_trial_tells_how_the_variance_grows(monkeypatch):
    """Given enough rows and a position; a refit is told what it found."""
    asked = []

    def trial(engine, plan, encoder, data, hooks):
        found = growth_of(engine, plan, encoder, data, hooks)
        asked.append(found)
        return found

    monkeypatch.setattr("geogp.engines.lowrank.growth_of", trial)
    taught = grown(400)[0].engine_.taught()["residual"]
    assert asked == [pytest.approx(taught)] and 0.01 <= taught["sill"] <= 4
    _, X, y, _ = grown(400)
    told = {"sill": 0.3, "range": 2.0, "power": 1.5}
    hooks = geogp.engines.Hooks(taught={"residual": told})
    refit = geogp.GPRegressor("dbk-silu", residual="distance", **TINY).fit(X, y, hooks=hooks)
    assert len(asked) == 2 and refit.engine_.taught()["residual"] == pytest.approx(told)
    before = geogp.engines.Hooks(taught={"residual": {"sill": 0.3, "range": 2.0}})
    older = geogp.GPRegressor("dbk-silu", **TINY).fit(X, y, hooks=before)
    assert older.engine_.taught()["residual"] == pytest.approx({**told, "power": 1.0})
    grown(120)
    geogp.GPRegressor("dbk-silu", residual="distance", **{**TINY, "fourier_scales": None}, spatial=None).fit(
        np.column_stack([X, X]), y
    )
    geogp.GPRegressor("dbk-silu", residual="none", **TINY).fit(X, y)
    assert asked[2:] == [{}, {}]


def test_a_trial_leaves_single_places_out_with_all_their_rows():
    """Places come back in other quarters, so that rows alone would be next to themselves."""
    rng = np.random.default_rng(4)
    places = np.repeat(rng.uniform(0, 4, (200, 2)), 3, axis=0)
    fitted, out = side_and_blocks(places, seed=0)
    rest, left = _left_out(places, 0)
    assert sorted([*rest, *left]) == list(range(600)) and list(left[: len(out)]) == list(out)
    more = left[len(out) :]
    assert 0.05 * len(fitted) < len(more) < 0.2 * len(fitted)
    assert not set(map(tuple, places[rest])) & set(map(tuple, places[more]))


def test_places_get_the_distance_term_where_none_is_asked_for():
    """Generic features do not, nor what is asked for without it; and a run keeps what it was fitted with."""
    rng = np.random.default_rng(5)
    X = rng.uniform(0, 4, (60, 3))
    y = np.sin(X[:, 0])

    def residual(columns, method="dbk-rbf", **changes):
        return geogp.GPRegressor(method, **TINY, **changes).fit(columns, y).row_.residual

    assert [residual(X[:, :2]), residual(X[:, :1], spatial=(0,)), residual(X[:, :2], "dbk-silu")] == [
        "distance"
    ] * 3
    assert residual(X, spatial=(0, 1), expansion="silu") == "distance"
    assert [residual(X), residual(X[:, :2], residual="none"), residual(X[:, :2], "vbll")] == ["none"] * 3
    model = geogp.GPRegressor("dbk-rbf", **TINY).fit(X[:, :2], y)
    tensors, facts = model.state()
    again = geogp.GPRegressor.from_state(tensors, facts)
    assert again.row_ == model.row_ and again.residual is None
    far = np.array([[40.0, 40.0]])
    assert torch.equal(again.moments(far).latent_variance, model.moments(far).latent_variance)
    older = geogp.GPRegressor("dbk-rbf", residual="none", **TINY).fit(X[:, :2], y)
    tensors, facts = older.state()
    del facts["residual"]
    facts["parameters"]["residual"] = None
    assert geogp.GPRegressor.from_state(tensors, facts).row_ == older.row_
    assert older.row_ == replace(METHODS["dbk-rbf"], residual="none", reverts_to_prior=False)


@pytest.mark.parametrize("method", ["dnn", "lla", "sgpr"])
def test_a_refit_of_any_method_is_told_what_a_trial_found(method):
    rng = np.random.default_rng(2)
    X = rng.uniform(0, 4, (80, 2))
    told = {"sill": 0.3, "range": 2.0, "power": 1.5}
    model = geogp.GPRegressor(method, residual="distance", **TINY).fit(
        X, np.sin(X[:, 0]), hooks=geogp.engines.Hooks(taught={"residual": told})
    )
    assert model.engine_.taught()["residual"] == pytest.approx(told)


@pytest.mark.parametrize("method", ["cox", "fmgp"])
def test_methods_without_trials_refuse_it(method):
    with pytest.raises(geogp.errors.ImpossibleCombination, match="no places left out can tell"):
        geogp.GPRegressor(method, residual="distance").fit(np.eye(50)[:, :2], np.ones(50))


def test_places_left_out_are_covered_beyond_the_rows():
    """Where the plain basis is too sure: what lies beside the rows is in its interval as often as it says."""
    shares = {"none": [], "distance": []}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.uniform(0, 10, (1400, 2))
        K = np.exp(-np.linalg.norm(X[:, None] - X, axis=2) / 3) + 0.05 * np.eye(1400)
        y = np.linalg.cholesky(K) @ rng.standard_normal(1400)
        out = X[:, 0] + X[:, 1] > 14
        for residual, told in shares.items():
            model = geogp.GPRegressor(
                "dbk-silu", residual=residual, steps=600, rank=64, hidden=32, random_state=seed
            ).fit(X[~out], y[~out])
            low, high = model.predictive(X[out]).interval(0.95)
            told.append(np.mean((y[out] >= low) & (y[out] <= high)))
    assert np.mean(shares["none"]) < 0.85 and 0.88 < np.mean(shares["distance"]) < 0.995


@pytest.mark.parametrize("name", ["svdbk", "svdbk-r", "dbk-corrected", "dbk-corrected-r"])
def test_corrected_rows_fit_and_keep_their_variance_positive(name):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(150, 3))
    y = X[:, 0] + 0.1 * rng.standard_normal(150)
    model = geogp.GPRegressor(method=name, epochs=60, hidden=16).fit(X, y)
    assert isinstance(model.engine_.model.residual, Unit)
    for inputs in (X, X + 1e6):
        m = model.moments(inputs)
        assert bool((m.latent_variance >= 0).all()) and bool(torch.isfinite(m.latent_variance).all())
        assert bool((m.latent_variance <= m.prior_variance * 1.001 + 1e-6).all()) or name.startswith("sv")
