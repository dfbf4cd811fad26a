"""The local Gaussian process as it is fitted: its noise, its shift by counts, and its numbers written and read."""

import math
from dataclasses import FrozenInstanceError, replace

import pytest
import torch

from geogp.field.kernel import LocalKernel
from geogp.field.local_gp import LocalGP, count_columns
from geogp.field.noise.rows import RowNoise, ToldNoise
from geogp.field.student import GAUSSIAN_FROM
from geogp.field.variation import Variation
from geogp.field.variation.told import Following

COUNTS = torch.tensor([1.0, 4.0, 16.0, 100.0]).double()
SAYS = torch.tensor(
    [[0.5, -1.0, 0.2, 0.0], [0.0, 0.0, 0.0, 0.0], [1.0, 1.0, -1.0, 0.3], [-0.4, 0.0, 2.0, 1.0]]
).double()
X = torch.rand(4, 3, generator=torch.Generator().manual_seed(0)).double()


def kernel(variation: Variation | None = None) -> LocalKernel:
    lengths = torch.tensor([[0.1, -0.3, 0.5], [0.7, 0.2, -0.1]]).double()
    return LocalKernel(lengths, torch.tensor([-0.2, 0.4]).double(), ("matern32", "matern12"), 2, variation)


def bumps(noise: bool = True) -> Variation:
    flat = Variation.flat(X[:, :2], 3)
    draw = torch.Generator().manual_seed(1)
    length, variance, noisier = torch.randn(3, len(flat.width), generator=draw).double()
    return replace(flat, lengthscale=length, variance=variance, noise=noisier if noise else None)


def row_noise() -> RowNoise:
    coefficients = torch.tensor([[0.3, -0.2], [0.1, 0.4], [-0.5, 0.2], [0.0, 0.6]]).double()
    return RowNoise(torch.full((4,), 0.5).double(), torch.full((4,), 2.0).double(), coefficients)


def fitted(**changes: object) -> LocalGP:
    gp = LocalGP(kernel(), 0.3, 1.2, 5.0, torch.tensor([0.8, -0.5], dtype=torch.float64), (3.0, 2.5))
    return replace(gp, **changes)


def test_it_is_never_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        fitted().tau2 = 1.0  # type: ignore[misc]


def test_the_noise_is_that_of_an_average_with_the_factors_of_its_place() -> None:
    alike = [0.3 + 1.2 / n for n in (1, 4, 16, 100)]
    assert fitted().noise_variance(COUNTS, X).tolist() == pytest.approx(alike, rel=1e-14)
    assert fitted().noise_variance(COUNTS, X, SAYS).tolist() == pytest.approx(
        alike, rel=1e-14
    )  # nobody listens
    gp = fitted(rows=row_noise())
    assert gp.noise_variance(COUNTS, X).tolist() == pytest.approx(alike, rel=1e-14)  # nobody says
    tau, s = torch.exp(SAYS @ row_noise().coefficients).T
    told = 0.3 * tau + 1.2 * s / COUNTS
    assert torch.allclose(gp.noise_variance(COUNTS, X, SAYS), told, rtol=1e-14)
    varying = replace(gp, kernel=kernel(bumps()))
    factor = bumps().noise_factor(X[:, :2])
    assert not torch.allclose(factor, torch.ones(4).double())
    assert torch.allclose(varying.noise_variance(COUNTS, X, SAYS), told * factor, rtol=1e-14)
    assert torch.equal(replace(gp, kernel=kernel(bumps(False))).noise_variance(COUNTS, X, SAYS), told)


@pytest.mark.parametrize(
    ("nu", "weighted", "variances", "factor", "tails"),
    [
        (5.0, True, True, 1.0, 5.0),
        (5.0, False, True, 5 / 3, None),
        (5.0, False, False, 1.0, None),
        (GAUSSIAN_FROM, True, True, GAUSSIAN_FROM / (GAUSSIAN_FROM - 2), GAUSSIAN_FROM),
        (GAUSSIAN_FROM, True, False, 1.0, GAUSSIAN_FROM),
        (None, True, True, 1.0, None),
    ],
)
def test_what_is_not_weighed_is_conditioned_on_with_its_variance(
    nu, weighted, variances, factor, tails
) -> None:
    gp = fitted(degrees_of_freedom=nu, weighted=weighted, variances=variances)
    assert gp.variance_factor == pytest.approx(factor, rel=1e-15) and gp.tails == tails
    value = torch.arange(4).double()
    seen = gp.observed(X, value, COUNTS)
    assert torch.equal(seen.X, X) and torch.equal(seen.value, value) and torch.equal(seen.counts, COUNTS)
    assert torch.allclose(seen.noise_variance, factor * gp.noise_variance(COUNTS, X), rtol=1e-15)


def test_observations_hear_what_the_places_around_them_say() -> None:
    draw = torch.Generator().manual_seed(2)
    P, value = torch.rand(60, 3, generator=draw).double(), torch.randn(60, generator=draw).double()
    counts = torch.randint(1, 30, (60,), generator=draw).double()
    told = ToldNoise.over(P, value, counts)
    gp = fitted(rows=replace(told.noise, coefficients=row_noise().coefficients))
    seen = gp.observed(P, value, counts).noise_variance
    assert torch.allclose(seen, gp.noise_variance(counts, P, told.says), rtol=1e-14)
    assert not torch.allclose(seen, fitted().observed(P, value, counts).noise_variance, rtol=0.1)


def test_less_sure_is_every_variance_times_a_factor() -> None:
    one, gp = fitted(), fitted().less_sure(2.5)
    assert torch.allclose(gp.kernel(X, X), 2.5 * one.kernel(X, X), rtol=1e-14)
    assert torch.allclose(gp.noise_variance(COUNTS, X), 2.5 * one.noise_variance(COUNTS, X), rtol=1e-14)
    assert torch.equal(gp.b(COUNTS), one.b(COUNTS)) and gp.degrees_of_freedom == 5.0


def test_the_shift_falls_with_the_count_and_its_root() -> None:
    assert count_columns(COUNTS).tolist() == [[1.0, 1.0], [0.25, 0.5], [0.0625, 0.25], [0.01, 0.1]]
    expected = [0.8 / n - 0.5 / math.sqrt(n) for n in (1, 4, 16, 100)]
    assert fitted().b(COUNTS).tolist() == pytest.approx(expected, rel=1e-14)
    assert fitted(count_shift=torch.zeros(0).double()).b(COUNTS).tolist() == [0.0] * 4


def test_it_follows_what_is_said() -> None:
    follows = Following(bumps(), torch.tensor([[0.2, 0.1], [0.0, -0.3], [0.5, 0.0], [-0.1, 0.4]]).double())
    says, gp = SAYS[: len(bumps().width)], fitted(follows=follows)
    assert gp.told(None) is not gp and gp.told(None).kernel is gp.kernel
    assert fitted().told(says).kernel.variation is None
    found = gp.told(says).kernel.variation
    for coefficients, own in zip(follows.coefficients.T, (found.lengthscale, found.variance), strict=True):
        assert torch.allclose(own, says @ coefficients, rtol=1e-14)


def whole(variation: bool, rows: bool, follows: bool) -> LocalGP:
    coefficients = torch.tensor([[0.2, 0.1], [0.0, -0.3], [0.5, 0.0], [-0.1, 0.4]]).double()
    return fitted(
        kernel=kernel(bumps() if variation else None),
        rows=row_noise() if rows else None,
        follows=Following(bumps(), coefficients) if follows else None,
    )


@pytest.mark.parametrize("variation", [False, True])
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("follows", [False, True])
def test_its_numbers_make_it_again(variation, rows, follows) -> None:
    gp = whole(variation, rows, follows)
    names = {"log_lengthscale", "log_variance", "count_shift", "loss", "numbers"}
    names |= ({"stretch", "amplitude", "noisier", "width"} if variation else set()) | (
        {"row_noise"} if rows else set()
    )
    assert set(gp.tensors()) == names | ({"following"} if follows else set())
    empty = bumps()
    empty = replace(
        empty,
        lengthscale=0 * empty.lengthscale,
        variance=0 * empty.variance,
        width=0 * empty.width,
        noise=None,
    )
    start = LocalKernel(
        torch.zeros(2, 3), torch.zeros(2), ("matern32", "matern12"), 2, empty if variation else None
    )
    again = LocalGP.from_tensors(
        gp.tensors(),
        start,
        replace(row_noise(), coefficients=torch.zeros(4, 2)) if rows else None,
        Following(bumps(), torch.zeros(4, 2)) if follows else None,
    )
    assert (again.tau2, again.s2, again.degrees_of_freedom, again.loss) == (0.3, 1.2, 5.0, (3.0, 2.5))
    assert again.weighted is True and again.variances is True
    assert torch.equal(again.kernel(X, X), gp.kernel(X, X)) and torch.equal(again.b(COUNTS), gp.b(COUNTS))
    assert torch.equal(again.noise_variance(COUNTS, X, SAYS), gp.noise_variance(COUNTS, X, SAYS))
    if follows:
        assert torch.equal(again.follows.coefficients, gp.follows.coefficients)
    assert (again.rows is None) == (not rows) and (again.follows is None) == (not follows)


def test_what_is_not_there_is_not_written() -> None:
    gp = fitted(kernel=kernel(bumps(noise=False)), degrees_of_freedom=None, weighted=False)
    assert "noisier" not in gp.tensors() and {"stretch", "amplitude"} <= set(gp.tensors())
    again = LocalGP.from_tensors(gp.tensors(), kernel(bumps()))
    assert again.kernel.variation.noise is None
    assert again.degrees_of_freedom is None and again.weighted is False
