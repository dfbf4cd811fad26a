"""How wide a trained distribution should be, read from rows it has not seen.

A basis that fits its training rows closely learns a noise variance from residuals that are too small. Two
factors fitted on validation rows, one on the weights' covariance and one on the noise, put that right; where the
rows ask for it, new observations are read as Student-t.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from geogp.basis.model import LowRankGP
from geogp.basis.train import SCORED_AT_ONCE
from geogp.data import Data
from geogp.densities import gaussian_crps, gaussian_nll, log_density

#: Fewer validation rows say too little about two factors.
ENOUGH = 200
#: Bound on the logarithm of a factor: a noise of 1e-5 can still become 1.
LARGEST = 16.0
#: A Student-t must be worth this much of a validation row's NLL, beside what one more number gains by chance.
WORTH = 0.01
#: The variance of a Student-t grows without bound towards two degrees of freedom.
SMALLEST_DF = 2.5


@dataclass(frozen=True)
class Spread:
    """Validation rows seen through a model, (n,) float64 each: what the factors do not change (fixed), the
    variance of the weights, and the noise variance above its floor."""

    y: Tensor
    mean: Tensor
    fixed: Tensor
    weight_variance: Tensor
    noise_variance: Tensor

    def variance(self, weights: Tensor | float, noise: Tensor | float) -> Tensor:
        """(n,) of new observations under factors on the weights' covariance and on the noise."""
        return self.fixed + weights * self.weight_variance + noise * self.noise_variance


@dataclass(frozen=True)
class Factors:
    """Factors on the weights' covariance and on the noise, and the score they reach.

    degrees_of_freedom : of new observations, None for Gaussian ones; their squared scale is the sum of variances
    """

    weights: float
    noise: float
    score: float
    degrees_of_freedom: float | None = None


def sharpness_score(y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Mean NLL + log of the mean CRPS: what `dppgp` minimises, so that a unit of each means e-fold sharper."""
    return gaussian_nll(y, mean, variance).mean() + gaussian_crps(y, mean, variance).mean().log()


def spread_of(model: LowRankGP, data: Data) -> Spread:
    """What `fit_factors` needs of the rows. Cost of a prediction."""
    floor = model.noise.floor
    parts: list[list[Tensor]] = []
    weights = model.weights()
    with torch.no_grad():
        for part in data.chunks(SCORED_AT_ONCE):
            Z, h, phi = model.represent(part.X)
            mean, variance = weights.moments(phi)
            fixed = model.residual.variance(model.expansion, Z, h, phi) + floor
            noise = (model.noise(Z, part.counts) - floor).clamp_min(1e-12)
            parts.append([part.y, model.constant_mean + mean, fixed, variance, noise])
    return Spread(*(torch.cat(column).double() for column in zip(*parts)))


def fit_factors(spread: Spread, largest_weights: float = math.inf) -> Factors:
    """The two factors that minimise `sharpness_score`; the factor on the weights is at most `largest_weights`.

    Cost O(n) a step of L-BFGS, some 30 of them.
    """

    def score(logs: Tensor) -> Tensor:
        return sharpness_score(spread.y, spread.mean, spread.variance(*_bounded(logs, largest_weights).exp()))

    # Where the noise has all but vanished its slope has, too: a second start makes it as large as the rest.
    rest = (spread.fixed + spread.weight_variance).mean() / spread.noise_variance.mean()
    best, lowest = torch.zeros(2, dtype=torch.float64, device=spread.y.device), math.inf
    for start in (best, torch.stack([torch.zeros_like(rest), rest.log()])):
        found = _minimised(score, start)
        with torch.no_grad():
            for logs in (start, found):
                reached = float(score(logs))
                if reached < lowest:
                    best, lowest = _bounded(logs, largest_weights), reached
    return Factors(float(best[0].exp()), float(best[1].exp()), lowest)


def fit_tails(spread: Spread, factors: Factors, largest_weights: float = math.inf) -> Factors:
    """The factors with degrees of freedom where a Student-t has the clearly better likelihood, else `factors`.

    A basis without a residual is sure of itself where its features say nothing; a single row there can cost
    a Gaussian more than all others gain.

    Notes
    -----
    O(n) a step of L-BFGS. The score of the result is a mean NLL, not a `sharpness_score`.
    """

    def unpacked(p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        weights, noise = _bounded(p[:2], largest_weights).exp()
        return weights, noise, SMALLEST_DF + p[2].clamp(-4.0, 4.0).exp()

    def nll(p: Tensor) -> Tensor:
        weights, noise, nu = unpacked(p)
        return -log_density(spread.y, spread.mean, spread.variance(weights, noise), nu).mean()

    start = torch.tensor(
        [math.log(factors.weights), math.log(factors.noise), math.log(5.0)], dtype=torch.float64
    ).to(spread.y)
    found = _minimised(nll, start)
    with torch.no_grad():
        weights, noise, nu = (float(v) for v in unpacked(found))
        gaussian = gaussian_nll(spread.y, spread.mean, spread.variance(factors.weights, factors.noise)).mean()
        score = float(nll(found))
    if not float(gaussian) - score > WORTH + 3.0 / len(spread.y):
        return factors
    return Factors(weights, noise, score, nu)


def _bounded(logs: Tensor, largest_weights: float) -> Tensor:
    """Logarithms of the factors on weights and noise, (2,), held to their bounds."""
    top = min(LARGEST, math.log(largest_weights))
    return torch.stack([logs[0].clamp(-LARGEST, top), logs[1].clamp(-LARGEST, LARGEST)])


def _minimised(score: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    logs = start.clone().requires_grad_()
    optimiser = torch.optim.LBFGS([logs], max_iter=50, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = score(logs)
        loss.backward()
        return loss

    optimiser.step(closure)
    return logs.detach()


def factors_of(model: LowRankGP, data: Data, *, tails: bool = False) -> Factors:
    """The factors of a model's rows, the weights' covariance kept below their prior's, the identity; with
    `tails` also the degrees of freedom."""
    weights = model.weights()
    one = torch.eye(len(weights.mean)).to(weights.mean)
    with torch.no_grad():
        covariance = weights.covariance(one, one).double()
    largest = max(1.0, 1.0 / float(torch.linalg.eigvalsh(covariance)[-1]))
    spread = spread_of(model, data)
    factors = fit_factors(spread, largest)
    return fit_tails(spread, factors, largest) if tails else factors


def rescaled_score(model: LowRankGP, data: Data) -> float:
    """`sharpness_score` of the rows after `rescale` on them: what ranks the epochs of a deep basis.

    Not capped as `robust_score` is: the factors already answer to outliers, and an epoch that needs large
    ones to survive a few rows shall lose.
    """
    return factors_of(model, data).score


def rescale(model: LowRankGP, factors: Factors) -> None:
    """Multiply the weights' covariance and the noise (above its floor) in place; means stay as they are."""
    model.posterior.multiply(factors.weights)
    model.noise.multiply(factors.noise)
