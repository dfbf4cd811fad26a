"""What grows with the distance from data: the field, how fast it grows, and that predictions, draws and runs have it."""

import geogp  # first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import sparse

from geogp.basis.expansions.linear import Linear
from geogp.basis.growth import NONE, Away, fit_growth
from geogp.basis.rescale import Spread, fit_factors
from geogp.basis.residuals.gaps import Gaps
from geogp.basis.spread import Factors
from geogp.data import Data
from geogp.holdout import sides_and_blocks

pytestmark = pytest.mark.filterwarnings("ignore::geogp.errors.NotDistanceAware")
DEEP = ["dbk-silu", "dbk-rbf", "vbll"]


def seen_rows(n, *, grows=None, missed=1.0, counts=None, tau2=0.1, s2=0.3, seed=0):
    """n rows with noise tau2 + s2 / count, a surface variance of .1 and what `grows` (n,) adds; the model takes both parts of
    the noise for .2."""
    g = torch.Generator().manual_seed(seed)
    n_i = torch.ones(n, dtype=torch.float64) if counts is None else counts
    own = tau2 + s2 / n_i
    variance = missed * (own + 0.1 + (0.0 if grows is None else grows))
    y = variance.sqrt() * torch.randn(n, generator=g, dtype=torch.float64)
    zero, v = torch.zeros_like(y), torch.full_like(y, 0.1)
    return Spread(y, zero, zero, v, 0.2 + 0.2 / n_i, v, 0.2 / n_i)


def after_fit(rows):
    """The same rows as a model trained with its own noise leaves them."""
    whole = rows.noise_variance + rows.surface_variance
    return Spread(
        rows.y * rows.noise_variance / whole,
        *(getattr(rows, f) for f in ("mean", "fixed", "surface_variance", "noise_variance")),
        rows.weights_variance,
        rows.averaging_variance,
    )


# -- how fast it grows ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("sill", "reach"), [(0.8, 0.5), (0.3, 2.0)])
def test_sill_and_range_of_rows_made_with_them_are_found(sill, reach):
    def away(n, most, seed):
        d = most * torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return Away(seen_rows(n, grows=sill * (1 - torch.exp(-d / reach)), seed=seed + 9), d)

    seen = after_fit(seen_rows(4000, seed=3))
    found = fit_growth(away(4000, 0.1 * reach, 0), seen, [away(6000, 6 * reach, k) for k in (1, 2)])
    # The sd of a variance of ~1 known from some 10,000 rows is 1.4%; the range is read from its rise, some ten times worse.
    assert found == (pytest.approx(sill, rel=0.1), pytest.approx(reach, rel=0.25))


def test_rows_far_out_do_not_pass_for_places_far_away():
    """A fiftieth of the rows left out, and of those trained on, miss by ten times as much, which is twice the variance of all the others."""
    d = torch.linspace(0.01, 2.0, 3000, dtype=torch.float64)

    def rows(seed):
        made = seen_rows(3000, seed=seed)
        made.y[seed::50] *= 10.0
        return made

    sill, _ = fit_growth(Away(seen_rows(3000, seed=1), 0.01 * d), after_fit(rows(2)), [Away(rows(3), d)])
    assert sill < 0.2


def test_nothing_grows_of_targets_that_are_all_alike():
    flat = seen_rows(40, missed=0.0)
    d = torch.ones(40, dtype=torch.float64)
    assert fit_growth(Away(flat, d), flat, [Away(flat, d)])[0] == 0.0


def test_the_parts_of_the_noise_are_told_apart_by_the_counts():
    g = torch.Generator().manual_seed(5)
    counts = torch.randint(1, 30, (20_000,), generator=g).double()
    held = seen_rows(20_000, counts=counts, tau2=0.05, s2=0.8)
    found = fit_factors(held, after_fit(seen_rows(20_000, counts=counts, tau2=0.05, s2=0.8, seed=1)))
    assert 0.2 * found.noise * found.averaging == pytest.approx(0.8, rel=0.1)
    assert Factors.from_facts({"factors": found.to_dict()}).averaging == found.averaging
    # Rows of one count tell nothing of it.
    assert fit_factors(seen_rows(500), after_fit(seen_rows(500, seed=1))).averaging == 1.0


# -- what is left out -----------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1, 2])
def test_a_side_and_blocks_are_left_out_and_another_side_the_second_time(p):
    space = np.random.default_rng(0).uniform(0, 1, (2000, p)) * np.array([3.0, 1.0])[:p]
    first, second, *_ = sides_and_blocks(space, 4, seed=1)
    for out in (first, second):
        assert 0.15 < out.mean() < 0.45
    middle = space - space.mean(axis=0)
    # What lies outermost on the one side is left out wholly, and its opposite the other time.
    along = middle / middle.std(axis=0) @ np.random.default_rng(1).standard_normal(p)
    assert first[along > np.quantile(along, 0.86)].all() and second[along < np.quantile(along, 0.14)].all()
    assert not first[along < np.quantile(along, 0.5)].all()
    assert all(
        np.array_equal(a, b) for a, b in zip(sides_and_blocks(space, 2, seed=1), (first, second), strict=True)
    )


# -- the field ------------------------------------------------------------------------------------------


def field(sill=0.7, reach=0.5, columns=(0, 1)):
    residual = Gaps(Linear(2, 3)).eval()
    residual.columns = torch.tensor(columns, dtype=torch.long)
    residual.place(torch.zeros(1, max(len(columns), 1)).double())
    residual.take({"sill": sill, "range": reach})
    return residual.double()


def test_errors_of_neighbours_go_together_and_their_variance_is_the_distance_term_s():
    residual, g = field(), torch.Generator().manual_seed(0)
    Z = 5.0 + torch.randn(300, 2, generator=g).double()
    R = residual.root(Z)
    assert R is not None
    covariance, v = R @ R.T, residual.variance(Linear(2, 3), Z, Z, Z)
    torch.testing.assert_close(covariance.diagonal(), v)
    wanted = (v[:, None] * v).sqrt() * torch.exp(-torch.cdist(Z, Z) / 0.5)
    # 64 waves: each correlation is a mean of as many cosines, of sd .7.
    assert float((covariance - wanted).square().mean().sqrt()) < 1.5 * 0.7 * 0.7 / 8
    assert residual.train().root(Z) is None


def test_without_a_position_it_is_nothing():
    residual = field(columns=())
    Z = 9.0 * torch.ones(3, 1).double()
    assert residual.variance(Linear(2, 3), Z, Z, Z).tolist() == [0.0] * 3 and residual.root(Z) is None
    model = SimpleNamespace(encoder=SimpleNamespace(spatial=None))
    residual = Gaps(Linear(2, 3))
    residual.settle(model, Data(torch.zeros(4, 2), torch.arange(4.0)))
    assert len(residual.anchors) == 0


# -- in a fit -------------------------------------------------------------------------------------------


def world(n, seed, low=0.0, high=1.0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(low, high, (n, 2)) * 50_000
    W = np.random.default_rng(7).normal(size=(200, 2)) / 8_000
    phase = np.random.default_rng(8).uniform(0, 6.3, 200)
    counts = np.maximum(1.0, np.floor(np.exp(rng.normal(1.2, 1.2, n))))
    f = 0.1 * np.cos(X @ W.T + phase).sum(1)
    return X, f + np.sqrt(0.02 + 0.3 / counts) * rng.standard_normal(n), counts


@pytest.fixture(scope="module", params=DEEP)
def model(request):
    return geogp.GPRegressor(request.param, spatial=(0, 1), random_state=0).fit(*world(500, 0))


def test_intervals_beyond_the_data_hold_what_they_say(model):
    X, y, counts = world(400, 1, 1.0, 1.3)
    far = model.moments(X).latent_variance.mean()
    assert far > 2.0 * model.moments(world(400, 2)[0]).latent_variance.mean()
    low, high = model.interval(X, counts=counts)
    plain = geogp.GPRegressor(model.method, spatial=(0, 1), random_state=0, residual="none").fit(
        *world(500, 0)
    )
    assert ((low <= y) & (y <= high)).mean() > 0.87
    narrow, wide = plain.interval(X, counts=counts)
    assert ((narrow <= y) & (y <= wide)).mean() < ((low <= y) & (y <= high)).mean() - 0.05


def test_means_are_those_of_a_fit_without_it(model):
    plain = geogp.GPRegressor(model.method, spatial=(0, 1), random_state=0, residual="none").fit(
        *world(500, 0)
    )
    X = world(50, 3, 0.0, 1.5)[0]
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))


def test_draws_sums_and_covariances_agree_beyond_the_data(model):
    X = torch.from_numpy(world(40, 3, 1.0, 1.2)[0])
    engine = model.engine_
    v, S = engine.moments(X).latent_variance, engine.posterior_covariance(X)
    torch.testing.assert_close(S.diagonal(), v.double(), rtol=1e-5, atol=1e-8)
    joint = engine.joint(X, v)
    W = sparse.csr_array(np.vstack([np.full((1, 40), 1 / 40), np.eye(40)[:1]]))
    np.testing.assert_allclose(joint.covariance(W), W @ S.numpy() @ W.T.toarray(), rtol=1e-4)
    # The mean over the area keeps much of the variance of one place: its errors go together.
    assert joint.covariance(W)[0, 0] > 0.2 * float(v.mean())
    g = torch.Generator().manual_seed(0)
    for draws in (joint.draw(4000, g), engine.sample(X, 4000, g).numpy()):
        np.testing.assert_allclose(
            np.cov(draws), S.numpy(), atol=0.12 * float(v.max())
        )  # 5 sd of 4,000 draws


def test_it_goes_through_a_run_and_a_run_of_before_has_none_of_it(model):
    X = world(60, 3, 0.0, 1.3)[0]
    again = geogp.GPRegressor.from_state(*model.state())
    np.testing.assert_array_equal(again.interval(X)[0], model.interval(X)[0])
    tensors, facts = model.state()
    before = geogp.GPRegressor.from_state(
        {name: v for name, v in tensors.items() if ".residual." not in name}, facts
    )
    assert not any("residual" in name for name in before.state()[0])
    sd, now = (m.moments(X).latent_variance for m in (before, model))
    assert (sd <= now).all() and (sd < now).any()


def test_a_refit_without_held_out_rows_takes_what_was_taught(model):
    taught = model.engine_.taught()
    assert taught["residual"]["sill"] > 0.0
    X, y, counts = world(500, 0)
    empty = (X[:0], y[:0], counts[:0])
    hooks = geogp.engines.Hooks(taught=taught)
    again = geogp.GPRegressor(model.method, spatial=(0, 1), epochs=2).fit(
        X, y, counts, validation=empty, hooks=hooks
    )
    assert again.engine_.model.residual.taught() == taught["residual"]
    alone = geogp.GPRegressor(model.method, spatial=(0, 1), epochs=2).fit(X, y, counts, validation=empty)
    assert alone.engine_.model.residual.taught() == NONE
