"""What every entry of a registry promises. Nothing here names an entry: registering a piece tests it."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from geogp.basis.expansions import EXPANSIONS, Expansion, expansion_named
from geogp.basis.noise import NOISES
from geogp.basis.objectives import OBJECTIVES, Design, Sums
from geogp.basis.objectives.objective import SOLVES, SOLVES_BATCHES
from geogp.basis.residuals import RESIDUALS
from geogp.engines import asked
from geogp.engines.check import engine_of
from geogp.errors import NotDistanceAware
from geogp.estimator import GPRegressor
from geogp.methods import METHODS

#: Rank that every expansion accepts for one to three inputs.
RANK = 216


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


# -- expansions -----------------------------------------------------------------------------------------


def expansion(name, d=2, rank=RANK, seed=0, dtype=torch.float64):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        out = expansion_named(name)(d, rank).to(dtype)
        out.initialise(normal(300, d, seed=1, dtype=dtype))
    return out


BASES = [name for name, expansion in EXPANSIONS.items() if expansion.is_basis]
both_kinds = pytest.mark.parametrize("name", [*BASES, "+".join(BASES[:2])])


@both_kinds
@pytest.mark.parametrize("d", [1, 2, 3])
def test_expansion_shape(name, d):
    basis = expansion(name, d)
    phi = basis(normal(5, d))
    assert phi.shape == (5, basis.rank) and basis.rank <= RANK
    assert torch.isfinite(phi).all()
    assert basis(normal(0, d)).shape == (0, basis.rank)


@both_kinds
def test_expansion_rows_do_not_depend_on_their_batch(name):
    basis, h = expansion(name), normal(40, 2)
    with torch.no_grad():
        whole = basis(h)
        for rows in (slice(0, 1), slice(3, 17)):
            torch.testing.assert_close(basis(h[rows]), whole[rows], rtol=0, atol=1e-12)


@both_kinds
def test_expansion_kernel_is_positive_semidefinite_and_below_its_base_kernel(name):
    basis, h = expansion(name), normal(30, 2)
    with torch.no_grad():
        phi = basis(h)
        eigenvalues = torch.linalg.eigvalsh(phi @ phi.T)
        assert eigenvalues[0] >= -1e-10 * eigenvalues[-1]
        if getattr(basis, "has_base_kernel", False):
            K = basis.base_kernel(h, h)
            torch.testing.assert_close(K.diagonal(), basis.base_diagonal(h))
            assert torch.linalg.eigvalsh(K - phi @ phi.T)[0] > -1e-5


@both_kinds
def test_expansion_gradients(name):
    basis = expansion(name)
    h = normal(4, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: basis(v)[:, ::7], (h,), atol=1e-4)
    basis(h).square().sum().backward()
    for key, p in basis.named_parameters():
        assert p.grad is None or torch.isfinite(p.grad).all(), key
    assert {id(p) for p in basis.kernel_parameters()} <= {id(p) for p in basis.parameters()}


@both_kinds
def test_expansion_precisions_agree(name):
    double, single = expansion(name), expansion(name).float()
    with torch.no_grad():
        # Whitening at jitter 1e-6 multiplies rounding of 1e-7 by up to 1e3.
        torch.testing.assert_close(
            single(normal(20, 2).float()).double().square().sum(1),
            double(normal(20, 2)).square().sum(1),
            rtol=2e-3,
            atol=2e-3,
        )
        assert single(normal(3, 2).float()).dtype == torch.float32


@both_kinds
def test_expansion_saves_loads_and_repeats(name):
    one, two = expansion(name, seed=3), expansion(name, seed=3)
    h = normal(6, 2)
    with torch.no_grad():
        assert torch.equal(one(h), two(h))
        other = expansion(name, seed=4)
        other.load_state_dict(one.state_dict())
        assert torch.equal(other(h), one(h))


@both_kinds
@pytest.mark.parametrize("case", ["one row", "equal rows", "collinear rows", "far away"])
def test_expansion_placed_by_awkward_rows_stays_finite(name, case):
    h = {
        "one row": torch.tensor([[0.3, -0.2]]).double(),
        "equal rows": torch.full((9, 2), 0.7).double(),
        "collinear rows": torch.linspace(0, 1, 9).double()[:, None] * torch.tensor([1.0, 2.0]).double(),
        "far away": 1e6 + normal(9, 2),
    }[case]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        basis = expansion_named(name)(2, RANK).double()
        basis.initialise(h)
    places = torch.cat([h, h + 0.1, -1e6 * torch.ones(1, 2).double()]).requires_grad_()
    phi = basis(places)
    assert torch.isfinite(phi).all()
    phi.square().sum().backward()
    for key, p in basis.named_parameters():
        assert p.grad is None or torch.isfinite(p.grad).all(), key


def test_a_new_expansion_needs_no_other_edit(monkeypatch):
    class Toy(Expansion):
        def __init__(self, n_inputs, rank):
            super().__init__()
            self.rank = rank
            self.slope = torch.nn.Parameter(torch.linspace(0.5, 2.0, rank))

        def forward(self, h):
            return torch.cos(h.sum(1, keepdim=True) * self.slope) / self.rank**0.5

    monkeypatch.setitem(EXPANSIONS, "toy", Toy)
    test_expansion_shape("toy", 2)
    test_expansion_gradients("toy")
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 3, (60, 2))
    for method in ("dbk-silu", "dbk-silu-exact"):
        for name in ("toy", "toy+fourier"):
            model = small(method, expansion=name).fit(X, X.sum(1))
            assert np.isfinite(model.predict(X)).all()


# -- noises ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_counts", [False, True])
@pytest.mark.parametrize("name", [name for name, noise in NOISES.items() if noise.of_basis])
def test_noise_variances(name, has_counts):
    noise = NOISES[name].made(has_counts).double()
    Z, counts = normal(20, 3), torch.arange(1.0, 21.0).double()
    noise.initialise(0.3, counts)
    v = noise(Z, counts)
    assert v.shape == (20,) and (v > 0).all() and v.dtype == torch.float64
    assert 0.1 < v.mean() < 0.6
    torch.testing.assert_close(noise(Z[3:5], counts[3:5]), v[3:5])
    assert (noise(Z, None) > 0).all()
    # More measurements never make an average noisier.
    assert (noise(Z, 10 * counts) <= v + 1e-12).all()
    noise.initialise(0.0, counts)
    assert (noise(Z, counts) > 0).all()
    v.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in noise.parameters() if p.grad is not None)


# -- residuals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, residual in RESIDUALS.items() if not residual.carried_by])
def test_residual_variances(name):
    basis = expansion("rbf")
    residual = RESIDUALS[name](basis).double().eval()
    h = normal(25, 2)
    phi = basis(h)
    v = residual.variance(basis, h, h, phi)
    assert v.shape == (25,) and (v >= 0).all() and torch.isfinite(v).all()
    torch.testing.assert_close(
        residual.variance(basis, h[4:9], h[4:9], basis(h[4:9])), v[4:9], rtol=0, atol=1e-8
    )
    if residual.reverts_to_prior:
        far = torch.full((1, 2), 1e3).double()
        assert residual.variance(basis, far, far, basis(far)) >= v.detach().max() - 1e-9


# -- objectives -----------------------------------------------------------------------------------------


def doing(what):
    return [name for name, objective in OBJECTIVES.items() if objective.does == what]


def some_rows(n=12, r=4):
    g = torch.Generator().manual_seed(0)
    phi = torch.randn(n, r, generator=g, dtype=torch.float64).requires_grad_()
    noise = (0.2 + torch.rand(n, generator=g, dtype=torch.float64)).requires_grad_()
    gap = torch.rand(n, generator=g, dtype=torch.float64).requires_grad_()
    y = torch.randn(n, generator=g, dtype=torch.float64).requires_grad_()
    return [phi, y, noise, gap]


@pytest.mark.parametrize("name", doing(SOLVES))
def test_closed_form_objectives_are_finite_with_finite_gradients(name):
    inputs = some_rows()
    loss = OBJECTIVES[name](Sums.of(Design(*inputs)))
    assert loss.shape == ()
    for g in torch.autograd.grad(loss, inputs, allow_unused=True):
        assert g is None or torch.isfinite(g).all()


@pytest.mark.parametrize("name", doing(SOLVES_BATCHES))
def test_batch_objectives_are_finite_with_finite_gradients(name):
    inputs = some_rows()
    loss = OBJECTIVES[name](Design(*inputs), 0)
    for g in torch.autograd.grad(loss, inputs, allow_unused=True):
        assert g is None or torch.isfinite(g).all()


# -- methods --------------------------------------------------------------------------------------------


def small(method, **changes):
    """A fit of a second: tiny rank and network, few epochs."""
    settings = {"rank": 36, "hidden": 8, "epochs": 3, "fourier_scales": (1.0,), "random_state": 0, **changes}
    if METHODS[method].engine == "local":
        settings["options"] = {"n_targets": 300, "steps": 12, **settings.get("options", {})}
    return GPRegressor(method, **settings)


def for_method(method, y):
    """The target itself, or as log10(1 + count) where the method's likelihood counts."""
    return np.log10(1.0 + np.round(np.exp(y))) if METHODS[method].objective == "poisson" else y


def field(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10, (n, 2))
    return X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(n)


def awkward(case):
    rng = np.random.default_rng(0)
    if case == "one point":
        return np.array([[1.0, 2.0]]), np.array([3.0])
    if case == "constant target":
        return rng.uniform(0, 1, (20, 2)), np.full(20, 2.0)
    if case == "all points equal":
        return np.full((20, 2), 4.0), rng.standard_normal(20)
    if case == "collinear points":
        t = rng.uniform(0, 1, 20)
        return np.stack([t, 2 * t], 1), np.sin(6 * t)
    if case == "fewer rows than rank":
        return field(5)
    if case == "10^4 duplicates":
        X, y = field(10)
        return np.repeat(X, 1000, 0), np.repeat(y, 1000) + 0.1 * rng.standard_normal(10_000)
    assert case == "far from the origin"
    X, y = field(30)
    return X + 1e6, y


AWKWARD = [
    "one point",
    "constant target",
    "all points equal",
    "collinear points",
    "fewer rows than rank",
    "10^4 duplicates",
    "far from the origin",
]
#: Of 10^4 rows those whose engine is exact, O(n^3), take every so many, and so does a field, to which copies are rows.
EVERY = {"exact": 20, "averaged": 20, "local": 4}
methods = pytest.mark.parametrize("method", METHODS)


def sound(model, X):
    """0 < variance <= prior, all finite, at the data and a million lengths away."""
    places = np.concatenate([X[:50], X[:1] + 1e6, X[:1] - 1e6])
    counts = np.full(len(places), 2.0) if model.typical_count_ is not None else None
    moments = model.moments(places, counts)
    for name in ("mean", "latent_variance", "noise_variance", "prior_variance"):
        assert torch.isfinite(getattr(moments, name)).all(), name
    assert (moments.latent_variance >= 0).all() and (moments.noise_variance > 0).all()
    assert (moments.latent_variance <= moments.prior_variance * (1 + 1e-4) + 1e-6).all()
    mean, sd = model.predict(places, return_std=True, counts=counts)
    assert np.isfinite(mean).all() and np.isfinite(sd).all() and (sd > 0).all()


@methods
@pytest.mark.parametrize("case", AWKWARD)
def test_method_survives(method, case):
    X, y = awkward(case)
    if case == "10^4 duplicates":
        every = EVERY.get(METHODS[method].engine, 1)
        X, y = X[::every], y[::every]
    sound(small(method).fit(X, for_method(method, y)), X)


@methods
def test_method_fits_counts_repeats_itself_and_survives_a_round_trip(method):
    X, y = field()
    y = for_method(method, y)
    counts = np.arange(1, 61)
    model = small(method).fit(X, y, counts=counts)
    sound(model, X)
    mean, sd = model.predict(X, return_std=True)
    twin = small(method).fit(X, y, counts=counts)
    np.testing.assert_array_equal(twin.predict(X), mean)
    again = GPRegressor.from_state(*model.state())
    mean_again, sd_again = again.predict(X, return_std=True)
    np.testing.assert_array_equal(mean_again, mean)
    np.testing.assert_array_equal(sd_again, sd)


@methods
def test_method_rows_do_not_depend_on_their_batch(method):
    X, y = field()
    model = small(method).fit(X, for_method(method, y))
    mean, sd = model.predict(X, return_std=True)
    for rows in ([7], list(range(20, 40))):
        part, part_sd = model.predict(X[rows], return_std=True)
        np.testing.assert_allclose(part, mean[rows], rtol=0, atol=1e-7)
        np.testing.assert_allclose(part_sd, sd[rows], rtol=0, atol=1e-7)


@methods
def test_method_predicts_the_same_whatever_the_threads(method):
    """To the last bit: a map made by one worker of one thread each is the map of a machine of many."""
    X, y = field()
    model = small(method, epochs=1).fit(X, for_method(method, y))
    places = torch.from_numpy(np.random.default_rng(1).uniform(0, 10, (5001, 2)))
    threads, found = torch.get_num_threads(), []
    try:
        for several in (1, 2, 3):
            torch.set_num_threads(several)
            found.append(model.engine_.moments(places))
    finally:
        torch.set_num_threads(threads)
    for name in ("mean", "latent_variance", "noise_variance", "prior_variance"):
        assert all(torch.equal(getattr(found[0], name), getattr(other, name)) for other in found[1:]), name


@methods
def test_method_covariance_is_positive_semidefinite_and_has_the_variances(method):
    X, y = field(40)
    model = small(method, target_transform="identity").fit(X, for_method(method, y))
    _, covariance = model.predict(X, return_cov=True, latent=True)
    _, sd = model.predict(X, return_std=True, latent=True)
    eigenvalues = np.linalg.eigvalsh(covariance)
    assert eigenvalues[0] > -1e-6 * max(eigenvalues[-1], 1e-6)
    np.testing.assert_allclose(np.diag(covariance), sd**2, rtol=1e-9, atol=1e-12)
    assert np.isfinite(model.sample_y(X[:5], 3)).all()
    assert np.isfinite(model.kernel_slice(X, X[0])).all()


@methods
def test_method_reverts_to_its_prior_or_says_that_it_need_not(method):
    X, y = field()
    asked._TOLD.clear()  # it says so once
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NotDistanceAware)
        model = small(method, epochs=20).fit(X, for_method(method, y))
    said = [w for w in caught if issubclass(w.category, NotDistanceAware)]
    if METHODS[method].reverts_to_prior:
        assert not said
        _, near = model.predict(X, return_std=True, latent=True)
        _, far = model.predict(X[:1] + 1e4, return_std=True, latent=True)
        assert (far >= near - 1e-6).all()
    else:
        assert len(said) == 1 and method in str(said[0].message)


@methods
def test_every_row_says_what_it_is(method):
    row = METHODS[method]
    assert row.summary and row.paper and row.equations and row.cost and row.use_when
    assert engine_of(row).route in ("variational", "closed_form")
    assert replace(row) == row and set(row.to_dict()) >= {"name", "paper", "expansion", "residual"}
