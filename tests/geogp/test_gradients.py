"""Derivatives written out are those of the tape, and of finite differences."""

import geogp  # noqa: F401  first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
import math
from dataclasses import replace

import pytest
import torch

from geogp.densities import MATERN, log_density, matern
from geogp.field import student
from geogp.field.gradients import Solved, Stationary
from geogp.field.kernel import LocalKernel
from geogp.field.likelihood.conditional import conditional_log_density
from geogp.field.solve import conditional_moments
from geogp.field.variation import Variation

ROUGH, SMOOTH = "matern12", "matern32"
PLACES = torch.rand(40, 3, generator=torch.Generator().manual_seed(0)).double()
PLACES[7] = PLACES[3]  # of two rows at one place
NEAR = torch.rand(6, 40, generator=torch.Generator().manual_seed(1)).argsort(1)[:, :9]
NEAR[2, 5:] = -1


def numbers(seed: int, C: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    length = torch.randn(C, 3, generator=draw).double().mul(0.4).sub(0.5)
    return length.requires_grad_(), torch.randn(C, generator=draw).double().requires_grad_()


def bumps(seed: int) -> tuple[Variation, tuple[torch.Tensor, torch.Tensor]]:
    """A variation, and its coefficients, which are learned."""
    flat = Variation.flat(PLACES[:, :2], 4)
    draw = torch.Generator().manual_seed(seed)
    of = tuple(torch.randn(4, generator=draw).double().mul(0.3).requires_grad_() for _ in range(2))
    return replace(flat, lengthscale=of[0], variance=of[1]), of


@pytest.mark.parametrize(("time_axis", "over_time"), [(None, ROUGH), (0, ROUGH), (2, ROUGH), (2, SMOOTH)])
@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize("smoothness", MATERN)
def test_the_kernel_has_the_tapes_gradient(smoothness, varying, time_axis, over_time) -> None:
    """Of its numbers and of those that it varies by; and without gradients its value."""
    length, variance = numbers(2, 3)
    variation, learned = bumps(9) if varying else (None, ())
    kernel = LocalKernel(
        length, variance, (smoothness, "matern32", "matern12"), time_axis, variation, over_time
    )
    weight = torch.randn(40, 12, generator=torch.Generator().manual_seed(3)).double()
    written = kernel(PLACES, PLACES[:12])
    taped = kernel(PLACES.clone().requires_grad_(), PLACES[:12])  # places that have gradients, too
    assert torch.allclose(written, taped, rtol=1e-13, atol=0)
    with torch.no_grad():
        assert torch.allclose(kernel(PLACES, PLACES[:12]), written, rtol=1e-14, atol=0)
    of = [torch.autograd.grad((K * weight).sum(), (length, variance, *learned)) for K in (written, taped)]
    for one, other in zip(*of, strict=True):
        assert torch.allclose(one, other, rtol=1e-11, atol=1e-12) and (other != 0).any()


@pytest.mark.parametrize("over_time", [ROUGH, SMOOTH])
def test_space_and_time_multiply(over_time) -> None:
    """Each with its own smoothness: also for places at one time, whose covariances are computed in fewer passes."""
    length = torch.tensor([[0.4, 0.7, 0.9]]).double().log()
    kernel = LocalKernel(length, torch.zeros(1).double(), ("matern52",), 2, None, over_time)
    A, B = PLACES[:5].clone(), PLACES[5:]
    A[:, 2] = 0.3
    away = ((A[:, None, :2] - B[None, :, :2]) / length.exp()[0, :2]).norm(dim=-1)
    lag = (A[:, None, 2] - B[None, :, 2]).abs() / length.exp()[0, 2]
    expected = matern(away, "matern52") * matern(lag, over_time)
    assert torch.allclose(kernel(A, B), expected, rtol=1e-11, atol=0)
    assert torch.allclose(kernel.at_one_time(A, B)[0], expected, rtol=1e-11, atol=0)
    assert kernel.term(0).over_time == over_time


@pytest.mark.parametrize("smoothness", MATERN)
@pytest.mark.parametrize("learned", [False, True])
def test_beyond_the_farthest_distances_are_not_told_apart(smoothness, learned) -> None:
    """In lengthscales, whatever the smoothness; up to it they are."""
    away = torch.tensor([[0.0, 0.5, 2.5, 2.6, 50.0]]).double()
    length = torch.tensor([[math.log(3.0)]], dtype=torch.float64).requires_grad_(learned)
    of = length, torch.zeros(1).double(), (3.0 * away).square(), None, (smoothness,), 2.5
    found = Stationary.apply(*of).detach()
    expected = matern(away[0].clamp(max=2.5), smoothness)
    assert torch.allclose(found, expected, rtol=1e-13)
    assert found[1] > found[2] == found[3] == found[4]


def test_weights_carry_no_gradient() -> None:
    K = torch.eye(3).double()[None].requires_grad_()
    mean, known, weights = Solved.apply(
        torch.eye(3).double()[None],
        K,
        torch.zeros(1, 3),
        torch.ones(1, 3).double(),
        torch.ones(1, 3, 1).double(),
    )
    assert mean.requires_grad and known.requires_grad and not weights.requires_grad


@pytest.mark.parametrize("varying", [False, True])
def test_a_conditional_has_the_gradient_of_differences(varying) -> None:
    """In kernel, noise and values, several columns of them; with a kernel that varies over space by the tape."""
    length, variance = numbers(4)
    bumps = Variation.flat(PLACES[:, :2], 4) if varying else None
    noise = torch.linspace(0.05, 0.4, 40).double().requires_grad_()
    y = torch.randn(40, 2, generator=torch.Generator().manual_seed(5)).double().requires_grad_()

    def moments(length, variance, noise, y):
        kernel = LocalKernel(length, variance, ("matern52", "matern12"), 2, bumps)
        found = conditional_moments(kernel, PLACES[:6] + 0.01, PLACES, y, noise, NEAR)
        return found.mean, found.variance

    assert torch.autograd.gradcheck(moments, (length, variance, noise, y), atol=1e-7)


def test_student_rows_have_the_gradient_of_the_tape(monkeypatch) -> None:
    """Weights count as given; the rest is that of log N by solves that torch differentiates itself.

    Of all places at once and of each alone the weights are the same in double precision; in single, the last bits depend on
    how many are factorised together, and on the processor.
    """
    monkeypatch.setattr(student, "SINGLE_FROM", math.inf)
    length, variance = numbers(6)
    kernel = LocalKernel(length, variance, ("matern32", "matern32"), None)
    noise, nu = torch.full((40,), 0.1).double().requires_grad_(), torch.tensor(4.0).double()
    y = torch.randn(40, generator=torch.Generator().manual_seed(7)).double()
    target = torch.arange(6)
    written = conditional_log_density(kernel, PLACES, y, noise, target, NEAR, nu).sum()

    taped = torch.zeros(()).double()
    for i, near in zip(target, NEAR):
        near = near[near >= 0]
        K, k = (
            kernel(PLACES[near].clone().requires_grad_(), PLACES[near]),
            kernel(PLACES[i][None], PLACES[near])[0],
        )
        own = noise[near]
        weight = student.student_weights(K.detach()[None], own.detach()[None], y[near][None], 4.0)[0]
        S = K + torch.diag(own / weight)
        mean, known = k @ torch.linalg.solve(S, y[near]), k @ torch.linalg.solve(S, k)
        taped = taped + log_density(y[i], mean, kernel.prior_variance - known + noise[i], nu)
    assert written.item() == pytest.approx(taped.item(), abs=1e-10)
    parameters = (length, variance, noise)
    for one, other in zip(torch.autograd.grad(written, parameters), torch.autograd.grad(taped, parameters)):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-11)


def test_without_gradients_nothing_is_kept() -> None:
    kernel = LocalKernel(*(n.detach() for n in numbers(8)), ("matern32", "matern12"))
    learned = replace(kernel, log_variance=kernel.log_variance.clone().requires_grad_())
    assert not kernel(PLACES, PLACES).requires_grad and learned(PLACES, PLACES).requires_grad
