"""How wide a trained distribution should be, read from rows it has not seen beside those it has.

A network follows the noise of its training rows, so that what it misses there is too small; what it misses on
held-out rows is the noise and the surface's own error together. Where the mean is that of a Gaussian process with
noise variance s and the variance v of its surface at a new place, held-out rows miss by s + v and training rows by
s² / (s + v): the residual is (1 - H_ii) times that of the row left out, 1 - H_ii = s / (s + v). So the two kinds of
rows together tell noise from surface, which held-out rows alone, one by one, cannot.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from geogp.basis.model import LowRankGP
from geogp.basis.spread import Factors
from geogp.basis.train import SCORED_AT_ONCE
from geogp.data import Data
from geogp.densities import gaussian_crps, gaussian_nll, log_density

#: Fewer validation rows say too little about two factors to choose an epoch by them.
ENOUGH = 200
#: With fewer, the factors stay at 1.
FEWEST = 30
#: Training rows looked at, at most.
SEEN = 20_000
#: Prior sd of the logarithm of the factor on the surface and of that on the noise, about 1.
SURFACE_SD, NOISE_SD = 1.5, 1.0
#: Neither part falls below, nor the surface rises above, this factor; a noise of 1e-5 can still become 1.
FARTHEST = math.log(100.0)
#: Bound on the logarithm of a factor upwards.
LARGEST = 16.0
#: A Student-t must be worth this much of a validation row's NLL, beside what one more number gains by chance.
WORTH = 0.01
#: The variance of a Student-t grows without bound towards two degrees of freedom.
SMALLEST_DF = 2.5


@dataclass(frozen=True)
class Spread:
    """Rows seen through a model, (n,) float64 each: what the factors do not change (fixed), the variance of the
    surface, the noise variance above its floor, and the weights' part of the surface's variance."""

    y: Tensor
    mean: Tensor
    fixed: Tensor
    surface_variance: Tensor
    noise_variance: Tensor
    weights_variance: Tensor

    def noise(self, factor: Tensor | float, from_weights: Tensor | float) -> Tensor:
        """(n,) variances of the noise, what the factors do not change with it."""
        return self.fixed + factor * self.noise_variance + from_weights * self.weights_variance

    def variance(self, surface: Tensor | float, noise: Tensor | float, moved: Tensor | float = 0.0) -> Tensor:
        """(n,) of new observations under factors on the surface's variance and on the noise, and what the weights add
        to the noise."""
        return self.noise(noise, moved) + surface * self.surface_variance

    def flat_variance(
        self, surface: Tensor, noise: Tensor, moved: Tensor | float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """(n,) of new observations at these places with one surface variance, their mean, and of the noise.

        Which places are the harder ones a model knows badly; its error there would pass for a small factor.
        """
        own = self.noise(noise, moved)
        return own + surface * self.surface_variance.mean(), own


def sharpness_score(y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Mean NLL + log of the mean CRPS: what `dppgp` minimises, so that a unit of each means e-fold sharper."""
    return gaussian_nll(y, mean, variance).mean() + gaussian_crps(y, mean, variance).mean().log()


def spread_of(model: LowRankGP, data: Data) -> Spread:
    """What the factors are read from, of the model as it was trained. Cost of a prediction."""
    floor = model.noise.floor
    parts: list[list[Tensor]] = []
    weights = model.weights()
    with torch.no_grad():
        for part in data.chunks(SCORED_AT_ONCE):
            Z, h, phi = model.represent(part.X)
            mean, variance = weights.moments(phi)
            own = model.residual.variance(model.expansion, Z, h, phi)
            noise = (model.noise(Z, part.counts) - floor).clamp_min(1e-12)
            surface, fixed = (
                (variance + own, floor) if model.residual.scales_with_basis else (variance, own + floor)
            )
            fixed = torch.as_tensor(fixed, dtype=own.dtype, device=own.device).expand_as(own)
            parts.append([part.y, model.constant_mean + mean, fixed, surface, noise, variance])
    return Spread(*(torch.cat(column).double() for column in zip(*parts)))


def reached(spread: Spread) -> float:
    """The lowest `sharpness_score` that any two factors reach on held-out rows.

    Cost O(n) a step of L-BFGS, some 30 of them.
    """

    def score(logs: Tensor) -> Tensor:
        surface, noise = logs.clamp(-LARGEST, LARGEST).exp()
        return sharpness_score(spread.y, spread.mean, spread.variance(surface, noise))

    return min(_lowest(score, start)[1] for start in _starts(spread))


def fit_factors(held: Spread, seen: Spread, *, moves: bool = False, tails: bool = False) -> Factors:
    """The likeliest factors of held-out and training rows together, each kind counting as one row's mean.

    Held-out rows have the squared scale s + v, training rows s² / (s + v) (see above). Log-normal priors about 1
    count as one row each, so that few held-out rows move little; a part is never multiplied by less than 1/100. The
    surface's factor is its mean under the curvature of all that.

    Parameters
    ----------
    moves : part of the weights' variance may be noise of the place, where that is clearly likelier on the held-out rows
    tails : read new observations as Student-t, likewise

    Notes
    -----
    O(n) a step of L-BFGS, some 30 of them, for each of these choices once more.
    """
    n = len(held.y)

    def unpacked(p: Tensor, moves: bool, tails: bool) -> tuple[Tensor, Tensor, Tensor | float, Tensor | None]:
        surface, noise = p[0].clamp(-FARTHEST, FARTHEST).exp(), p[1].clamp(-FARTHEST, LARGEST).exp()
        moved = p[2].clamp(-FARTHEST, FARTHEST).exp() if moves else 0.0
        return surface, noise, moved, SMALLEST_DF + p[-1].clamp(-4.0, 4.0).exp() if tails else None

    def best(moves: bool, tails: bool) -> Factors:
        def loss(p: Tensor) -> Tensor:
            surface, noise, moved, nu = unpacked(p, moves, tails)
            total, _ = held.flat_variance(surface, noise, moved)
            whole, own = seen.flat_variance(surface, noise, moved)
            fit = _nll(held, total, nu) + _nll(seen, own.square() / whole, nu)
            prior = 0.5 * (p[0] / SURFACE_SD).square() + 0.5 * (p[1] / NOISE_SD).square()
            return fit + (prior + 0.5 * (p[2] / SURFACE_SD).square() if moves else prior) / n

        p, _ = min((_lowest(loss, start) for start in _starts(held, moves, tails)), key=lambda f: f[1])
        surface, noise, moved, nu = unpacked(p, moves, tails)
        # The mean of the factor, not its mode: few rows leave it open, and a surface too narrow costs coverage.
        precision = n * torch.autograd.functional.hessian(loss, p)
        variance = float(torch.linalg.pinv(precision, hermitian=True)[0, 0])
        surface = surface * math.exp(0.5 * min(max(variance, 0.0), SURFACE_SD**2))
        score = float(_nll(held, held.variance(surface, noise, moved), nu))
        df = None if nu is None else float(nu)
        return Factors(float(surface), float(noise), float(moved), df, score, n)

    def better(found: Factors, other: Factors) -> Factors:
        return other if found.score - other.score > WORTH + 3.0 / n else found

    with torch.enable_grad():
        found = best(False, False)
        found = better(found, best(True, False)) if moves else found
        return better(found, best(found.noise_from_weights > 0.0, True)) if tails else found


def _nll(rows: Spread, variance: Tensor, nu: Tensor | None) -> Tensor:
    """Mean negative log density of rows whose squared scales are `variance`."""
    if nu is None:
        return gaussian_nll(rows.y, rows.mean, variance).mean()
    return -log_density(rows.y, rows.mean, variance, nu).mean()


def _starts(spread: Spread, moves: bool = False, tails: bool = False) -> list[Tensor]:
    """Logarithms to begin at: none, and, since the slope of a noise that has all but vanished has, too, one that is
    as large as the rest."""
    first = [0.0, 0.0, *[math.log(0.5)] * moves, *[math.log(5.0)] * tails]
    none = torch.tensor(first, dtype=torch.float64, device=spread.y.device)
    large = none.clone()
    large[1] = ((spread.fixed + spread.surface_variance).mean() / spread.noise_variance.mean()).log()
    return [none, large]


def _lowest(score: Callable[[Tensor], Tensor], start: Tensor) -> tuple[Tensor, float]:
    """Where L-BFGS leads from a start, and the score there; the start itself if it is better."""
    logs = start.clone().requires_grad_()
    optimiser = torch.optim.LBFGS([logs], max_iter=50, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = score(logs)
        loss.backward()
        return loss

    optimiser.step(closure)
    with torch.no_grad():
        ends = [(p, float(score(p))) for p in (start, logs.detach())]
    return min((end for end in ends if math.isfinite(end[1])), key=lambda end: end[1], default=ends[0])


def factors_of(
    model: LowRankGP, data: Data, held: Data, *, moves: bool = False, tails: bool = False
) -> Factors:
    """The factors of a trained model, from its training rows (20,000 of them at most) and rows held out; none where
    these are fewer than 30. See `fit_factors`."""
    if len(held) < FEWEST:
        return Factors(rows=len(held))
    n = len(data.y)  # of a table that is streamed those of its sample
    step = -(-n // SEEN)
    seen = data.rows(torch.arange(0, n, step, device=data.y.device))
    return fit_factors(spread_of(model, held), spread_of(model, seen), moves=moves, tails=tails)


def rescaled_score(model: LowRankGP, data: Data) -> float:
    """`sharpness_score` of the rows under the factors that suit them best: what ranks the epochs of a deep basis.

    Not capped as `robust_score` is: the factors already answer to outliers, and an epoch that needs large
    ones to survive a few rows shall lose.
    """
    return reached(spread_of(model, data))
