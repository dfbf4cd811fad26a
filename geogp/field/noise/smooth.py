"""Noise, and a shift with the count, that vary smoothly with the surroundings.

    u | x, n ~ skewed Student-t( r̄(x) + δ(x, n),  scale² = v(x) + τ²(x) + s²(x) / n,  ν(x),  γ(x, n) )

r̄ and v are the local GP's moments; δ (the count shift b(n), which is larger where r is poorly known),
log τ², log s², log ν and log γ are outputs of small networks of the surroundings, deep bases with linear
weights on top, fitted by the exact likelihood of rows that were held out. Each learns without a third of the squares; what
counts is their mean, each part of it as far as rows that they have not seen bear it out, and the noise as large as is best for
these rows (`believe`): those that a network has learned from look less noisy to it than new ones are. How far they disagree about δ
is part of the surface's variance; the rest of it is the local GP's own: rows say what v and the noise are together, and
nothing of either alone. Where lines of several technologies lie side by side, a second peak may hold up to half of the mass:
its share, where it lies and how wide it is are outputs, too.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from geogp.densities import log_density
from geogp.field.columns import Columns
from geogp.field.noise.gaps import learned_in_gaps, log_factor
from geogp.field.noise.least import least
from geogp.field.noise.members import PARTS, Dealt, SideBySide, mean_of_those
from geogp.field.noise.peaks import EVEN, LARGEST_SHARE, PEAK_REACH, PEAK_START, beside, even_peaks
from geogp.field.steps import Group, Steps
from geogp.linalg.threads import side_by_side
from geogp.predictive import Peak, Predictive
from geogp.transforms import Identity, Transform

#: Standardised inputs are clipped here: outside what was seen the noise stays what it was at the edge.
CLIP = 4.0
SMALLEST_DF = 2.1
#: log γ stays within ±this: at most 18% of the mass on the short side.
MOST_LOG_SKEWNESS = 0.75
#: δ is this share of the noise's usual variance larger than where r is known exactly.
KNOWN_EXACTLY = 0.1
#: Nats that it costs to believe an output in full.
BELIEF = 3.0
#: The logarithm of the factor on the noise that unseen rows ask for stays within ±this.
FARTHEST_LEVEL = 1.0
#: Rows that go through the networks at once where nothing is learned: what lies between two layers stays in the cache.
AT_ONCE = 1024


@dataclass(frozen=True)
class SecondPeak(Columns):
    """(N,) each: its share of the mass, how far beyond the first peak's location it lies, and its noise variance."""

    share: Tensor
    offset: Tensor
    noise_variance: Tensor

    def of(self, location: Tensor, latent_variance: Tensor) -> Peak:
        """As `Predictive` takes it, beside a first peak at this location."""
        scale = (latent_variance + self.noise_variance).sqrt()
        return Peak(self.share.numpy(), (location + self.offset).numpy(), scale.numpy())


@dataclass(frozen=True)
class Parts(Columns):
    """(N,) each: location (the mode), latent and noise squared scale, degrees of freedom, log skewness, of the first peak where
    there is a second."""

    location: Tensor
    latent_variance: Tensor
    noise_variance: Tensor
    degrees_of_freedom: Tensor
    log_skewness: Tensor
    peak: SecondPeak | None = None

    def log_density(self, value: Tensor) -> Tensor:
        """Of values (N,); two halves stretched by 1/γ and γ (Fernández and Steel 1998, eq. 1), and the second peak."""
        first, peak = self._first(value), self.peak
        if peak is None:
            return first
        variance = self.latent_variance + peak.noise_variance
        second = log_density(value, self.location + peak.offset, variance, None)
        return torch.logaddexp(torch.log1p(-peak.share) + first, peak.share.log() + second)

    def predictive(self, transform: Transform = Identity()) -> Predictive:
        """The distributions (N,), of what `transform` makes into values here."""
        return Predictive(
            self.location.numpy(),
            (self.latent_variance + self.noise_variance).sqrt().numpy(),
            self.degrees_of_freedom.numpy(),
            transform,
            self.log_skewness.numpy(),
            peak=None if self.peak is None else self.peak.of(self.location, self.latent_variance),
        )

    def _first(self, value: Tensor) -> Tensor:
        gamma = self.log_skewness.exp()
        away = value - self.location
        stretched = away / torch.where(away < 0, 1.0 / gamma, gamma)
        scale2 = self.latent_variance + self.noise_variance
        symmetric = log_density(stretched, torch.zeros_like(away), scale2, self.degrees_of_freedom)
        return symmetric - torch.log(0.5 * (gamma + 1.0 / gamma))


class SmoothNoise(nn.Module):
    """Count shift, τ², s², degrees of freedom and skewness as smooth functions of the surroundings.

    Parameters
    ----------
    n_inputs : features of the surroundings and of the count
    hidden : width; two residual layers
    members : networks side by side
    spread : the input that says how much the neighbours deviate from the mean, over what they are expected to, None where none
        does: with it rows in gaps have a say in the surface's variance there (`geogp.field.noise.gaps`)
    scales_surface : with a factor a on v, too, as earlier runs have it. a(x) v(x) <= a₀ v₀ with v₀ the prior
        variance of r and a₀ the factor where v(x) = v₀: log a = log a₀ + o(x) (1 − v/v₀) with o <= 1
    peak : with a second peak

    References
    ----------
    Breiman 1996 (bagging, and rows that a member has not seen); Shao and Wu 1989 (the variance of a mean from how estimates without
    a group differ)
    """

    center: Tensor
    scale: Tensor
    trust: Tensor
    gaps: Tensor
    below: Tensor

    def __init__(
        self,
        n_inputs: int,
        hidden: int = 48,
        *,
        members: int = 1,
        spread: int | None = None,
        scales_surface: bool = False,
        peak: bool = False,
    ):
        super().__init__()
        self.spread = spread
        self.peak = peak
        self.scales_surface = scales_surface
        self.register_buffer("center", torch.zeros(n_inputs, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(n_inputs, dtype=torch.float64))
        #: What of δ is believed where r is well known, half known and unknown; of the noise; of tails and skewness; of the second peak.
        self.register_buffer("trust", torch.ones(6 if peak else 5, dtype=torch.float64))
        #: b of `geogp.field.noise.gaps`.
        self.register_buffer("gaps", torch.zeros((), dtype=torch.float64))
        #: How far below r's mean the first peak lies where the networks say nothing.
        self.register_buffer("below", torch.zeros((), dtype=torch.float64))
        self.first = SideBySide(members, n_inputs, hidden)
        self.layers = nn.ModuleList([SideBySide(members, hidden, hidden) for _ in range(2)])
        self.last = SideBySide(members, hidden, 5 + scales_surface + 3 * peak)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)
        #: (log a,) log τ², log s², log (ν - 2.1) and log γ, and the second peak's, where the network says nothing.
        start = [*[0.0] * scales_surface, -4.0, 0.0, 1.0, 0.0, *PEAK_START[: 3 * peak]]
        self.intercept = nn.Parameter(torch.tensor(start))
        #: Where log τ² stands.
        self.noise_at = int(scales_surface)

    @property
    def members(self) -> int:
        """How many networks there are."""
        return len(self.first.weight)

    def start_from(self, features: Tensor, tau2: float, s2: float, degrees_of_freedom: float) -> None:
        """Standardise by `features` (N, n_inputs); begin at a constant noise."""
        with torch.no_grad():
            self.center.copy_(features.mean(0))
            spread = features.std(0, unbiased=False)
            self.scale.copy_(torch.where(spread > 1e-8, spread, torch.ones_like(spread)))
            start = [max(tau2, 1e-6), max(s2, 1e-6), max(degrees_of_freedom - SMALLEST_DF, 0.1), 1.0]
            self.intercept[self.noise_at : self.noise_at + 4] = torch.tensor(start).log()

    def start_apart(self, rows: "HeldOutRows") -> None:
        """Begin at two peaks where held-out rows say: members that find different ones would say neither together."""
        away, known = rows.value - rows.mean, rows.variance + rows.drift_variance
        apart = even_peaks(away, known, rows.weight)
        start = self.intercept.detach().double()[self.noise_at :]
        if apart is None:
            noise = start[0].exp() + start[1].exp() / rows.counts
            self._begin_at(beside(away, known, noise, SMALLEST_DF + float(start[2].exp()), rows.weight))
            return
        even = torch.tensor([EVEN, 2.0 * apart.apart, 0.5 * math.log(apart.left)])
        self._begin_at(even, math.log(apart.left / apart.noise))
        self.below.fill_(apart.apart)

    def _begin_at(self, peak: Tensor, noise: float = 0.0) -> None:
        """With such outputs of the second peak, and noise variances larger by such a logarithm, where the networks say nothing."""
        with torch.no_grad():
            self.intercept[self.noise_at : self.noise_at + 2] += noise
            self.intercept[-3:] = peak

    def forward(
        self,
        features: Tensor,
        mean: Tensor,
        variance: Tensor,
        prior_variance: Tensor,
        counts: Tensor,
        without: Tensor | None = None,
    ) -> Parts:
        """Parts of the predictive distribution at N places, float64.

        without : (E, N) members that have not learned from a row: what they alone say of it; None for all. Where the noise
            begins, how features are scaled, what is believed and how far members disagree are of all members even then
        """
        out = self.outputs(features)
        said = out.mean(0) if without is None else mean_of_those(out, without)
        believed = self._believed(said, variance / prior_variance, self.trust)
        parts = self.parts(believed, mean, variance, prior_variance, counts)
        if self.members == 1:
            return parts
        apart = (out[..., 0] - said[..., 0]).square().mean(0)
        more = self._doubt(apart, variance, prior_variance)
        if bool(self.gaps > 0.0):
            known, spread = variance / prior_variance, self._spread(features)
            more = more + variance * torch.expm1(log_factor(self.gaps, known, spread))
        return replace(parts, latent_variance=parts.latent_variance + more)

    def outputs(self, features: Tensor) -> Tensor:
        """(E, N, outputs) of each member, at features (N, F) for all of them or (E, N, F) for each."""
        many = features.dim() == 2 and len(features) > AT_ONCE and features.device.type == "cpu"
        if many and not torch.is_grad_enabled():
            return torch.cat(list(side_by_side(self.outputs, features.split(AT_ONCE))), dim=1)
        return self.said_of(self.standardised(features))

    def standardised(self, features: Tensor) -> Tensor:
        """Features (.., F) as the networks take them."""
        return ((features - self.center) / self.scale).clamp(-CLIP, CLIP).to(self.first.weight.dtype)

    def said_of(self, z: Tensor) -> Tensor:
        """(E, N, outputs) of each member, at standardised features (N, F) or (E, N, F)."""
        h = nn.functional.silu(self.first(z))
        for layer in self.layers:
            h = h + nn.functional.silu(layer(h))
        return self.last(h).double()

    def parts(
        self, outputs: Tensor, mean: Tensor, variance: Tensor, prior_variance: Tensor, counts: Tensor
    ) -> Parts:
        """What outputs (.., 5 or 8) mean where r has this mean and variance, for averages of so many measurements."""
        said = outputs.unbind(-1)
        shift, *factor, tau, s, tails, skew = said[: self.noise_at + 5]
        start = self.intercept.double()[self.noise_at :]
        latent = self._scaled(variance, prior_variance, factor[0]) if factor else variance
        noise = torch.exp(start[0] + tau.clamp(-6.0, 6.0)) + torch.exp(start[1] + s.clamp(-4.0, 4.0)) / counts
        df = SMALLEST_DF + torch.exp(start[2] + tails.clamp(-2.0, 3.0))
        log_skewness = MOST_LOG_SKEWNESS * torch.tanh(start[3] + skew)
        location = mean - self.below + shift * torch.sqrt(variance + KNOWN_EXACTLY)
        peak = self._second(said[-3:], start[4:]) if self.peak else None
        return Parts(location, latent, noise, df, log_skewness, peak)

    @staticmethod
    def _second(said: Sequence[Tensor], start: Tensor) -> SecondPeak:
        """What the last three outputs mean."""
        share, offset, log_scale = (
            begin + more.clamp(-reach, reach) for begin, more, reach in zip(start, said, PEAK_REACH)
        )
        return SecondPeak(LARGEST_SHARE * torch.sigmoid(share), offset, torch.exp(2.0 * log_scale))

    def believe(self, rows: "HeldOutRows", prior_variance: Tensor, without: Tensor) -> None:
        """Set `trust` to what makes rows likely under the members that have not seen them, then the noise's level and, where rows
        surely gain by it, the surface's variance in gaps.

        The level is one factor on all of the noise, beside what is uncertain of δ.

        without : (E, N) whether a member has learned without a row; rows that all have learned from say nothing, and where there
            is no other all is believed

        Notes
        -----
        O(N) for each of some hundred passes.
        """
        told = without.any(0)
        if not bool(told.any()):
            return
        rows, without = rows.at(told), without[:, told]
        with torch.no_grad():
            outputs = self.outputs(rows.features)
        said, known = mean_of_those(outputs, without), rows.variance / prior_variance

        def read(trust: Tensor) -> Parts:
            believed = self._believed(said, known, trust)
            p = self.parts(believed, rows.mean, rows.variance, prior_variance, rows.counts)
            return replace(p, latent_variance=p.latent_variance + rows.drift_variance)

        def disbelieved(at: Tensor) -> Tensor:
            trust = torch.sigmoid(at)
            likely = (rows.vote * read(trust).log_density(rows.value)).sum()
            return (BELIEF * trust.sum() - likely) / len(rows)

        self.trust.copy_(torch.sigmoid(least(disbelieved, len(self.trust))))
        apart = outputs[..., 0].var(0, unbiased=False)
        with torch.no_grad():
            p, doubt = read(self.trust), self._doubt(apart, rows.variance, prior_variance)

        def say(log_a: Tensor | float, level: Tensor | float) -> Tensor:
            a, factor = torch.as_tensor(log_a), torch.as_tensor(level).exp()
            latent = p.latent_variance + doubt + rows.variance * torch.expm1(a)
            changed = replace(p, latent_variance=latent, noise_variance=p.noise_variance * factor)
            return rows.vote * changed.log_density(rows.value)

        gaps = None
        if self.spread is not None:
            fold = without[:PARTS].int().argmax(0)
            gaps = learned_in_gaps(say, known, self._spread(rows.features), fold, rows.square)
        if gaps is None:
            level = least(lambda at: -say(0.0, at).sum() / len(rows), 1)
        else:
            self.gaps.copy_(gaps[0])
            level = gaps[1:]
        with torch.no_grad():
            self.intercept[self.noise_at : self.noise_at + 2] += level.clamp(-FARTHEST_LEVEL, FARTHEST_LEVEL)

    def _spread(self, features: Tensor) -> Tensor:
        """s (N,) of `geogp.field.noise.gaps`: over its sd, and 0 where there are no neighbours."""
        return features[:, self.spread] / self.scale[self.spread]

    def _doubt(self, apart: Tensor, variance: Tensor, prior_variance: Tensor) -> Tensor:
        """Variance (N,) of δ as far as it is believed; `apart` is how far members differ about it."""
        share = self._known_shares(variance / prior_variance) @ self.trust[:3]
        # Estimates without a group differ by so much less than estimates from other rows would.
        return (PARTS - 1) * share.square() * apart * (variance + KNOWN_EXACTLY)

    def _believed(self, said: Tensor, known: Tensor, trust: Tensor) -> Tensor:
        """Outputs (N, ..), each as far as it is believed; `known` is v/v₀."""
        shift = self._known_shares(known) @ trust[:3]
        which = [3, 3, 4, 4, *[5] * (3 * self.peak)]
        rest = trust[which].expand(len(said), len(which))
        between = said.new_ones(len(said), self.noise_at)  # the factor on v of earlier runs
        return said * torch.cat([shift[:, None], between, rest], dim=-1)

    @staticmethod
    def _known_shares(known: Tensor) -> Tensor:
        """(N, 3) how near v/v₀ is to 0, 1/2 and 1."""
        far = 2.0 * known.clamp(0.0, 1.0)
        return torch.stack(
            [(1.0 - far).clamp_min(0.0), 1.0 - (far - 1.0).abs(), (far - 1.0).clamp_min(0.0)], -1
        )

    def _scaled(self, variance: Tensor, prior_variance: Tensor, flex: Tensor) -> Tensor:
        known = 1.0 - (variance / prior_variance).clamp(0.0, 1.0)
        # tanh(0.55) ~ 1/2: no output means no change; the bounds are e^-3 and e^1.
        flex = 2.0 * torch.tanh(flex + 0.5493061443340549) - 1.0
        return variance * torch.exp(self.intercept[0].double() + flex * known)

    def prior_factor(self) -> float:
        """a₀: what the prior variance of r is multiplied with."""
        return float(self.intercept[0].detach().double().exp()) if self.scales_surface else 1.0


@dataclass(frozen=True)
class HeldOutRows(Columns):
    """Held-out rows to learn from: (N, F) features, (N,) moments of r, what the drift adds to the variance, counts,
    values, weights, the squares they lie in, and their weights where members are judged."""

    features: Tensor
    mean: Tensor
    variance: Tensor
    drift_variance: Tensor
    counts: Tensor
    value: Tensor
    weight: Tensor
    square: Tensor
    vote: Tensor


def fit_smooth_noise(
    model: SmoothNoise,
    rows: HeldOutRows,
    prior_variance: Tensor,
    dealt: Dealt,
    *,
    epochs: int = 15,
    batch: int = 512,
    learning_rate: float = 1.2e-2,
    weight_decay: float = 0.3,
    seed: int = 0,
    tick: Callable[[], None] = lambda: None,
) -> list[float]:
    """Maximise the weighted likelihood of the held-out rows, each member without some of the squares (`dealt`), then see what rows that
    they have not seen bear out; the mean loss of each epoch.

    Notes
    -----
    O(members · epochs · N · hidden²).
    """
    generator = torch.Generator().manual_seed(seed)
    decaying = [p for name, p in model.named_parameters() if name != "intercept"]
    groups = [Group(decaying, learning_rate, weight_decay), Group([model.intercept], learning_rate)]
    without = dealt.rows(rows.square)
    own = [torch.nonzero(~absent)[:, 0] for absent in without]
    n = max(len(some) for some in own)
    batch = min(batch, n)
    per_epoch = n // batch
    steps = Steps(groups, total=epochs * per_epoch, rise=0.15)
    features = model.standardised(rows.features)
    told = torch.stack(
        [rows.mean, rows.variance, rows.drift_variance, rows.counts, rows.value, rows.weight], -1
    )
    history = []
    for _ in range(epochs):
        order = torch.stack([_shuffled(some, n, generator) for some in own])
        total = 0.0
        for i in range(per_epoch):
            j = order[:, i * batch : (i + 1) * batch]
            mean, variance, drift_variance, counts, value, weight = _rows(told, j).unbind(-1)
            outputs = model.said_of(_rows(features, j))
            parts = model.parts(outputs, mean, variance, prior_variance, counts)
            parts = replace(parts, latent_variance=parts.latent_variance + drift_variance)
            loss = -(weight * parts.log_density(value)).mean(1)
            steps.down(loss.sum())
            total += loss.mean().item()
        history.append(total / per_epoch)
        tick()
    if model.members > 1:
        model.believe(rows, prior_variance, without)
    return history


def _rows(table: Tensor, at: Tensor) -> Tensor:
    """(E, N, F) rows of a table (.., F), each copied whole, where table[at] copies number by number."""
    return table.index_select(0, at.flatten()).view(*at.shape, -1)


def _shuffled(some: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """n of them in random order; where there are fewer, once more in another."""
    times = -(-n // len(some))
    return torch.cat([some[torch.randperm(len(some), generator=generator)] for _ in range(times)])[:n]


def new_smooth_noise(
    n_inputs: int,
    *,
    hidden: int = 48,
    members: int = 1,
    seed: int = 0,
    spread: int | None = None,
    scales_surface: bool = False,
    peak: bool = False,
) -> SmoothNoise:
    """Networks whose starting weights depend on the seed alone.

    Examples
    --------
    >>> noise, one = new_smooth_noise(2), torch.ones(1).double()
    >>> noise.start_from(torch.randn(9, 2).double(), tau2=0.1, s2=0.4, degrees_of_freedom=8.0)
    >>> with torch.no_grad():
    ...     parts = noise(torch.zeros(1, 2).double(), one, one, one, 4.0 * one)
    >>> round(float(parts.noise_variance), 4)  # 0.1 + 0.4 / 4
    0.2
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return SmoothNoise(
            n_inputs, hidden, members=members, spread=spread, scales_surface=scales_surface, peak=peak
        )
