"""Cox process: counts whose log intensity is a deep basis GP."""

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float, Num
from scipy.stats import gamma
from torch import Tensor

from geogp.basis.build import build
from geogp.basis.initialise import warm_start
from geogp.basis.model import LowRankGP
from geogp.basis.objectives.objective import COUNTS
from geogp.basis.objectives.poisson import LEAST, hermite_nodes, poisson
from geogp.basis.objectives.poisson import bursts as bursts_of_counts
from geogp.basis.train import SCORED_AT_ONCE, Loss, Watch, terms_of, train
from geogp.data import Data, Moments
from geogp.engines.base import Hooks, Plan
from geogp.engines.lowrank import LowRankEngine
from geogp.errors import ImpossibleCombination, InvalidInput
from geogp.methods import Method

#: Log intensities between which the moments of log10(1 + N) are tabulated.
TABLE = (-9.0, 16.0, 501)
#: Means below which the moments are summed.
SUMMED = 500.0
#: Of the gamma factor, above.
QUANTILES = 2000
#: Quadrature points for each event of a point process.
POINTS = 2
LN10 = math.log(10.0)


class CoxEngine(LowRankEngine):
    """N | f ~ Poisson(G exp f(x)), f a deep basis GP with a constant mean; targets t = log10(1 + N).

    G is a gamma factor of each row with mean 1 and a learned variance c: tests come in bursts. Predictions are those
    of t, by its exact first two moments given f. `intensity` gives E[exp f]. kernel and latent variance of
    `prior_covariance` are those of f.

    options : scale "log10(1 + n)" (targets are t, as target `tests` has them) or "count" (targets are N);
        process "binned" (each row is a bin with its count) or "points" (each row is so many events at a place;
        the integral over the bounding box of the rows by Monte Carlo, intensity per row of uniform density);
        bursts False takes G = 1, the published process (points have no bursts)

    Source: low-rank-deep-kernel-decomposition, appendix A.5; G is ours.
    """

    objectives_do: ClassVar[tuple[str, ...]] = (COUNTS,)
    leaves_over: ClassVar[bool] = False
    chooses_scales: ClassVar[bool] = False
    has_trials: ClassVar[bool] = False
    streams: ClassVar[bool] = False
    rescales: ClassVar[bool] = False
    fixes_scale: ClassVar[bool] = True
    least: ClassVar[float] = 0.0
    formulas_of: ClassVar[tuple[str, ...]] = ("expansion", "objective")
    model_lines: ClassVar[tuple[str, ...]] = (
        "N | f ~ Poisson(G exp f(x)),  G ~ Gamma(mean 1, variance c),  f(x) = m + φ(x)'w,  w ~ N(0, I)",
    )
    words: ClassVar[dict[str, str]] = {
        "noise": "one variance c of the gamma factor, on the scale of counts",
        "objective": "-ELBO / n of the counts, the KL as it is",
    }
    example_target: ClassVar[str] = "tests"

    @classmethod
    def far(cls, row: Method) -> tuple[str, str]:
        mean, sd = super().far(row)
        return f"of the log intensity: {mean}", f"of the log intensity: {sd}"

    @classmethod
    def update_kind(cls, row: Method) -> str:
        return ""

    @classmethod
    def fit(cls, plan: Plan, data: Data, validation: Data | None, hooks: Hooks = Hooks()) -> Self:
        process, bursts = process_of(plan)
        model = build(plan.row, plan.shape, plan.size, seed=plan.seed)
        data, validation = plan.place(model, data, validation)
        engine = cls(plan, model, {})
        rows = engine.exposed(data)
        held = engine.exposed(validation) if validation is not None and len(validation) else None
        anew: Callable[[Data], Data] = same
        if process == "points":
            box = rows.X.amin(0), rows.X.amax(0)
            anew = partial(with_new_points, box=box)
            rows = with_quadrature(rows, box, plan.seed)
            held = None if held is None else with_quadrature(held, box, plan.seed + 1)
        start(model, rows, plan.seed)
        objective = bursts_of_counts if bursts else poisson
        model.train()
        progress = train(
            model,
            rows,
            Loss.of(plan.row.objective, lambda batch: loss_of(model, anew(batch), len(rows), objective)),
            schedule=plan.schedule,
            watch=Watch(held, lambda model, rows: held_out_loss(model, rows, objective)),
            seed=plan.seed,
            hooks=hooks,
        )
        model.residual.settle(model, rows)
        engine.facts = {**progress.facts(), "bursts": bursts}
        return engine

    def exposed(self, rows: Data) -> Data:
        """Rows with their counts as targets. Exposure goes where counts of measurements go elsewhere: exp(f) times it
        is a row's expected count."""
        counts = self.counts_of(rows.y)
        return Data(rows.X, counts, torch.ones_like(counts))

    def counts_of(self, y: Tensor) -> Tensor:
        """Counts of standardised targets: (N,)."""
        t = self.plan.target_mean + self.plan.target_sd * y.double()
        n = t if self.plan.options.get("scale") == "count" else 10.0**t - 1.0
        if bool((n < -1e-3).any()) or bool(n.max() > 1e9):
            raise InvalidInput(
                f"method {self.plan.row.name!r} needs counts; got values from {float(n.min()):g} to {float(n.max()):g}: give log10(1 + "
                "count) as the target, or options={'scale': 'count'} with counts."
            )
        return n.clamp_min(0.0).float()

    def intensity(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the expected count exp f at X, each (N,)."""
        m = super().moments(X)
        mean, variance = m.mean.double(), m.latent_variance.double()
        rate = torch.exp(mean + 0.5 * variance)
        return rate, rate * torch.expm1(variance).sqrt()

    @property
    def burst_variance(self) -> float:
        """c, the variance of a row's gamma factor; 0 for the published process."""
        if not self.facts["bursts"]:
            return 0.0
        with torch.no_grad():
            c = self.model.noise(torch.zeros(1, self.model.encoder.n_inputs, device=self.device), None)
        return float(c)

    def moments(self, X: Float[Tensor, "N D"], counts: Num[Tensor, " N"] | None = None) -> Moments:
        """Of t = log10(1 + N), or of N on scale "count": the latent part is what f leaves open."""
        m = super().moments(X)
        eta, variance = m.mean.double(), m.latent_variance.double()
        centre, scale = self.plan.target_mean, self.plan.target_sd
        c = self.burst_variance
        if self.plan.options.get("scale") == "count":
            rate, sd = self.intensity(X)
            mean, latent, noise = rate, sd.square(), rate + c * (rate.square() + sd.square())
        else:
            mean, latent, noise = log_count_moments(eta, variance, c)
        prior = latent * (m.prior_variance.double() / variance.clamp_min(1e-12)).clamp_min(1.0)
        return Moments(
            ((mean - centre) / scale).float(),
            (latent / scale**2).float(),
            (noise / scale**2).float(),
            (prior / scale**2).float(),
        )

    def sample(
        self,
        X: Float[Tensor, "N D"],
        n_samples: int,
        generator: torch.Generator,
        counts: Num[Tensor, " N"] | None = None,
    ) -> Float[Tensor, "N n_samples"]:
        """Draws of the expected target given f: E[t | f], or exp f on scale "count"."""
        eta = super().sample(X, n_samples, generator)
        if self.plan.options.get("scale") == "count":
            value = eta.exp()
        else:
            value = look_up(eta, *table(self.burst_variance))[0]
        return (value - self.plan.target_mean) / self.plan.target_sd


Objective = Callable[..., Tensor]


def process_of(plan: Plan) -> tuple[str, bool]:
    """The process that the plan's options ask for, and whether its counts come in bursts."""
    scale, process = plan.options.get("scale", "log10(1 + n)"), plan.options.get("process", "binned")
    if scale not in ("log10(1 + n)", "count"):
        raise InvalidInput(f"option scale must be 'log10(1 + n)' or 'count'; got {scale!r}.")
    if process not in ("binned", "points"):
        raise ImpossibleCombination(f"option process must be 'binned' or 'points'; got {process!r}.")
    return process, process == "binned" and bool(plan.options.get("bursts", True))


def start(model: LowRankGP, rows: Data, seed: int) -> None:
    """Start the log intensity from a fit to the rows' own, about the logarithm of their mean."""
    assert rows.counts is not None
    mean = math.log(max(float(rows.y.sum() / rows.counts.sum()), 1e-6))
    warm_start(model, rows.X, (counts_to_log(rows) - mean).float(), None, seed=seed)
    with torch.no_grad():
        model.constant_mean.fill_(mean)


def loss_of(model: LowRankGP, batch: Data, n_total: int, objective: Objective) -> Tensor:
    """The bound with each row's exposure."""
    return objective(terms_of(model, Data(batch.X, batch.y), n_total), exposure=batch.counts)


def held_out_loss(model: LowRankGP, rows: Data, objective: Objective) -> float:
    """Mean loss of held-out rows, without the KL."""
    total = 0.0
    with torch.no_grad():
        for part in rows.chunks(SCORED_AT_ONCE):
            terms = replace(terms_of(model, Data(part.X, part.y), len(rows)), kl=torch.zeros(()))
            total += float(objective(terms, exposure=part.counts)) * len(part)
    return total / len(rows)


def counts_to_log(rows: Data) -> Tensor:
    """A first guess of each row's log intensity."""
    assert rows.counts is not None
    return torch.log((rows.y + 0.5) / (rows.counts + 0.5))


def with_quadrature(events: Data, box: tuple[Tensor, Tensor], seed: int) -> Data:
    """Events (exposure 0) and, uniform over the box, points that carry the integral (count 0).

    The box has volume n, so that a uniform pattern has intensity 1.
    """
    n = len(events)
    low, high = box
    u = torch.rand(
        POINTS * n, events.X.shape[1], generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    X = torch.cat([events.X, low + (high - low) * u.to(low)])
    zeros = torch.zeros(POINTS * n).to(events.y)
    exposure = torch.cat([torch.zeros_like(events.y), torch.full_like(zeros, 1.0 / POINTS)])
    return Data(X, torch.cat([events.y, zeros]), exposure)


def same(batch: Data) -> Data:
    """A batch as it is."""
    return batch


def with_new_points(batch: Data, box: tuple[Tensor, Tensor]) -> Data:
    """A batch of events and points with each point elsewhere in the box, drawn anew for each batch.

    Between points that stay where they are the intensity could rise to infinity at every event at no cost. The draw
    depends on the batch alone, so that a resumed training repeats an unbroken one.
    """
    assert batch.counts is not None
    digest = hashlib.blake2b(np.ascontiguousarray(batch.X.cpu().numpy()).tobytes(), digest_size=7).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little"))
    low, high = box
    u = torch.rand(batch.X.shape, generator=generator, dtype=torch.float64).to(low)
    return replace(batch, X=torch.where(batch.counts[:, None] > 0, low + (high - low) * u, batch.X))


_TABLES: dict[float, tuple[Tensor, Tensor]] = {}


def table(c: float) -> tuple[Tensor, Tensor]:
    """E and Var of log10(1 + N) over the grid of log intensities `TABLE`: two (501,).

    N is Poisson (c = 0), or negative binomial with mean mu and variance mu + c mu^2. Summed where the mean is below
    500; above, the gamma factor is averaged over its quantiles and the Poisson part taken by the delta method
    (relative error there below 1/500).
    """
    key = round(c, 9)
    if key in _TABLES:
        return _TABLES[key]
    grid = torch.linspace(*TABLE, dtype=torch.float64)
    size = 1.0 / c if c > LEAST else math.inf
    factor = torch.ones(1, dtype=torch.float64)
    if not math.isinf(size):
        factor = torch.as_tensor(c * gamma.ppf((np.arange(QUANTILES) + 0.5) / QUANTILES, size))
    means, variances = [], []
    for rate in grid.exp().tolist():
        if rate < SUMMED:
            spread = math.sqrt(rate + c * rate**2)
            top = int(min(rate * (1.0 + 30.0 * c) + 12.0 * spread + 30.0, 1e6))
            k = torch.arange(top + 1, dtype=torch.float64)
            if math.isinf(size):
                log_p = k * math.log(rate) - rate - torch.lgamma(k + 1.0)
            else:
                log_p = torch.lgamma(k + size) - math.lgamma(size) - torch.lgamma(k + 1.0)
                log_p = log_p - size * math.log1p(rate / size) - k * math.log1p(size / rate)
            p = log_p.exp() / log_p.exp().sum()
            t = torch.log10(1.0 + k)
            mean = float(p @ t)
            variance = float(p @ (t - mean).square())
        else:
            n = rate * factor
            t = torch.log10(1.0 + n) - 0.5 * n / ((1.0 + n).square() * LN10)
            mean = float(t.mean())
            variance = float((t - mean).square().mean() + (n / ((1.0 + n) * LN10).square()).mean())
        means.append(mean)
        variances.append(variance)
    _TABLES[key] = torch.tensor(means, dtype=torch.float64), torch.tensor(variances, dtype=torch.float64)
    return _TABLES[key]


def look_up(eta: Tensor, *columns: Tensor) -> list[Tensor]:
    """Linear interpolation of table columns at log intensities of any shape; constant beyond the ends."""
    low, high, n = TABLE
    at = ((eta - low) / (high - low) * (n - 1)).clamp(0.0, n - 1.000001)
    i = at.floor().long()
    part = at - i
    return [column[i] * (1.0 - part) + column[i + 1] * part for column in columns]


def log_count_moments(eta: Tensor, variance: Tensor, c: float) -> tuple[Tensor, Tensor, Tensor]:
    """Mean of t = log10(1 + N), its variance through f ~ N(eta, variance) and its mean variance given f: (N,) each.

    Gauss-Hermite with 20 nodes over f.
    """
    nodes, weights = hermite_nodes(20)
    f = eta[:, None] + variance.sqrt()[:, None] * nodes
    given, spread = look_up(f, *table(c))
    mean = given @ weights
    latent = (given - mean[:, None]).square() @ weights
    return mean, latent.clamp_min(1e-12), (spread @ weights).clamp_min(1e-12)
