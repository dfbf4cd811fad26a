"""An exact Gaussian process of a table, averaged over its hyperparameters."""

from dataclasses import replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float, Num
from numpy.typing import NDArray
from torch import Tensor

from geogp.basis.encoders import Encoder
from geogp.basis.objectives.objective import SOLVES
from geogp.data import Data, Moments
from geogp.engines.averaged.evidence import CORRELATIONS, Evidence
from geogp.engines.averaged.member import Member
from geogp.engines.averaged.search import STEPS, Drawn, drawn
from geogp.engines.averaged.spread import LeftOut, Spread, worth
from geogp.engines.base import Engine, Hooks, Plan
from geogp.engines.stages import stages_of
from geogp.errors import ImpossibleCombination, check_settings
from geogp.field.stages import Stages
from geogp.field.student import heavy_tailed
from geogp.methods import Method

Array = NDArray[np.float64]

#: Rows beyond which a fit is refused: each covariance is 0.2 GB.
MAX_ROWS = 5000
#: Numbers of places by rows at once.
AT_ONCE = 2**21
#: Searches that most fits take.
SEARCHES = 14
#: Steps for the weights of Student-t observations, each a fit.
REWEIGHTINGS = 3
#: Such a share of rows may fall out of 95% intervals by it.
LOST = 0.02
#: Variances below count as this much where they divide.
TINY = 1e-300


class AveragedEngine(Engine):
    """A mixture of exact Gaussian processes, weighed as the rows bear out their hyperparameters.

    options : steps (of the searches for these)
    """

    route: ClassVar[str] = "closed_form"
    objectives_do: ClassVar[tuple[str, ...]] = (SOLVES,)
    has_basis: ClassVar[bool] = False
    # It conditions on all rows: nothing is watched.
    holds_out: ClassVar[bool] = True
    formulas_of: ClassVar[tuple[str, ...]] = ()
    model_lines: ClassVar[tuple[str, ...]] = (
        "y | f ~ N(f(x), τ² + s²/n),  f = m + r(x),  m ~ N(0, .03),  r ~ GP(0, v c(‖(x - x')/ℓ‖))",
        "c squared exponential or Matérn 3/2, a lengthscale ℓ a column",
        "p(f | y) = Σ_j w_j p(f | y, θ_j),  θ_j = (c, ℓ, v, τ², s²) drawn about the tops of p(θ | y)",
        "new y: Student-t, its degrees of freedom and scale, and where the scale differs, read from rows left out",
    )
    words: ClassVar[dict[str, str]] = {"objective": "-log N(y; 0, K + noise) - log p(θ), all rows at once"}
    dtype: ClassVar[torch.dtype] = torch.float64

    def __init__(self, plan: Plan, encoder: Encoder, members: list[Member], of_new: Spread):
        self.plan, self.encoder, self.members, self.of_new = plan, encoder, members, of_new

    @classmethod
    def own_settings(cls, row: Method) -> tuple[str, ...]:
        return ("steps",)

    @classmethod
    def fit(cls, plan: Plan, data: Data, validation: Data | None, hooks: Hooks = Hooks()) -> Self:
        if len(data) > MAX_ROWS:
            raise ImpossibleCombination(
                f"method {plan.row.name!r} is exact, with cost n^3: it takes at most {MAX_ROWS} rows and got {len(data)}; take "
                f"{plan.row.instead}."
            )
        unknown = set(plan.options) - {"steps"}
        if unknown:
            raise ImpossibleCombination(
                f"method {plan.row.name!r} has no option {sorted(unknown)[0]!r}; it knows steps."
            )
        check_settings(plan.options)
        data = data.to(torch.device("cpu"))
        encoder = Encoder(plan.shape.n_inputs)
        encoder.fit_scaling(data.X)
        Z, y = _standardised(encoder, data.X), data.y.double().numpy()
        n = _inverse(data.counts)
        if n is not None and bool((n == n[0]).all()):
            n = None
        of = Evidence(Z, y, n, CORRELATIONS[0])
        stages = stages_of(hooks, SEARCHES)
        steps = plan.options.get("steps", STEPS)
        return cls(plan, encoder, *fitted(of, steps=steps, seed=plan.seed, stages=stages))

    @property
    def spread(self) -> str:
        nu = self.of_new.degrees_of_freedom
        return super().spread if nu is None else f"{super().spread}, t {nu:.1f}"

    @cached_property
    def lengths(self) -> Array:
        """(d,) of the columns, see `lengths_of`."""
        return lengths_of(self.members)

    # -- predicting --------------------------------------------------------------------------------

    def moments(self, X: Float[Tensor, "N D"], counts: Num[Tensor, " N"] | None = None) -> Moments:
        size = max(1, AT_ONCE // len(self.members[0].y))
        parts = []
        for i in range(0, max(len(X), 1), size):
            n = None if counts is None else counts[i : i + size]
            parts.append(self._moments(_standardised(self.encoder, X[i : i + size]), _inverse(n)))
        return Moments.joined(parts)

    def _moments(self, Z: Array, inverse_counts: Array | None) -> Moments:
        mean, second, noise, least = np.zeros((4, len(Z)))
        prior = 0.0
        means = []
        for member in self.members:
            w = member.drawn.weight
            m, solved = member.solve(Z)
            # Non-negative in exact arithmetic; the bound takes off rounding only.
            second += w * np.maximum(member.prior_variance - np.einsum("ij,ij->j", solved, solved), 0.0)
            mean += w * m
            noise += w * member.noise(inverse_counts, len(Z))
            least += w * member.noise(np.zeros(len(Z)), len(Z))
            prior += w * member.prior_variance
            means.append((w, m))
        for w, m in means:
            second += w * np.square(m - mean)
        # Where members contradict each other the mixture may know less than they did before on average: that is no knowledge.
        prior_variance = np.maximum(prior, second)
        second, noise = self.of_new.split(
            Z / self.lengths, self.members[0].Z / self.lengths, second, noise, least
        )
        values = [torch.from_numpy(v) for v in (mean, second, noise, prior_variance)]
        nu = self.of_new.degrees_of_freedom
        tails = None if nu is None else torch.full((len(Z),), nu, dtype=torch.float64)
        return Moments(values[0], values[1], values[2], values[3], degrees_of_freedom=tails)

    def prior_variance(self, X: Float[Tensor, "N D"]) -> Float[Tensor, " N"]:
        prior = sum(m.drawn.weight * m.prior_variance for m in self.members)
        return torch.full((len(X),), prior, dtype=torch.float64)

    def prior_covariance(self, X: Float[Tensor, "N D"], X_ref: Float[Tensor, "M D"]) -> Float[Tensor, "N M"]:
        A, B = _standardised(self.encoder, X), _standardised(self.encoder, X_ref)
        return torch.from_numpy(sum(m.drawn.weight * m.covariance(A, B) for m in self.members))

    def posterior_covariance(
        self, X: Float[Tensor, "N D"], counts: Num[Tensor, " N"] | None = None
    ) -> Float[Tensor, "N N"]:
        Z = _standardised(self.encoder, X)
        told = [(m.drawn.weight, m.covariance(Z, Z), *m.solve(Z)) for m in self.members]
        mean = sum(w * m for w, _, m, _ in told)
        S = np.sum([w * (K - V.T @ V + np.outer(m - mean, m - mean)) for w, K, m, V in told], axis=0)
        if self.of_new.missed is None:
            return torch.from_numpy(S)
        variance = np.maximum(S.diagonal(), TINY)
        scale = np.sqrt(self.moments(X, counts).latent_variance.numpy() / variance)
        return torch.from_numpy(scale[:, None] * S * scale)

    # -- state -------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Tensor], dict]:
        first = self.members[0]
        tensors = {
            "hyperparameters": np.array([m.drawn.at for m in self.members]),
            "weights": np.array([m.drawn.weight for m in self.members]),
            "rows.Z": first.Z,
            "rows.y": first.y,
        }
        if first.inverse_counts is not None:
            tensors["rows.inverse_counts"] = first.inverse_counts
        if first.times is not None:
            tensors["rows.times"] = first.times
        if self.of_new.missed is not None:
            tensors["rows.missed"] = self.of_new.missed
        out = {name: torch.from_numpy(v) for name, v in tensors.items()}
        out |= {f"encoder.{k}": v.detach().clone() for k, v in self.encoder.state_dict().items()}
        return out, {
            "correlations": [m.drawn.correlation for m in self.members],
            "spread": self.of_new.facts(),
        }

    @classmethod
    def from_state(cls, plan: Plan, tensors: dict[str, Tensor], facts: dict) -> Self:
        encoder = Encoder(plan.shape.n_inputs)
        start = "encoder."
        encoder.load_state_dict({k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)})
        counts = tensors.get("rows.inverse_counts")
        rows = (
            tensors["rows.Z"].numpy(),
            tensors["rows.y"].numpy(),
            None if counts is None else counts.numpy(),
            tensors["rows.times"].numpy() if "rows.times" in tensors else None,
        )
        told = zip(tensors["hyperparameters"].numpy(), facts["correlations"], tensors["weights"].tolist())
        # The factors are n^2 numbers each: computing them again is cheaper than keeping them.
        missed = tensors.get("rows.missed")
        spread = Spread.from_facts(facts.get("spread"), None if missed is None else missed.numpy())
        return cls(plan, encoder, [Member(Drawn(*each), *rows) for each in told], spread)


def lengths_of(members: list[Member]) -> Array:
    """(d,) lengthscales of the columns, the members' geometric mean."""
    d = members[0].Z.shape[1]
    return np.asarray(np.exp(sum(m.drawn.weight * m.drawn.at[:d] for m in members)))


def fitted(
    of: Evidence, *, steps: int, seed: int, reweightings: int = REWEIGHTINGS, stages: Stages | None = None
) -> tuple[list[Member], Spread]:
    """Members and the spread of new observations about them; rows weighed as Student-t where rows left out surely gain by it.

    stages : where its searches are kept
    """
    known = stages or Stages()

    def told(of: Evidence, name: str) -> tuple[list[Member], LeftOut, Spread, float, float]:
        members = [
            Member(each, of.Z, of.y, of.inverse_counts, of.times)
            for each in drawn(of, steps=steps, seed=seed, stages=known, name=name)
        ]
        by_member = (np.array(each) for each in zip(*(m.left_out() for m in known.between(members))))
        weights = np.array([m.drawn.weight for m in members])
        rows = LeftOut.of(of.y, weights, *by_member, scales=of.times is not None)
        return members, rows, *rows.spread(of.Z / lengths_of(members))

    members, rows, spread, score, held = told(of, "all rows alike, ")
    kept, needed = (members, spread), score + worth(len(of.y))
    least = min(held, 0.95) - LOST
    for i in range(reweightings):
        nu, factor = rows.tails()
        if not (heavy_tailed(nu) and heavy_tailed(kept[1].degrees_of_freedom)):
            break
        # Tipping and Lawrence 2005, section 3, as in `geogp.field.student`.
        parts = [m.drawn.weight * m.missed() / m.noise(of.inverse_counts, len(of.y)) for m in members]
        square = np.sum(parts, axis=0) / factor
        members, rows, spread, score, held = told(
            replace(of, times=(nu + square) / (nu + 1.0)), f"weighed {i}, "
        )
        # Weights that let go of too many rows make the others near certain: dense where most are, and never holding the rest.
        if score <= needed or not heavy_tailed(spread.degrees_of_freedom) or held < least:
            break
        kept, needed = (members, spread), score
    return kept


def _standardised(encoder: Encoder, X: Float[Tensor, "N D"]) -> Array:
    return ((X.cpu().double() - encoder.centre) / encoder.scale).numpy()


def _inverse(counts: Num[Tensor, " N"] | None) -> Array | None:
    """1 / n."""
    return None if counts is None else 1.0 / counts.cpu().double().clamp_min(1.0).numpy()
