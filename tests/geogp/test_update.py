"""Which runs can be updated, how, and that a local field knows what it was told and nothing else."""

import numpy as np
import pytest
import torch

import geogp
from geogp.field.student import GAUSSIAN_FROM, student_weights
from geogp.methods import METHODS
from geogp.update import (
    knowing,
    observed_rows,
    observed_times,
    recondition,
    refresh,
    summarise,
    updatable,
    way,
)

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
    times = observed_times(field)
    assert times is not None and len(times) == 160 and set(np.round(times, 9)) == set(X[:160, 2])
    # a single observation stays, so that the rest can be told in any order
    one = recondition(field, keep=lambda known: np.arange(len(known)) == 0)
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
    back = recondition(added, keep=lambda _: added.engine_.field.seen.counts.numpy() != 7.5)
    np.testing.assert_array_equal(back.predict(X, True, counts=3)[1], field.predict(X, True, counts=3)[1])
    assert np.abs(added.predict(X, counts=3) - field.predict(X, counts=3)).max() > 1e-3


def of_kind(kind):
    """Places only, places and time, or time, a covariate and places of a turned and stretched world, in that order."""
    X, y, counts = world(200)
    own = QUICK["options"]
    if kind == "places":
        return X[:, :2], y, counts, {"spatial": (0, 1), "time": None}
    if kind == "times":
        return X, y, counts, {}
    X = np.column_stack([X[:, 2], X[:, 0] + X[:, 1], np.cos(X[:, 0]), 1e6 + 9 * X[:, 1]])
    return X, y, counts, {"spatial": (1, 3), "time": 0, "options": own | {"metric": True}}


@pytest.fixture(scope="module", params=["places", "times", "covariate"])
def known(request):
    X, y, counts, more = of_kind(request.param)
    model = geogp.GPRegressor(
        "geogp", target_transform="identity", **({"spatial": (0, 1), "time": 2} | QUICK | more)
    ).fit(X, y, counts)
    return model, X, y, counts


def test_a_function_keeps_the_rows_that_it_means(known):
    """By its own rows, whatever their order: the field that was told exactly these."""
    model, X, y, counts = known
    rows = observed_rows(model)
    assert rows.shape == X.shape and not np.array_equal(rows, X)
    sort = [v[np.lexsort(np.round(v, 4).T)] for v in (rows, X)]
    np.testing.assert_allclose(*sort, rtol=0, atol=1e-6)
    middle = np.median(X[:, 1]) + 1e-3
    told = recondition(model, keep=lambda known: known[:, 1] > middle)
    mine = X[:, 1] > middle
    alone = knowing(model, X[mine], y[mine], counts[mine])
    np.testing.assert_allclose(told.predict(X, counts=3), alone.predict(X, counts=3), rtol=0, atol=1e-8)
    assert np.abs(told.predict(X, counts=3) - model.predict(X, counts=3)).max() > 1e-3


def test_a_mask_in_the_order_of_the_fit_is_refused(known):
    model, X, _, _ = known
    mask = np.arange(len(X)) >= 40
    with pytest.raises(geogp.InvalidInput, match=r"^keep is a mask.*function of its rows.*knowing\(.*\.$"):
        recondition(model, keep=mask)
    with pytest.raises(geogp.InvalidInput, match=r"each of the 200 observations; got bool of shape .40"):
        recondition(model, keep=mask[:40])
    with pytest.raises(geogp.InvalidInput, match="each of the 200 observations; got int64"):
        recondition(model, keep=np.arange(200))
    assert (
        recondition(model, keep=np.ones(200, dtype=bool)).predict(X[:3]).tolist()
        == model.predict(X[:3]).tolist()
    )


def test_a_mask_of_whole_times_is_taken_unless_all_times_differ(field):
    times = observed_times(field)
    first = times > times.min() + 0.1
    told = recondition(field, keep=first)
    np.testing.assert_array_equal(np.sort(observed_times(told)), np.sort(times[first]))
    X, y, counts = world(60)
    X[:, 2] = 2022 + np.arange(60) / 100
    model = fitted("geogp", X, y, counts, **QUICK)
    late = observed_times(model) > 2022.3
    with pytest.raises(geogp.InvalidInput, match="whole times of several rows"):
        recondition(model, keep=late)
    told = recondition(model, keep=lambda known: known[:, 2] > 2022.3)
    np.testing.assert_allclose(observed_times(told), observed_times(model)[late])


def test_the_rows_of_regions_are_those_of_the_fit(kernels_in_parts):
    X, y, counts = world(2001)
    model = fitted("geogp", X, y, counts, region_rows=2000, **QUICK)
    assert len(model.engine_.field.fields) > 1
    rows = observed_rows(model)
    np.testing.assert_array_equal(*(v[np.lexsort(v.T)] for v in (rows, X)))


def test_only_a_local_field_tells_its_rows():
    X, y, counts = world(60)
    model = fitted("dbk-rbf", X, y, counts, **TINY)
    with pytest.raises(geogp.InvalidInput, match="no local field"):
        observed_rows(model)


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
