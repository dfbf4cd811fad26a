"""What the local field's kernel and noise are fitted by: the loss, its parts, and what is trained."""

import geogp  # noqa: F401  first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.linalg
import torch

from geogp.densities import log_density
from geogp.field.kernel import LocalKernel
from geogp.field.likelihood import together
from geogp.field.likelihood.conditional import conditional_log_density
from geogp.field.likelihood.minibatches import _one_cycle, fit_local_gp
from geogp.field.likelihood.restricted import Dense, Product, Rows, plane_over
from geogp.field.likelihood.together import fit_all_together, minus_log_likelihoods, penalty
from geogp.field.likelihood.trained import Trained
from geogp.field.local_gp import LocalGP
from geogp.field.noise.rows import ToldNoise
from geogp.field.student import student_weights
from geogp.field.variation import Variation
from geogp.field.variation.told import Following
from tests.geogp.test_local import kernel, points

# -- what a fit minimises -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_world():
    X, X_far = points(30, 3, seed=6), points(8, 3, seed=7)
    counts = torch.arange(1.0, 31.0).double()
    return X, torch.sin(2 * X[:, 0]), counts, X_far


@pytest.mark.parametrize("student", [True, False])
@pytest.mark.parametrize("structure", ["plain", "told", "varying", "following"])
def test_the_first_loss_is_that_of_the_formula(small_world, structure, student):
    """Rows given their neighbours, a small say of each row by itself, and the priors of what has some."""
    X, y, counts, _ = small_world
    start = kernel(("matern32",), (0.4, 0.7, 0.9), time_axis=2)
    told = ToldNoise.over(X, y, counts)
    coefficients = torch.linspace(-0.3, 0.4, 8).double().reshape(4, 2)
    told = (
        replace(told, noise=replace(told.noise, coefficients=coefficients)) if structure == "told" else None
    )
    bumps = Variation.flat(X[:, :2], 3)
    if structure == "varying":
        start = replace(
            start,
            variation=replace(
                bumps, lengthscale=torch.linspace(-0.3, 0.4, 3).double(), variance=bumps.width * 0.1
            ),
        )
    follows = said = None
    if structure == "following":
        follows = Following(replace(bumps, blended=True), coefficients / 2)
        said = torch.linspace(-1, 1, 12).double().reshape(3, 4)
    index = torch.rand(30, 30, generator=torch.Generator().manual_seed(8)).argsort(1)[:, :5]
    sets = [(torch.arange(30), index, said)]
    got = fit_local_gp(
        X, y, counts, sets, start, told=told, follows=follows, student=student, steps=1, batch=7, seed=3
    )

    nu = torch.tensor(3.0 + 2.05).double() if student else None
    noise = 0.1 + 1.0 / counts
    if told is not None:
        factors = told.noise.factors(told.says)
        noise = 0.1 * factors[:, 0] + factors[:, 1] / counts
    where = start if follows is None else replace(start, variation=follows.variation(said))
    generator = torch.Generator().manual_seed(3)
    pick = torch.randint(30, (7,), generator=generator)
    density = conditional_log_density(where, X, y, noise, pick, index[pick], nu)
    pick = torch.randint(30, (30,), generator=generator)
    alone = log_density(y[pick], torch.zeros(30).double(), where.prior_at(X[pick]) + noise[pick], nu)
    penalty = 0.0
    if structure in ("told", "following"):
        own = coefficients if told is not None else coefficients / 2
        penalty = 0.5 * float(own.square().sum()) / 0.5**2 / 30
    elif structure == "varying":
        penalty = (
            0.5 * float((start.variation.lengthscale**2 + start.variation.variance**2).sum()) / 0.5**2 / 30
        )
    expected = -float(density.mean()) - 0.1 * float(alone.mean()) + penalty
    assert got.loss == pytest.approx(
        (expected,), rel=1e-7 if student else 1e-9
    )  # weights are found in float32
    assert got.weighted == student and (got.degrees_of_freedom is None) == (not student)


def test_neighbours_without_weights_are_gaussian_ones_of_the_variance_of_a_student_t(small_world):
    X, y, counts, _ = small_world
    k, noise = kernel(lengthscale=(0.4, 0.7, 0.9)), 0.1 + 1 / counts
    index = torch.rand(30, 30, generator=torch.Generator().manual_seed(8)).argsort(1)[:, :5]
    rows, nu = torch.arange(30), torch.tensor(5.0).double()
    got = conditional_log_density(k, X, y, noise, rows, index, nu, weighted=False)
    for i in range(30):
        near = index[i]
        S = k(X[near], X[near]) + torch.diag(5 / 3 * noise[near])
        b = torch.linalg.solve(S, k(X[i][None], X[near])[0])
        left = k.prior_variance - b @ k(X[near], X[i][None])[:, 0]
        scale = float((left + noise[i]).sqrt())
        expected = torch.distributions.StudentT(5.0, float(b @ y[near]), scale).log_prob(y[i])
        assert float(got[i]) == pytest.approx(float(expected), abs=1e-6)


def test_a_fit_tells_of_each_step_and_steps_as_it_says(small_world):
    X, y, counts, _ = small_world
    sets, ticks = [(torch.arange(30), torch.arange(30).roll(1)[:, None], None)], []
    start = kernel(lengthscale=(0.4, 0.7, 0.9))
    got = fit_local_gp(X, y, counts, sets, start, steps=3, tick=lambda: ticks.append(1))
    assert len(ticks) == len(got.loss) == 3
    same = fit_local_gp(X, y, counts, sets, start, steps=3, batch=128, learning_rate=0.04)
    torch.testing.assert_close(same.kernel.log_lengthscale, got.kernel.log_lengthscale, rtol=0, atol=1e-12)
    assert same.loss == pytest.approx(got.loss, rel=1e-12)

    def ended():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_local_gp(X, y, counts, sets, start, steps=3, tick=ended)


def test_each_row_alone_speaks_as_forty_of_many_and_a_thousand_at_a_time():
    X = points(2000, 2, seed=9)
    y, counts = torch.cos(X[:, 1]), torch.ones(2000).double()
    every = (torch.arange(2000), torch.arange(2000).roll(1)[:, None], None)
    got = fit_local_gp(X, y, counts, [every], kernel(), student=False, per_count=False, steps=1, batch=50)
    generator = torch.Generator().manual_seed(0)
    pick = torch.randint(2000, (50,), generator=generator)
    given = conditional_log_density(kernel(), X, y, 0.1 * counts, pick, every[1][pick], None)
    pick = torch.randint(2000, (1024,), generator=generator)
    alone = torch.distributions.Normal(0.0, math.sqrt(1.3 + 0.1)).log_prob(y[pick])
    assert got.loss == pytest.approx((-float(given.mean()) - 40 / 2000 * float(alone.mean()),), rel=1e-9)


@pytest.mark.parametrize("smoothness", [("matern12",), ("matern52", "matern32")])
def test_a_fit_of_no_steps_is_its_start(small_world, smoothness):
    """What is trained is another form of the same numbers."""
    X, y, counts, _ = small_world
    start = kernel(smoothness, (0.4, 0.7, 0.9), time_axis=2)
    got = fit_local_gp(X, y, counts, [], start, columns=torch.stack([1 / counts], 1), steps=0)
    torch.testing.assert_close(got.kernel.log_lengthscale, start.log_lengthscale)
    torch.testing.assert_close(got.kernel.log_variance, start.log_variance)
    assert (got.tau2, got.s2, got.degrees_of_freedom) == pytest.approx((0.1, 1.0, 5.05))
    assert got.count_shift.tolist() == [0.0] and got.loss == () and got.rows is None and got.follows is None
    assert fit_local_gp(X, y, counts, [], start, noise=0.5, steps=0).tau2 == pytest.approx(0.5)
    plain = fit_local_gp(X, y, counts, [], start, student=False, per_count=False, steps=0)
    assert plain.s2 == 0.0 and plain.degrees_of_freedom is None and not plain.weighted
    assert plain.count_shift.shape == (0,)
    assert not fit_local_gp(X, y, counts, [], start, weighted=False, steps=0).weighted


def test_a_shift_by_counts_is_found_and_its_sign_is_that_of_the_mean():
    """Rows without a surface, whose mean is 2 / n: three standard errors of 600 rows."""
    X = points(600, 2, seed=10)
    counts = torch.from_numpy(np.random.default_rng(1).choice([1.0, 2.0, 10.0], 600))
    y = 2 / counts + 0.3 * torch.randn(600, generator=torch.Generator().manual_seed(1)).double()
    index = torch.rand(600, 600, generator=torch.Generator().manual_seed(2)).argsort(1)[:, :4]
    start = replace(kernel(), log_variance=torch.full((1,), -3.0).double())
    got = fit_local_gp(X, y, counts, [(torch.arange(600), index, None)], start, columns=(1 / counts)[:, None],
                       student=False, per_count=False, steps=250, batch=300, learning_rate=0.12)  # fmt: skip
    assert float(got.count_shift[0]) == pytest.approx(2.0, abs=0.15)


def test_rates_differ_by_what_is_learned(small_world):
    """The noise, the tails and v / l^2nu at twice the rate, bumps at a quarter."""
    X, y, counts, _ = small_world
    start = replace(kernel(), variation=Variation.flat(X[:, :2], 3))
    model = Trained(start, 1, ToldNoise.over(X, y, counts), None, student=True, per_count=True)
    each = [(p, group.rate) for group in _one_cycle(model, 0.04, 50).groups for p in group.parameters]
    of = {id(p): rate for p, rate in each}
    assert len(each) == len(of)  # none moves twice
    rates = {name: of[id(p)] for name, p in model.named_parameters()}
    assert rates == pytest.approx({
        "lengthscale": 0.04, "shift": 0.04, "rate": 0.08, "tau2": 0.08, "s2": 0.08, "tails": 0.08,
        "row_coefficients": 0.08, "stretch": 0.01, "amplitude": 0.01,
    })  # fmt: skip
    assert _one_cycle(model, 0.04, 50).total == 50 and _one_cycle(model, 0.04, 3).total == 6
    without = Trained(kernel(), 0, None, None, student=True, per_count=False)
    assert not without.s2.requires_grad
    assert all(
        p is not without.s2 for group in _one_cycle(without, 0.04, 50).groups for p in group.parameters
    )


def test_all_rows_together_find_the_largest_restricted_likelihood():
    # 300 rows of a Matern-3/2 process in space and time whose plane is not zero; a dense computation of its own judges.
    rng = np.random.default_rng(3)
    P = np.column_stack([rng.uniform(0, 6, (300, 2)), rng.integers(0, 8, 300) / 4])

    def covariance(lengths, variance, noise):
        r = np.sqrt(3) * np.linalg.norm((P[:, None, :2] - P[None, :, :2]) / lengths[:2], axis=-1)
        lag = np.abs(P[:, None, 2] - P[None, :, 2]) / lengths[2]
        return variance * (1 + r) * np.exp(-r - lag) + noise * np.eye(300)

    truth = covariance(np.array([1.0, 1.0, 2.0]), 1.0, 0.1)
    plane = np.column_stack([np.ones(300), P[:, :2]])
    y = np.linalg.cholesky(truth) @ rng.standard_normal(300) + plane @ [3.0, -1.0, 0.5]

    def restricted(S):
        Q = np.linalg.inv(S)
        A = plane.T @ Q @ plane
        left = y - plane @ np.linalg.solve(A, plane.T @ Q @ y)
        return -0.5 * (left @ Q @ left + np.linalg.slogdet(S)[1] + np.linalg.slogdet(A)[1])

    kernel = LocalKernel(torch.zeros(1, 3).double() + 1.0, torch.zeros(1).double() - 1.0, ("matern32",), 2)
    began = LocalGP(kernel, 0.5, 1.0, None, torch.zeros(0), (), weighted=False)
    X, z = torch.from_numpy(P), torch.from_numpy(y)
    gp, _ = fit_all_together(began, X, z, torch.ones(300).double(), per_count=False)

    def of(lengths, variance, noise):
        return restricted(covariance(np.asarray(lengths), variance, noise))

    found = gp.kernel.log_lengthscale[0].exp().numpy(), gp.kernel.log_variance.exp().item(), gp.tau2
    best = of(*found)
    assert best >= restricted(truth)
    for factor in (0.97, 1.03):
        for axis in range(3):
            stretched = found[0].copy()
            stretched[axis] *= factor
            assert of(stretched, *found[1:]) <= best + 1e-3
        assert of(found[0], factor * found[1], found[2]) <= best + 1e-3
        assert of(found[0], found[1], factor * found[2]) <= best + 1e-3


def test_an_outlier_that_was_weighed_down_stays_so_together():
    X = torch.linspace(0, 10, 120).double()[:, None].repeat(1, 2)
    y = torch.sin(X[:, 0])
    y[60] += 40.0
    kernel = LocalKernel(torch.zeros(1, 2).double(), torch.zeros(1).double(), ("matern32",))
    one = torch.ones(120).double()
    tau2 = {}
    for weighted in (True, False):
        began = LocalGP(kernel, 0.1, 1.0, 3.0, torch.zeros(0), (), weighted=weighted)
        tau2[weighted] = fit_all_together(began, X, y, one, per_count=False)[0].tau2
    assert tau2[True] < 0.05 < 2.0 < tau2[False]


def contrasts(X, z, S):
    """Minus the log density of what of z (N,) no plane over the first two axes explains, less a constant."""
    P = np.column_stack([np.ones(len(z)), X[:, :2]])
    A = scipy.linalg.null_space(P.T)
    inside = A.T @ S @ A
    left = A.T @ z
    return 0.5 * (left @ np.linalg.solve(inside, left) + np.linalg.slogdet(inside)[1])


def made_of(gp, X, counts, says, columns, weights=1.0):
    """Shift (N,) and covariance (N, N) of rows as a local GP has them, where they are conditioned on."""
    noise = gp.variance_factor * gp.noise_variance(counts, X, says) / weights
    return (columns @ gp.count_shift).numpy(), (gp.kernel(X, X) + torch.diag(noise)).numpy()


def test_a_kernel_of_long_lengths_and_small_variances_is_likelier():
    """Rates of 1 a spacing over the length and a sd, 2 a covariate's; a normal ratio of the lengths along both axes."""
    k = kernel(("matern12", "matern32"), (0.4, 0.7, 0.9, 0.6, 0.3), variance=0.6, time_axis=2)
    expected = 0.0
    for c in range(2):
        first, second, _, one, other = k.log_lengthscale[c].exp().tolist()
        expected += 1 / (3.5 * math.sqrt(first * second)) + 2 * (1 / one + 1 / other) + math.sqrt(0.6)
        expected += 0.5 * (math.log(first / second) / 0.5) ** 2
    assert float(penalty(k)) == pytest.approx(expected)


@pytest.fixture
def few():
    """Forty rows, and a local GP none of whose numbers is 0 or 1."""
    X, counts = points(40, 3, seed=11), torch.arange(1.0, 41.0).double()
    y = torch.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 2.0
    y[7] += 3.0
    told = ToldNoise.over(X, y, counts)
    coefficients = torch.linspace(-0.3, 0.4, 8).double().reshape(4, 2)
    told = replace(told, noise=replace(told.noise, coefficients=coefficients))
    start = kernel(("matern32",), (0.4, 0.7, 0.9), variance=0.6, time_axis=2)
    shift = torch.tensor([0.3, -0.2]).double()
    gp = LocalGP(start, 0.2, 0.4, None, shift, (3.0,), weighted=False, rows=told.noise)
    return gp, X, y, counts, told, torch.stack([1 / counts, counts.rsqrt()], 1)


@pytest.mark.parametrize("tails", ["gaussian", "weighted", "unweighted"])
def test_a_search_goes_down_the_likelihood_and_the_priors(monkeypatch, few, tails):
    """What is minimised, its slope, its bounds, and what is made of what is found."""
    gp, X, y, counts, told, columns = few
    nu = None if tails == "gaussian" else 4.0
    gp = replace(gp, degrees_of_freedom=nu, weighted=tails == "weighted")
    asked, ticks = {}, []
    move = np.random.default_rng(0).uniform(-0.3, 0.3, 16)

    def search(loss, start, **options):
        at = start + move
        asked["began"] = loss(start)[0]
        asked.update(options, start=start, found=loss(at))
        asked["slope"] = [(loss(at + h)[0] - loss(at - h)[0]) / 2e-5 for h in 1e-5 * np.eye(16)]
        return SimpleNamespace(x=at, fun=asked["found"][0])

    monkeypatch.setattr(together, "minimize", search)
    got, gain = fit_all_together(
        gp, X, y, counts, columns=columns, told=told, passes=7, tick=lambda: ticks.append(1)
    )
    assert gain == pytest.approx(asked["began"] - asked["found"][0])
    assert len(ticks) == 34 and asked["options"] == {"maxiter": 7} and asked["method"] == "L-BFGS-B"
    weights = 1.0
    if tails == "weighted":
        own = gp.noise_variance(counts, X, told.says)
        _, S = made_of(gp, X, counts, told.says, columns)
        K, z = torch.from_numpy(S) - torch.diag(own), y - columns @ gp.count_shift
        weights = student_weights(K[None], own[None], z[None], 4.0)[0]
        assert weights.min() < 0.5
    mean, S = made_of(got, X, counts, told.says, columns, weights)
    value = contrasts(X.numpy(), y.numpy() - mean, S) + float(penalty(got.kernel))
    value += 0.5 * float(got.count_shift.square().sum()) / 0.5**2
    value += 0.5 * float(got.rows.coefficients.square().sum()) / 0.5**2
    assert asked["found"][0] == pytest.approx(value, abs=2e-5 if tails == "weighted" else 1e-9)
    np.testing.assert_allclose(asked["found"][1], asked["slope"], rtol=1e-5, atol=1e-6)
    low = asked["start"] - np.array([b[0] for b in asked["bounds"]])
    names = ["lengthscale"] * 3 + ["rate"] + ["shift"] * 2 + ["tau2", "s2"] + ["row_coefficients"] * 8
    assert low.tolist() == pytest.approx([14.0 if name in ("tau2", "s2") else 5.0 for name in names])
    np.testing.assert_allclose([b[1] for b in asked["bounds"]], asked["start"] + 5.0)
    assert math.log(got.tau2 / gp.tau2) == pytest.approx(move[6])
    assert math.log(got.s2 / gp.s2) == pytest.approx(move[7])
    np.testing.assert_allclose(got.count_shift, gp.count_shift.numpy() + move[4:6])
    assert got.degrees_of_freedom == (None if nu is None else pytest.approx(nu))
    assert got.loss == gp.loss and got.weighted == gp.weighted


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_the_likelihood_of_all_rows_is_that_of_the_contrasts(monkeypatch, few, weighted, dense):
    """As one factorisation and as a product over all rows before; weighed as another local GP weighs them."""
    gp, X, y, counts, told, columns = few
    gp = replace(gp, degrees_of_freedom=4.0, weighted=weighted)
    by = replace(gp, tau2=0.4, count_shift=-gp.count_shift)
    monkeypatch.setattr(together, "DENSE_BELOW", 41 if dense else 40)
    if not dense:
        everything = partial(Product.over, neighbours=40)
        monkeypatch.setattr(Product, "over", everything)
    weights = 1.0
    if weighted:
        own = by.noise_variance(counts, X, told.says)
        z = y - columns @ by.count_shift
        weights = student_weights(by.kernel(X, X)[None], own[None], z[None], 4.0)[0]
    mean, S = made_of(gp, X, counts, told.says, columns, weights)
    expected = contrasts(X.numpy(), y.numpy() - mean, S)
    other = replace(gp, weighted=not weighted)
    got, _ = both = minus_log_likelihoods(
        (gp, other), X, y, counts, weighed_by=by, columns=columns, told=told
    )
    turned = minus_log_likelihoods((other, gp), X, y, counts, weighed_by=by, columns=columns, told=told)
    assert both == pytest.approx(turned[::-1]) and both[0] != both[1]
    assert got == pytest.approx(expected, abs=2e-5 if weighted else 1e-9)  # weights are found in float32
    plain = replace(gp, count_shift=torch.zeros(0), rows=None)
    (got,) = minus_log_likelihoods(
        (plain,), X, y, counts, weighed_by=replace(by, count_shift=torch.zeros(0), rows=None)
    )
    if not weighted:
        _, S = made_of(replace(plain, count_shift=torch.zeros(2).double()), X, counts, None, columns)
        assert got == pytest.approx(contrasts(X.numpy(), y.numpy(), S), rel=1e-9)


@pytest.mark.parametrize(
    ("scales", "columns"),
    [((1.0, 1.0), 3), ((1.0, 0.0), 2), ((0.0, 0.0), 1), ((1e6, 1e-3), 2), ((1e6, 1.0), 3)],
)
def test_a_plane_has_the_columns_that_places_tell_apart(scales, columns):
    X = points(30, 3) - 1.0
    X[:, :2] *= torch.tensor(scales).double()
    plane = plane_over(X)
    assert plane.shape == (30, columns)
    torch.testing.assert_close(plane.T @ plane, torch.eye(columns).double(), rtol=0, atol=1e-12)
    for v in (torch.ones(30).double(), X[:, 0]):
        torch.testing.assert_close(plane @ (plane.T @ v), v, rtol=0, atol=1e-6 * float(v.abs().max()))


# -- as a product of conditionals ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def asked():
    """Rows of a model none of whose numbers is 0 or 1, and the kernel they are near by."""
    X, counts = points(150, 3, seed=8), torch.arange(1.0, 151.0).double()
    start = kernel(("matern32", "matern32"), (0.4, 0.7, 0.9), time_axis=2)
    y = torch.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 2.0
    told = ToldNoise.over(X, y, counts)
    told = replace(
        told,
        noise=replace(told.noise, coefficients=torch.linspace(-0.3, 0.4, 8).double().reshape(4, 2)),
    )
    model = Trained(start, 2, told, None, student=True, per_count=True)
    with torch.no_grad():
        model.shift.copy_(torch.tensor([0.3, -0.2]))
        model.s2.fill_(-0.5)
    rows = Rows(X, y, counts, torch.stack([1 / counts, counts.log()], 1), torch.ones_like(y))
    return start, model, rows


def gradient(likelihood, model, rows):
    model.zero_grad()
    value = likelihood.backward(model, rows)
    return value, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_a_product_over_all_earlier_rows_is_the_likelihood_of_all(asked):
    start, model, rows = asked
    dense = Dense(plane_over(rows.X))
    product = Product.over(rows.X, start, seed=3, neighbours=150)
    model.zero_grad()
    rows = rows.weighed(product, model, 4.0)
    assert torch.allclose(
        rows.weights, dense.student_weights(model, replace(rows, weights=torch.ones(150)), 4.0)
    )
    assert rows.weights.std() > 0.01
    (value, slope), (other, expected) = gradient(product, model, rows), gradient(dense, model, rows)
    assert value == pytest.approx(other, abs=1e-8)
    assert slope.keys() == expected.keys()
    for name, each in slope.items():
        torch.testing.assert_close(each, expected[name], rtol=1e-7, atol=1e-8)


def in_more_digits(S, y, plane):
    """Minus the restricted log likelihood, less a constant, in the longest numbers that numpy has."""
    S, both = S.astype(np.longdouble), np.column_stack([y, plane]).astype(np.longdouble)
    L = np.zeros_like(S)
    for j in range(len(S)):
        L[j, j] = np.sqrt(S[j, j] - L[j, :j] @ L[j, :j])
        L[j + 1 :, j] = (S[j + 1 :, j] - L[j + 1 :, :j] @ L[j, :j]) / L[j, j]
        both[j] = (both[j] - L[j, :j] @ both[:j]) / L[j, j]
    a, Q = both[:, 0], both[:, 1:]
    A = Q.T @ Q
    left = a @ a - (Q.T @ a) @ np.linalg.solve(A.astype(float), (Q.T @ a).astype(float))
    return float(left / 2 + np.log(L.diagonal()).sum() + np.linalg.slogdet(A.astype(float))[1] / 2)


def test_smooth_values_by_next_to_no_noise_keep_their_digits():
    """An inverse of the covariance loses four digits more here."""
    X = 2.0 * torch.rand(40, 2, generator=torch.Generator().manual_seed(0)).double()
    y, one = torch.sin(X[:, 0]) * torch.cos(X[:, 1]), torch.ones(40).double()
    smooth = LocalKernel(torch.full((1, 2), 2.5).double(), torch.full((1,), 3.0).double(), ("matern52",))
    model = Trained(smooth, 0, None, None, student=False, per_count=False)
    with torch.no_grad():
        model.tau2.fill_(-14.0)
        K = smooth(X, X)
    noise = (np.exp(-14.0) + 1e-12 * float(K.diagonal().mean())) * np.eye(40)
    expected = in_more_digits(K.numpy() + noise, y.numpy(), plane_over(X).numpy())
    rows = Rows(X, y, one, torch.zeros(40, 0).double(), one)
    assert Dense(plane_over(X)).backward(model, rows) == pytest.approx(expected, abs=1e-6)


def test_few_neighbours_come_close_and_a_sample_of_the_later_rows_stands_for_all(asked):
    start, model, rows = asked
    exact = Dense(plane_over(rows.X)).backward(model, rows)
    near = Product.over(rows.X, start, seed=3, neighbours=20)
    assert near.backward(model, rows) == pytest.approx(exact, abs=2.0)
    sampled = [
        Product.over(rows.X, start, seed=seed, neighbours=20, first=40, sampled=60) for seed in range(30)
    ]
    assert all(sum(float(w.sum()) for *_, w in each.chunks) == pytest.approx(150) for each in sampled)
    values = np.array([each.backward(model, rows) for each in sampled])
    assert values.std() > 0.1
    assert values.mean() == pytest.approx(exact, abs=4 * values.std() / 30**0.5)


def test_a_sample_has_the_slope_of_what_it_says(asked):
    start, model, rows = asked
    sampled = Product.over(rows.X, start, seed=1, neighbours=10, first=40, sampled=60)
    picked = torch.cat([target for target, *_ in sampled.chunks])
    assert len(picked) == len(picked.unique()) == 100
    _, slope = gradient(sampled, model, rows)
    for p in (model.lengthscale, model.rate, model.shift, model.tau2, model.row_coefficients):
        name = next(n for n, q in model.named_parameters() if q is p)
        flat, h = p.data.view(-1), 1e-5
        flat[0] += h
        above = sampled.backward(model, rows)
        flat[0] -= 2 * h
        below = sampled.backward(model, rows)
        flat[0] += h
        assert float(slope[name].view(-1)[0]) == pytest.approx((above - below) / (2 * h), rel=1e-5, abs=1e-6)


def test_rows_at_one_place_are_each_their_own(asked):
    start, *_ = asked
    X = points(4, 3, seed=1).repeat(30, 1)
    near = Product.over(X, start, seed=0, neighbours=8).near
    assert (near[:, 0] == torch.arange(120)).all()
    assert all(len(set(row)) == 8 for row in near.tolist())


def test_many_rows_together_find_the_lengths_and_the_noise_they_were_drawn_with():
    # 1,200 rows of a Matern-3/2 process, on top of a plane: begun far off.
    rng = np.random.default_rng(5)
    P = rng.uniform(0, 10, (1200, 2))
    r = np.sqrt(3) * np.linalg.norm(P[:, None] - P[None], axis=-1) / 1.0
    y = np.linalg.cholesky((1 + r) * np.exp(-r) + 0.2 * np.eye(1200)) @ rng.standard_normal(1200)
    y = y + P @ [0.2, -0.1] + 3.0
    start = LocalKernel(torch.zeros(1, 2).double() + 1.0, torch.zeros(1).double() - 1.0, ("matern32",))
    began = LocalGP(start, 1.0, 1.0, None, torch.zeros(0), (), weighted=False)
    X, z, one = torch.from_numpy(P), torch.from_numpy(y), torch.ones(1200).double()
    gp, _ = fit_all_together(began, X, z, one, per_count=False)
    # Within about two standard errors, those of the exact likelihood.
    np.testing.assert_allclose(gp.kernel.log_lengthscale[0].exp(), [1.0, 1.0], rtol=0.15)
    assert gp.kernel.log_variance.exp().item() == pytest.approx(1.0, rel=0.25)
    assert gp.tau2 == pytest.approx(0.2, rel=0.1)


def test_a_search_begins_where_a_fit_ended():
    X, counts = points(60, 3, seed=9), torch.arange(1.0, 61.0).double()
    told = ToldNoise.over(X, X[:, 0], counts)
    rows = replace(told.noise, coefficients=torch.linspace(-0.3, 0.4, 8).double().reshape(4, 2))
    start = kernel(("matern32",), (0.4, 0.7, 0.9), time_axis=2)
    shift = torch.tensor([0.1, 0.2]).double()
    gp = LocalGP(start, 0.2, 0.4, 5.0, shift, (), weighted=False, rows=rows)
    other = replace(start, log_lengthscale=start.log_lengthscale + 0.3, log_variance=start.log_variance - 0.2)
    same = (
        Trained(other, 2, told, None, student=True, per_count=True).begun_at(gp).learned([], weighted=False)
    )
    assert (same.tau2, same.s2, same.degrees_of_freedom) == pytest.approx((0.2, 0.4, 5.0))
    assert torch.equal(same.count_shift, shift)
    assert torch.equal(same.rows.coefficients, rows.coefficients)
    torch.testing.assert_close(same.kernel.log_variance, start.log_variance)
    torch.testing.assert_close(same.kernel.log_lengthscale, start.log_lengthscale)


@pytest.mark.parametrize(("smoothness", "power"), [("matern12", 1.0), ("matern32", 3.0), ("matern52", 5.0)])
def test_a_longer_length_keeps_what_neighbours_tell(smoothness, power):
    """v / ℓ^2ν, ℓ the geometric mean over the axes of space, is a number of its own (Zhang 2004)."""
    start = kernel((smoothness,), (0.4, 0.7, 0.9, 0.5), time_axis=0)  # the last one is a covariate
    model = Trained(start, 0, None, None, student=False, per_count=False)
    with torch.no_grad():
        model.lengthscale += torch.tensor([[0.7, 0.1, 0.3, 0.9]])
        change = model.kernel().log_variance - start.log_variance
    assert float(change) == pytest.approx(power * 0.2)
