"""Fixed-mean GP: the mean is the predictor's, bit for bit; the variance is the published one."""

import geogp  # first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
import numpy as np
import pytest
import torch
import xarray as xr
from sklearn.linear_model import LinearRegression

from geogp.basis.model import in_double
from geogp.basis.objectives import OBJECTIVES
from geogp.data import Data
from geogp.engines.fixed_mean import two_measures
from geogp.run import save

RNG = np.random.default_rng(0)
X = RNG.uniform(-3.0, 3.0, (120, 2))
Y = 5.0 + np.sin(X[:, 0]) + 0.1 * RNG.standard_normal(120)


def fit(predictor=None, **keywords):
    options = None if predictor is None else {"predictor": predictor}
    settings = {"epochs": 40, "rank": 12, "hidden": 8} | keywords
    return geogp.GPRegressor(method="fmgp", options=options, **settings).fit(X, Y)


def raster(inputs):
    """Nearest cell of a 7 x 7 grid: a map somebody else made."""
    grid = np.linspace(4.0, 6.0, 49).reshape(7, 7)
    i, j = (np.clip(np.round(inputs[:, k] + 3.0).astype(int), 0, 6) for k in (0, 1))
    return grid[i, j]


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def array():
    """The same raster as a DataArray, rows from the top."""
    centres = np.linspace(-3.0, 3.0, 7)
    values = np.linspace(4.0, 6.0, 49).reshape(7, 7).T[::-1]
    return xr.DataArray(values, coords={"y": centres[::-1], "x": centres}, dims=("y", "x"))


@pytest.mark.parametrize("kind", ["function", "scikit-learn", "torch", "sampled", "raster"])
def test_the_mean_is_the_predictor_bit_for_bit(kind):
    predictor = {
        "function": lambda inputs: 1e5 + np.sin(inputs[:, 0]) / 3.0,
        "scikit-learn": LinearRegression().fit(X, Y),
        "torch": network(),
        "sampled": raster,
        "raster": array(),
    }[kind]
    model = fit(predictor, epochs=3)
    new = RNG.uniform(-3.4, 3.4, (600, 2))
    if kind == "raster":
        predictor = raster
    expected = predictor.predict(new) if kind == "scikit-learn" else None
    if kind == "torch":
        with torch.no_grad():
            expected = predictor(torch.as_tensor(new).float())[:, 0].double().numpy()
    if expected is None:
        expected = predictor(new)
    mean, sd = model.predict(new, return_std=True)
    assert np.array_equal(mean, expected)
    assert (sd > 0).all()


@pytest.mark.agrees(
    methods=["fmgp"],
    of="latent variance",
    with_="the published dense formula in float64",
    tolerance=1e-8,
    source="fixed-mean-gp, eq. 25",
)
def test_the_variance_is_the_published_one(tolerance):
    """Eq. 25 with A = -(A~^-1 + K_Z)^-1, in float64, against residual + phi'S phi."""
    engine = fit(lambda inputs: np.full(len(inputs), 5.0)).engine_
    model = in_double(engine.model)
    new = torch.as_tensor(RNG.uniform(-4.0, 4.0, (15, 2)))
    with torch.no_grad():
        h = model.backbone(model.encoder(new))
        Z = model.expansion.inducing_points
        K_Z = model.expansion.base_kernel(Z, Z) + 1e-6 * model.expansion.variance * torch.eye(len(Z))
        k = model.expansion.base_kernel(h, Z)
        L_Z = torch.linalg.cholesky(K_Z)
        L = model.posterior.current().scale_tril
        S = L @ L.T  # covariance of the whitened weights
        A = torch.linalg.inv(L_Z).T @ (S - torch.eye(len(Z))) @ torch.linalg.inv(L_Z)
        dense = model.expansion.variance + (k @ A * k).sum(1)
        ours = model.moments(new).latent_variance
    assert torch.allclose(ours, dense, rtol=0, atol=tolerance)


@pytest.mark.agrees(
    methods=["fmgp"],
    of="objective of both measures",
    with_="torch.distributions over 20 rows",
    tolerance=1e-10,
    source="fixed-mean-gp, eq. 27, 29, 30",
)
def test_the_loss_is_that_of_both_measures(tolerance):
    """-(log N(y; g, v) + log N(y; a'phi, v)) + KL(q) + KL(q*), against torch.distributions."""
    engine = fit(lambda inputs: 5.0 + 0.1 * inputs[:, 0], epochs=2).engine_
    model = in_double(engine.model)
    model.train()
    data = engine.with_mean(Data(torch.as_tensor(X[:20]), torch.randn(20, dtype=torch.float64)))
    loss = two_measures(model, data, 20, OBJECTIVES["fixed_mean"])
    with torch.no_grad():
        m = model.moments(data.X)
        sd = (m.latent_variance + m.noise_variance).sqrt()
        phi = model.features(data.X)
        L = model.posterior.current().scale_tril
        normal = torch.distributions.Normal
        given = normal(data.X[:, -1], sd).log_prob(data.y).sum()
        own = normal(phi @ model.auxiliary, sd).log_prob(data.y).sum()
        prior = torch.distributions.MultivariateNormal(torch.zeros(12).double(), torch.eye(12).double())
        kls = [
            torch.distributions.kl_divergence(
                torch.distributions.MultivariateNormal(mean, scale_tril=L), prior
            )
            for mean in (torch.zeros(12).double(), model.auxiliary)
        ]
    assert torch.allclose(loss, (-(given + own) + kls[0] + kls[1]) / 20, rtol=0, atol=tolerance)


def test_a_run_holds_its_own_network_but_asks_for_a_given_predictor():
    own = fit(epochs=20)
    assert own.score(X, Y) > 0.5
    again = geogp.GPRegressor.from_state(*own.state())
    assert np.array_equal(own.predict(X), again.predict(X))


@pytest.mark.parametrize(
    "predictor", [LinearRegression().fit(X, Y), raster, network()], ids=["sklearn", "function", "torch"]
)
def test_a_predictor_in_memory_is_asked_for_again(predictor, tmp_path):
    """Its code would have to be stored, and a run holds no pickle."""
    given = fit(predictor, epochs=3)
    run = save(tmp_path / "run", given, {"target": "value"})
    assert run.facts["model"]["parameters"]["options"] == {}
    assert type(predictor).__name__ in run.facts["model"]["engine"]["predictor"]
    with pytest.raises(geogp.InvalidInput, match=r"predictor in memory.*geogp.load\(path, predictor=..\)"):
        run.model.predict(X)
    again = geogp.load(run.path, predictor=predictor).model
    assert np.array_equal(given.predict(X, return_std=True), again.predict(X, return_std=True))
    with pytest.raises(geogp.InvalidInput, match="takes no predictor"):
        other = geogp.GPRegressor("sgpr", rank=4, epochs=1).fit(X, Y)
        geogp.load(save(tmp_path / "other", other, {}).path, predictor=predictor)


def test_a_run_holds_its_raster(tmp_path):
    given = fit(array(), epochs=3)
    run = save(tmp_path / "run", given, {"target": "value"})
    new = RNG.uniform(-3.4, 3.4, (99, 2))
    assert np.array_equal(given.predict(new, return_std=True), run.model.predict(new, return_std=True))
    assert np.array_equal(run.model.predict(new), raster(new))
    assert {p.suffix for p in run.path.iterdir()} == {".json", ".safetensors", ""}


def test_outside_its_raster_there_is_no_mean_but_the_sd_is_the_priors():
    model = fit(array(), epochs=3)
    mean, _ = model.predict(np.array([[0.0, 0.0], [90.0, 0.0]]), return_std=True)
    assert np.isfinite(mean[0]) and np.isnan(mean[1])
    m = model.moments(np.array([[90.0, 0.0]]))
    assert m.latent_variance[0] == pytest.approx(float(m.prior_variance[0]), rel=1e-4)


@pytest.mark.parametrize(
    ("predictor", "words"),
    [
        (3.0, "must be a function"),
        (lambda inputs: np.full(len(inputs), np.nan), "finite"),
        ("map.tif", r"maps\.open_raster"),
        (array().isel(x=slice(0, 4)), "no value at .* of 96 rows"),
        (array().expand_dims(band=[1]), r"dimensions \(y, x\)"),
        (array().assign_coords(x=[-3, -2, -1, 0, 1, 2, 4]), "not evenly spaced"),
        (array() * np.nan, "no value in the area"),
        (array().isel(x=slice(0, 1)), "two or more pixels"),
    ],
)
def test_a_bad_predictor_is_refused(predictor, words):
    with pytest.raises(geogp.InvalidInput, match=words):
        fit(predictor)


def test_the_noise_is_honest_about_a_poor_predictor():
    model = fit(lambda inputs: np.full(len(inputs), 5.0), epochs=150)
    lower, upper = model.interval(X, level=0.95)
    # 120 rows at 95%: 3.5 standard deviations of the binomial proportion are .07.
    assert ((lower <= Y) & (upper >= Y)).mean() >= 0.88
