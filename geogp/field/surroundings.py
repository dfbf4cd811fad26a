"""What the neighbours of a place say: the inputs of the smooth noise.

Everything is computed from the conditioning set alone, so it means the same for a training row whose own value
was held out and for a new place, and far from data every entry tends to a constant.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from geogp.field.columns import Columns
from geogp.field.kernel import LocalKernel
from geogp.field.neighbours import LOWER, ranked
from geogp.field.observations import Observations, typical_precision
from geogp.field.solve import PLACES_AT_ONCE, conditional_moments
from geogp.linalg.threads import side_by_side

NAMES = (
    "mean",
    "variance",
    "busyness",
    "log_spread",
    "lean",
    "log_weight",
    "near_busyness",
    "log_nearest",
    "log_ninth",
    "time_gap",
)
#: What neighbours measured, less the mean: means at so many spacings and units of time, quantiles of the nearest.
RANGES, TIMES = (0.7, 3.0, 10.0), (0.26, 1.6)
NEAREST, SHARES = 24, (0.1, 0.25, 0.5, 0.75, 0.9)
SAID = 3 * len(RANGES) * len(TIMES) + 6 + len(SHARES)
#: Weight, in observations of typical precision, with which a mean of deviations holds to none.
HOLD = 0.1
#: Squared deviation that is expected of an observation beside its noise.
SPREAD = 0.3
#: Nearer than this share of a spacing is the same place.
SAME = 1e-6
#: Distances saturate here, in units of the spacing of places.
FAR = 1000.0
#: Ranges beyond which nothing is left, and exponentials of more would be denormal numbers, which are slow.
FADED = 80.0
#: Places solved at once on an accelerator: about 1 GB of float64 at k = 48.
PLACES_AT_ONCE_ON_DEVICE = 8192


@dataclass(frozen=True)
class Surroundings(Columns):
    """mean, variance of r (N,) each, features (N, len(NAMES)) with mean and variance among them, what the same
    weights make of the drift's columns (N, q), and testimony (N, p) as `Witnesses.testimony` gives it, or (N, 0) where it
    is not asked for."""

    mean: Tensor
    variance: Tensor
    features: Tensor
    leaning: Tensor
    testimony: Tensor

    def moved(self, change: Tensor) -> "Surroundings":
        """With another mean of r: this one and a change (N,)."""
        mean = self.mean + change
        return replace(self, mean=mean, features=torch.cat([mean[:, None], self.features[:, 1:]], dim=1))


def survey(
    kernel: LocalKernel,
    seen: Observations,
    X_new: Tensor,
    index: Tensor,
    *,
    spacing: float,
    latest: float,
    columns: Tensor | None = None,
    degrees_of_freedom: float | None = None,
    in_detail: bool = False,
) -> Surroundings:
    """Local GP moments at X_new, and a summary of the observations they rest on.

    Parameters
    ----------
    kernel : of r
    seen : all observations
    X_new : (N, D)
    index : (N, k) rows of `seen` to condition on, -1 for none
    spacing : typical distance between neighbouring places
    latest : time of the newest observation; places after it have a time gap
    columns : (n, q) of the drift at the observations, or None
    degrees_of_freedom : of the observations, None for Gaussian ones
    in_detail : with what they measured one by one

    Returns
    -------
    Surroundings: besides the moments of r, the local GP's mean of log counts ("busyness"), the log ratio of
    the observed to the expected squared deviation ("spread"), the mean signed deviation ("lean"), the summed
    weights, the log counts close by ("near busyness"), distances to the first and the ninth neighbour, and the
    time since the newest observation.

    Notes
    -----
    O(N k³) time; memory does not grow with N beyond the result. Without gradients.

    Examples
    --------
    >>> kernel = LocalKernel(torch.zeros(1, 2), torch.zeros(1), ("matern12",))
    >>> one = torch.ones(1).double()
    >>> seen = Observations(torch.zeros(1, 2).double(), one, one, one)
    >>> here = survey(kernel, seen, seen.X, torch.tensor([[0]]), spacing=1.0, latest=0.0)
    >>> here.mean, here.features.shape
    (tensor([0.5000], dtype=torch.float64), torch.Size([1, 10]))
    """
    busyness = busyness_of(seen)
    values = torch.stack([seen.value, busyness], dim=-1)
    columns = seen.value.new_zeros(len(seen), 0) if columns is None else columns
    chunk = PLACES_AT_ONCE if X_new.device.type == "cpu" else PLACES_AT_ONCE_ON_DEVICE

    def told(part: slice) -> Surroundings:
        x, i = X_new[part], index[part]
        c = conditional_moments(kernel, x, seen.X, values, seen.noise_variance, i, degrees_of_freedom)
        leaning = (c.weights * (i >= 0))[:, None, :] @ columns[i.clamp_min(0)]
        near = Witnesses.of(seen, busyness, i, x[:, None], kernel.time_axis)
        given = Given(c.mean[:, None, 0], c.variance[:, None], c.mean[:, None, 1], c.covariance[:, None])
        here = near.say(
            kernel,
            x[:, None],
            given,
            near.present[:, None],
            near.distances(x[:, None]) / spacing,
            latest,
            in_detail,
        )
        return Surroundings(c.mean[:, 0], c.variance, here[0][:, 0], leaning[:, 0], here[1][:, 0])

    parts = [slice(start, start + chunk) for start in range(0, len(X_new), chunk)]
    if not parts:
        return nowhere(columns, in_detail)
    return Surroundings.together(list(side_by_side(told, parts)))


def nowhere(columns: Tensor, in_detail: bool) -> Surroundings:
    """Of no place."""
    nobody = columns.new_zeros(0)
    widths = len(NAMES), columns.shape[1], SAID if in_detail else 0
    return Surroundings(nobody, nobody, *(columns.new_zeros(0, m) for m in widths))


def busyness_of(seen: Observations) -> Tensor:
    """(n,) log counts, 0 for the typical one."""
    busyness = seen.counts.log()
    return busyness - busyness.mean()


@dataclass(frozen=True)
class Given:
    """(G, b) mean and variance of r and mean log count at b places of each of G neighbourhoods, and the prior
    covariance (G, b, k) with each row."""

    mean: Tensor
    variance: Tensor
    busyness: Tensor
    covariance: Tensor


@dataclass(frozen=True)
class Witnesses:
    """Rows of G neighbourhoods, (G, k) each: whether there is one, what it measured, and how old it is where it is
    asked; all b places of a neighbourhood are asked at one time.

    X : (G, k, D); value, counts, expected (squared deviation), busyness, age, present : (G, k)
    """

    X: Tensor
    value: Tensor
    counts: Tensor
    expected: Tensor
    busyness: Tensor
    age: Tensor
    present: Tensor

    @classmethod
    def of(
        cls, seen: Observations, busyness: Tensor, index: Tensor, X_new: Tensor, time_axis: int | None
    ) -> "Witnesses":
        """Rows `index` (G, k) of the observations, -1 for none, asked at X_new (G, b, D)."""
        rows = index.clamp_min(0)
        X = seen.X[rows]
        age = torch.zeros_like(X[..., 0])
        if time_axis is not None:
            age = (X_new[:, :1, time_axis] - X[..., time_axis]).abs()
        expected = seen.noise_variance[rows] + SPREAD
        return cls(X, seen.value[rows], seen.counts[rows], expected, busyness[rows], age, index >= 0)

    def say(
        self,
        kernel: LocalKernel,
        X_new: Tensor,
        given: Given,
        heard: Tensor,
        distance: Tensor,
        latest: float,
        in_detail: bool,
    ) -> tuple[Tensor, Tensor]:
        """Features (G, b, len(NAMES)) and testimony (G, b, SAID), or (G, b, 0), at X_new (G, b, D), of the rows `heard`
        (G, b, k) there, which lie `distance` (G, b, k) away, in spacings."""
        there, distance = heard.float(), distance.float()
        spread, lean, total = self._deviations(given, there, kernel.prior_variance)
        far = distance.clamp_max(FAR).masked_fill_(~heard, FAR)
        t = kernel.time_axis
        gap = torch.zeros_like(given.mean) if t is None else (X_new[..., t] - latest).clamp_min(0.0)
        nearest = smallest(far + 1e-3 * self.age[:, None, :].float(), NEAREST)
        distances = far.gather(-1, nearest[..., :9])
        features = [
            given.mean,
            given.variance,
            given.busyness,
            spread.log(),
            lean,
            torch.log(total + 1e-3),
            self._busyness_close_by(far),
            torch.log1p(distances.amin(-1)),
            torch.log1p(distances.amax(-1)),
            gap.expand_as(given.mean),
        ]
        said = distance.new_zeros(*total.shape, 0)
        if in_detail:
            known = 1.0 - (given.variance / kernel.prior_at(X_new)).clamp(0.0, 1.0)
            said = self.testimony(given.mean, known, far, there, nearest)
        return torch.stack([feature.double() for feature in features], dim=-1), said.double()

    def distances(self, X_new: Tensor) -> Tensor:
        """Over space, of X_new (G, b, D) to the rows: (G, b, k)."""
        east, north = (X_new[..., :, None, d] - self.X[..., None, :, d] for d in (0, 1))
        return (east.square() + north.square()).sqrt()

    def _deviations(
        self, given: Given, there: Tensor, prior_variance: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Spread and lean of the rows about the mean, in units of what is expected, and their summed weight: (G, b)."""
        per = 1.0 / (prior_variance * self.expected)
        root = self.expected.rsqrt()
        v, square = self.value, per / self.expected
        columns = torch.stack([per, per * root, per * root * v, square, square * v, square * v.square()], -1)
        total, w, wv, s, sv, svv = ((given.covariance.float() * there) @ columns.float()).unbind(-1)
        mean = given.mean.float()
        # Half a tenth of a pseudo-observation that agrees with expectation keeps both defined without neighbours.
        squares = (svv - mean * (2.0 * sv - mean * s)).clamp_min(0.0)
        return (squares + 0.05) / (total + 0.05), (wv - mean * w) / (total + 0.05), total

    def testimony(
        self, mean: Tensor, known: Tensor, distance: Tensor, there: Tensor, nearest: Tensor
    ) -> Tensor:
        """What the rows measured, less the mean at the place: (G, b, SAID). A linear prediction is the same whatever
        they agree or disagree on; this is where rare, skewed and short-lived values show. In float32, as the network is
        that hears it.

        Parameters
        ----------
        mean, known : (G, b) of r, and the share of its prior variance that the rows take away
        distance : (G, b, k) in spacings, `FAR` for rows that are not heard
        there : (G, b, k) 1 for rows that are heard, 0 for others
        nearest : (G, b, m) the rows that are nearest, those that are not heard last

        Returns
        -------
        means, log weights and spreads at every range and time; of the place's own history its mean, weight, length,
        recent mean, recent weight and spread; quantiles of the nearest. All tend to constants far from data.

        References
        ----------
        Sekulić, Kilibarda, Heuvelink, Nikolić and Bajat 2020, Random forest spatial interpolation
        """
        mean, known, distance, there = mean.float(), known.float(), distance.float(), there.float()
        v = self.value.float()
        weight = (typical_precision(self.counts) * self.present.to(self.counts.dtype)).float()
        lasting = [weight * torch.exp(-self.age / span).float() for span in TIMES]
        columns = torch.stack([w * power for w in lasting for power in (torch.ones_like(v), v, v * v)], -1)
        out: list[Tensor] = []
        for reach in RANGES:
            for part in (_fading(distance, reach) @ columns).split(3, dim=-1):
                out += _mean_weight_spread(part, mean)
        own = (distance < SAME).float()
        some = (weight > 0).to(weight.dtype)
        sums = own @ torch.stack([weight, weight * v, weight * v * v, lasting[0], lasting[0] * v, some], -1)
        m, w, spread = _mean_weight_spread(sums[..., :3], mean)
        recently = sums[..., 3]
        lately = (sums[..., 4] - mean * recently) / (recently + HOLD)
        out += [m, w, torch.log(sums[..., 5] + 0.5), lately, torch.log(recently + HOLD), spread]
        # Rows that are not heard count as the mean.
        about = v[:, None, :].expand_as(there).gather(-1, nearest) - mean[..., None]
        quantiles = _quantiles(about * there.gather(-1, nearest)) * known[..., None]
        return torch.cat([torch.stack(out, dim=-1), quantiles], dim=-1)

    def _busyness_close_by(self, distance: Tensor) -> Tensor:
        """Mean log count of the rows within a few spacings, 0 for the typical count: (G, b)."""
        close = _fading(distance, 3.5)
        return (close * self.busyness.float()[:, None, :]).sum(-1) / (close.sum(-1) + 0.1)


def _fading(distance: Tensor, reach: float) -> Tensor:
    """exp(-distance / reach); next to nothing, 1e-35, for rows that are not heard, which lie `FAR` away."""
    return (distance * (-1.0 / reach)).clamp_min_(-FADED).exp_()


def smallest(key: Tensor, m: int) -> Tensor:
    """Columns of the m smallest of each row of key (..., k), the smallest first, equal ones in the order of columns:
    (..., min(m, k)).

    Notes
    -----
    On a CPU by `neighbours.ranked`, four times as fast as torch's search.

    Examples
    --------
    >>> smallest(torch.tensor([3.0, 1.0, 2.0, 1.0]), 3).tolist()
    [1, 3, 2]
    """
    if key.device.type != "cpu":
        return key.sort(dim=-1, stable=True).indices[..., :m]
    return torch.from_numpy(np.sort(ranked(key.numpy()), axis=-1)[..., :m] & LOWER)


def _quantiles(values: Tensor) -> Tensor:
    """`SHARES` of values (..., m), between two of them on a line: (..., len(SHARES))."""
    ordered = (
        torch.from_numpy(np.sort(values.numpy(), axis=-1))
        if values.device.type == "cpu"
        else values.sort(-1).values
    )
    last = values.shape[-1] - 1
    below = [min(int(share * last), max(last - 1, 0)) for share in SHARES]
    part = torch.tensor(
        [share * last - i for share, i in zip(SHARES, below)], dtype=values.dtype, device=values.device
    )
    low, high = ordered[..., below], ordered[..., [min(i + 1, last) for i in below]]
    return low + part * (high - low)


def _mean_weight_spread(sums: Tensor, mean: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of weighted sums (..., 3) of values to the powers 0, 1 and 2, about a mean (...): the mean deviation, held to 0, the
    weight on a log scale, and the log spread, held to 0."""
    total, once, twice = sums.unbind(-1)
    first = once - mean * total
    second = twice - mean * (2.0 * once - mean * total)
    away = first / (total + HOLD)
    spread = (second - away * (2.0 * first - away * total)).clamp_min(0.0)
    return away, torch.log(total + HOLD), torch.log((spread + HOLD) / (total + HOLD))


def count_features(counts: Tensor) -> Tensor:
    """(N, 2): log n and n^(-1/2), through which noise and count shift may depend on the count."""
    return torch.stack([counts.log(), counts.rsqrt()], dim=-1)
