"""Which runs can be updated, how, and that a local field knows what it was told and nothing else."""

import numpy as np
import pytest
import torch

import geogp
from geogp.field.student import GAUSSIAN_FROM, student_weights
from geogp.methods import METHODS
from geogp.update import observed_times, recondition, refresh, summarise, updatable, way

TINY = {"epochs": 2, "rank": 8, "hidden": 8}
QUICK = {"options": {"steps": 20, "n_targets": 300, "epochs": 2, "metric": False}}


def world(n=240, seed=0, time=True):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 20_000, (n, 2))
    t = 2022.125 + 0.25 * rng.integers(0, 4, n)
    counts = rng.integers(1, 30, n).astype(float)
    y = np.sin(X[:, 0] / 4000) + 0.1 * (t - 2022) + rng.normal(0, np.sqrt(0.02 + 0.3 / counts))
    return (np.column_stack([X, t]) if time else X), y, counts


def fitted(method, X, y, counts, **keywords):
    return geogp.GPRegressor(method, target_transform="identity", spatial=(0, 1), time=2, **keywords).fit(
        X, y, counts
    )


@pytest.fixture(scope="module")
def field():
    X, y, counts = world()
    return fitted("geogp", X[:160], y[:160], counts[:160], **QUICK)


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_can_be_updated_or_says_why_not(method):
    X, y, counts = world(60)
    keywords = QUICK if METHODS[method].engine == "local" else TINY
    keywords = keywords | ({"rank": 216} if method == "ski" else {})
    y = np.abs(y) if method == "cox" else y
    model = fitted(method, X, y, counts, **keywords)
    if method not in updatable():
        with pytest.raises(geogp.InvalidInput, match=f"method '{method}'.*take geogp, .*dbk-rbf"):
            way(model)
    elif way(model) == "statistics":
        new = refresh(model, summarise(model, X, y, counts).values())
        assert np.isfinite(new.predict(X, counts=counts)).all()
    else:
        np.testing.assert_array_equal(recondition(model).predict(X[:9]), model.predict(X[:9]))
    assert {"geogp", "local-gp", "dbk-silu", "dbk-rbf", "sgpr", "softki", "sv-rbf", "dnn-s"} <= set(
        updatable()
    )
    assert not {"cox", "fmgp", "dnn", "map", "lla", "gp-rbf", "dkl"} & set(updatable())


def test_a_field_told_more_is_the_field_told_all_at_once(field):
    X, y, counts = world()
    knows = np.zeros(160, dtype=bool)
    knows[:1] = True  # a single observation stays, so that the rest can be told in any order
    times = observed_times(field)
    assert times is not None and len(times) == 160 and set(np.round(times, 9)) == set(X[:160, 2])
    one = recondition(field, keep=knows)
    at_once = recondition(one, X[160:], y[160:], counts[160:])
    bit_by_bit = recondition(
        recondition(one, X[200:], y[200:], counts[200:]), X[160:200], y[160:200], counts[160:200]
    )
    for a, b in zip(at_once.engine_.state()[0].values(), bit_by_bit.engine_.state()[0].values()):
        assert torch.equal(a, b)


def test_added_then_forgotten_is_never_added(field):
    X, y, _ = world()
    added = recondition(field, X[160:], y[160:], np.full(80, 7.5))
    assert len(added.engine_.field.seen.X) == 240
    back = recondition(added, keep=added.engine_.field.seen.counts.numpy() != 7.5)
    np.testing.assert_array_equal(back.predict(X, True, counts=3)[1], field.predict(X, True, counts=3)[1])
    assert np.abs(added.predict(X, counts=3) - field.predict(X, counts=3)).max() > 1e-3


def test_what_it_learned_stays_and_the_truth_comes_nearer(field):
    X, _, _ = world(400, seed=1)
    y = np.sin(X[:, 0] / 4000) + 0.1 * (X[:, 2] - 2022)  # as averages of very many measurements are
    more = recondition(field, X, y, np.full(400, 1e4))
    assert more.engine_.field.gp is field.engine_.field.gp

    def kernel(model):
        """The slice without what is uncertain of the drift, which more observations make less."""
        known = model.engine_.field.known
        C = known.frame.coordinates(torch.as_tensor(X[:5]))
        drift = known.drift.covariance_of(C, C[:1])[:, 0].numpy()
        return model.kernel_slice(X[:5], X[0]) - model.target_sd_**2 * drift

    np.testing.assert_allclose(kernel(more), kernel(field), rtol=1e-12)
    assert (more.kernel_slice(X[:5], X[0]) < field.kernel_slice(X[:5], X[0])).all()
    _, before = field.predict(X, True, counts=1e4, latent=True)
    _, after = more.predict(X, True, counts=1e4, latent=True)
    assert after.mean() < 0.8 * before.mean()
    assert (
        np.abs(more.predict(X, counts=1e4) - y).mean() < 0.5 * np.abs(field.predict(X, counts=1e4) - y).mean()
    )


def test_with_all_neighbours_it_is_the_dense_process():
    """Mean and variance of the surface against the textbook formulas with the field's own kernel and noise."""
    X, y, counts = world(40)
    model = fitted("local-gp", X[:25], y[:25], counts[:25], **QUICK)
    more = recondition(model, X[25:], y[25:], counts[25:]).engine_.field
    new = torch.as_tensor(world(7, seed=5)[0])
    m = more.moments(new)
    C, seen, left = more.frame.coordinates(new), more.seen, more.known.left
    with torch.no_grad():
        prior = more.gp.kernel(seen.X, seen.X)
        # Student-t observations have the noise variances that the variational posterior gives them.
        nu = more.gp.tails
        weights = torch.ones(40).double()
        if nu is not None and nu < GAUSSIAN_FROM:
            weights = student_weights(prior[None], seen.noise_variance[None], left.value[None], nu)[0]
        K = prior + torch.diag(seen.noise_variance / weights)
        k = more.gp.kernel(C, seen.X)
        solved = torch.linalg.solve(K, torch.cat([left.value[:, None], k.T], 1))
        around = more.known.survey(C, torch.arange(40).expand(7, 40), more.known.latest)
        assert torch.allclose(around.mean, k @ solved[:, 0], atol=1e-8)
        prior = more.gp.kernel(C, C).diagonal()
        assert torch.allclose(around.variance, prior - (k * solved[:, 1:].T).sum(1), atol=1e-8)
    assert torch.isfinite(m.mean).all()


def test_a_basis_under_the_field_stays_and_the_field_learns_the_rest():
    X, y, counts = world(300)
    model = fitted("dbk-rbf", X[:200], y[:200], counts[:200], residual="local", **TINY, **QUICK)
    assert way(model) == "observations"
    more = recondition(model, X[200:], y[200:], counts[200:])
    assert more.engine_.base is model.engine_.base
    base = more.engine_.base.moments(torch.as_tensor(X[200:]), torch.as_tensor(counts[200:]).float())
    z = (y[200:] - model.target_mean_) / model.target_sd_
    rows = more.engine_.field.observations(
        torch.as_tensor(X[200:]), torch.as_tensor(z) - base.mean.double(), torch.as_tensor(counts[200:])
    )
    known = set(more.engine_.field.seen.value.tolist())
    assert set(rows.value.tolist()) <= known


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"keep": np.zeros(160, dtype=bool)}, "keep at least one quarter"),
        ({"X": world()[0], "y": world()[1]}, "counts of the new rows"),
        ({"X": world()[0], "y": world()[1] * 1e200, "counts": world()[2]}, "y holds a value of size"),
        ({"X": world()[0][:9], "y": world()[1], "counts": world()[2]}, "9 new rows and values of shape"),
    ],
)
def test_what_a_field_cannot_be_told(field, change, words):
    with pytest.raises(geogp.InvalidInput, match=words):
        recondition(field, **change)


def test_a_field_of_one_time_knows_no_other():
    X, y, counts = world(60)
    X[:, 2] = 2022.125
    with pytest.raises(geogp.InvalidInput, match="single time"):
        way(fitted("geogp", X, y, counts, **QUICK))


def test_choices_that_no_update_can_move():
    X, y, counts = world(60)
    with pytest.raises(geogp.InvalidInput, match="posterior 'lowrank'"):
        way(fitted("dbk-silu", X, y, counts, posterior="lowrank", **TINY))
    assert way(fitted("vbll", X, y, counts, posterior="lowrank", **TINY)) == "statistics"


def test_the_refreshed_elbo_is_the_best_one():
    """No other weights have a higher ELBO than the refreshed ones: for a basis with a diagonal correction, too."""
    from geogp.basis.model import in_double
    from geogp.basis.objectives import OBJECTIVES, Weights
    from geogp.basis.posterior import WeightPosterior
    from geogp.basis.train import terms_of
    from geogp.data import Data

    X, y, counts = world(80)
    fit = fitted("svdbk", X, y, counts, **TINY)
    new = refresh(fit, summarise(fit, X, y, counts).values())
    model = in_double(new.engine_.model)
    z = torch.as_tensor((y - fit.target_mean_) / fit.target_sd_)
    data = Data(torch.as_tensor(X), z, torch.as_tensor(counts))

    def loss(mean, scale_tril):
        model.solved = WeightPosterior(mean, scale_tril)
        with torch.no_grad():
            return float(OBJECTIVES["elbo"](terms_of(model, data, len(z)), Weights()))

    mean, L = new.engine_.model.solved.mean, new.engine_.model.solved.scale_tril
    best = loss(mean, L)
    g = torch.Generator().manual_seed(0)
    for _ in range(20):
        step = 1e-3 * torch.randn(len(mean), generator=g, dtype=torch.float64)
        assert loss(mean + step, L) > best
        assert loss(mean, L + torch.diag(step) * L.diagonal()) > best
