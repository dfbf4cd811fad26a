"""Increasing maps from the target y to the working scale u on which the model is Gaussian or Student-t."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import boxcox1p, gammaln, inv_boxcox1p

from geogp.errors import InvalidInput

Array = NDArray[np.float64]

#: What `transform_for` knows.
NAMES = ("identity", "log10", "yeo-johnson", "auto")
#: Rows that choose, and the gain in log likelihood a row, and in all, that a curved scale must bring: the second is the
#: 1% point of a likelihood ratio of one parameter, which few rows reach by chance.
ROWS, WORTH, WORTH_IN_ALL = 4000, 0.02, 3.3
#: Rows for each column whose differences explain something.
A_COLUMN = 10
#: Powers of Yeo and Johnson under which u has no end, so that densities on y hold all their mass.
POWERS = (0.0, 2.0)
#: Degrees of freedom tried for the residuals; the last is a Gaussian.
TAILS = (2.5, 3.5, 5.0, 8.0, 15.0, 1e6)


class Transform(Protocol):
    """u = forward(y), increasing; y = inverse(u); log du/dy.

    growth : the powers of |u| with which |y| grows in the lower and the upper tail: inf for an exponential, 0 for a
        bounded one. A Student-t with ν degrees of freedom has a mean on the scale of y where both are below ν
    """

    @property
    def growth(self) -> tuple[float, float]: ...

    def forward(self, y: Array) -> Array: ...

    def inverse(self, u: Array) -> Array: ...

    def log_derivative(self, y: Array) -> Array: ...

    def to_dict(self) -> dict: ...

    def words(self, of: str) -> str:
        """What u is, where y is `of`."""


@dataclass(frozen=True)
class Identity:
    """u = y.

    Examples
    --------
    >>> float(Identity().forward(np.array(2.0)))
    2.0
    """

    def forward(self, y: Array) -> Array:
        return y

    def inverse(self, u: Array) -> Array:
        return u

    def log_derivative(self, y: Array) -> Array:
        return np.zeros_like(y)

    @property
    def growth(self) -> tuple[float, float]:
        return 1.0, 1.0

    def to_dict(self) -> dict:
        return {"name": "identity"}

    def words(self, of: str) -> str:
        return of


@dataclass(frozen=True)
class YeoJohnson:
    """The power family for targets of either sign (Yeo and Johnson 2000), on (y - centre) / scale.

    power = 1 is the identity; below one it shortens the upper tail, above one the lower. Outside [0, 2] u has an end
    that distributions reach beyond, so that their density on y lacks mass: `transform_for` chooses no such power.

    Examples
    --------
    >>> t = YeoJohnson(power=0.5)
    >>> y = np.array([-2.0, 0.0, 3.0])
    >>> bool(np.allclose(t.inverse(t.forward(y)), y))
    True
    """

    power: float
    centre: float = 0.0
    scale: float = 1.0

    def forward(self, y: Array) -> Array:
        z = (np.asarray(y, float) - self.centre) / self.scale
        up = boxcox1p(np.maximum(z, 0.0), self.power)
        down = -boxcox1p(np.maximum(-z, 0.0), 2.0 - self.power)
        return np.where(z >= 0, up, down)

    def inverse(self, u: Array) -> Array:
        # A bounded branch (power < 0, or > 2 below zero) has no value beyond its end: the end itself.
        u = np.asarray(u, float)
        up = inv_boxcox1p(self._within(np.maximum(u, 0.0), self.power), self.power)
        down = -inv_boxcox1p(self._within(np.maximum(-u, 0.0), 2.0 - self.power), 2.0 - self.power)
        return self.centre + self.scale * np.where(u >= 0, up, down)

    @staticmethod
    def _within(u: Array, power: float) -> Array:
        return np.minimum(u, (1.0 - 1e-12) / -power) if power < 0 else u

    def log_derivative(self, y: Array) -> Array:
        z = (np.asarray(y, float) - self.centre) / self.scale
        return np.sign(z) * (self.power - 1.0) * np.log1p(np.abs(z)) - np.log(self.scale)

    @property
    def growth(self) -> tuple[float, float]:
        below, above = (
            0.0 if power < 0 else math.inf if power == 0 else 1.0 / power
            for power in (2.0 - self.power, self.power)
        )
        return below, above

    def to_dict(self) -> dict:
        return {"name": "yeo-johnson", "power": self.power, "centre": self.centre, "scale": self.scale}

    def words(self, of: str) -> str:
        return f"power of {of}"


@dataclass(frozen=True)
class Log10:
    """u = log10 y for positive targets; a y that is not positive lies below every u.

    Examples
    --------
    >>> float(Log10().inverse(np.array(2.0)))
    100.0
    """

    def forward(self, y: Array) -> Array:
        y = np.asarray(y, float)
        return np.where(y > 0, np.log10(np.where(y > 0, y, 1.0)), -np.inf)

    def inverse(self, u: Array) -> Array:
        return 10.0 ** np.asarray(u, float)

    def log_derivative(self, y: Array) -> Array:
        y = np.asarray(y, float)
        # Of what is not positive the density is 0.
        return np.where(y > 0, -np.log(np.where(y > 0, y, 1.0)) - math.log(math.log(10.0)), -np.inf)

    @property
    def growth(self) -> tuple[float, float]:
        return 0.0, math.inf

    def to_dict(self) -> dict:
        return {"name": "log10"}

    def words(self, of: str) -> str:
        return f"log10 of {of}"


@dataclass(frozen=True)
class Affine:
    """u = offset + factor * inner(y), factor > 0."""

    inner: Transform
    offset: float
    factor: float

    def forward(self, y: Array) -> Array:
        return self.offset + self.factor * self.inner.forward(y)

    def inverse(self, u: Array) -> Array:
        return self.inner.inverse((np.asarray(u, float) - self.offset) / self.factor)

    def log_derivative(self, y: Array) -> Array:
        return self.inner.log_derivative(y) + math.log(self.factor)

    @property
    def growth(self) -> tuple[float, float]:
        return self.inner.growth

    def to_dict(self) -> dict:
        return {
            "name": "affine",
            "inner": self.inner.to_dict(),
            "offset": self.offset,
            "factor": self.factor,
        }

    def words(self, of: str) -> str:
        return f"stretched {self.inner.words(of)}"


@dataclass(frozen=True)
class Straightened:
    """A curve that goes on along its tangent beyond a value: nothing was measured there that would tell how it bends.

    inner : a curve whose inverse grows without bound at one end, and there faster than u
    beyond : value of y from which on that end is straight

    So a Student-t on the scale of u has a mean on that of y wherever it has one on that of u.

    Examples
    --------
    >>> t = Straightened(Log10(), beyond=100.0)
    >>> t.inverse(np.array([1.0, 2.0, 3.0])).round(1).tolist()
    [10.0, 100.0, 330.3]
    """

    inner: Transform
    beyond: float

    @cached_property
    def _end(self) -> tuple[float, float]:
        """u and du/dy where the straight end begins."""
        at = np.asarray(self.beyond, float)
        return float(self.inner.forward(at)), math.exp(float(self.inner.log_derivative(at)))

    def _outside(self, v: Array, end: float) -> NDArray[np.bool_]:
        return v > end if self.inner.growth[1] > 1.0 else v < end

    def forward(self, y: Array) -> Array:
        u, slope = self._end
        y = np.asarray(y, float)
        out = self._outside(y, self.beyond)
        return np.where(out, u + slope * (y - self.beyond), self.inner.forward(np.where(out, self.beyond, y)))

    def inverse(self, u: Array) -> Array:
        end, slope = self._end
        u = np.asarray(u, float)
        out = self._outside(u, end)
        return np.where(out, self.beyond + (u - end) / slope, self.inner.inverse(np.where(out, end, u)))

    def log_derivative(self, y: Array) -> Array:
        y = np.asarray(y, float)
        return self.inner.log_derivative(np.where(self._outside(y, self.beyond), self.beyond, y))

    @property
    def growth(self) -> tuple[float, float]:
        below, above = self.inner.growth
        return min(below, 1.0), min(above, 1.0)

    def to_dict(self) -> dict:
        return {"name": "straightened", "inner": self.inner.to_dict(), "beyond": self.beyond}

    def words(self, of: str) -> str:
        return self.inner.words(of)


def straightened(curve: Transform, y: Float[np.ndarray, " n"]) -> Transform:
    """A curve, straight beyond the values y (n,) at the end where its inverse grows faster than u; else the curve itself.

    Examples
    --------
    >>> straightened(Log10(), np.array([1.0, 2.0, 5.0])).beyond
    5.0
    >>> straightened(Identity(), np.array([1.0, 2.0, 5.0]))
    Identity()
    """
    below, above = curve.growth
    if max(below, above) <= 1.0:
        return curve
    return Straightened(curve, float(y.max() if above > 1.0 else y.min()))


def from_dict(d: dict) -> Transform:
    """The transform that `to_dict` described.

    Raises
    ------
    ValueError
        a parameter that is no finite number.
    """
    odd = {k: v for k, v in d.items() if k not in ("name", "inner") and not _is_number(v)}
    if odd:
        raise ValueError(f"a transform's {next(iter(odd))} is {next(iter(odd.values()))!r}")
    fields: dict[str, Any] = {k: v for k, v in d.items() if k != "name"}
    if "inner" in fields:
        fields["inner"] = from_dict(fields["inner"])
    known = {
        "identity": Identity,
        "yeo-johnson": YeoJohnson,
        "log10": Log10,
        "affine": Affine,
        "straightened": Straightened,
    }
    return known[d["name"]](**fields)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def transform_for(
    name: str,
    y: Float[np.ndarray, " n"],
    places: Float[np.ndarray, "n d"] | None = None,
    covariates: Float[np.ndarray, "n p"] | None = None,
    *,
    seed: int = 0,
) -> Transform:
    """The scale on which targets are modelled; curved ones keep the mean and sd of y, and go on straight beyond it (`straightened`).

    Parameters
    ----------
    name : "identity", "log10", "yeo-johnson" (its power by maximum likelihood), or "auto": the one under which
        what neither the neighbours explain nor, linearly, how rows differ from theirs is likeliest as a Student-t, the
        Jacobian included; a curved scale must gain .02 a row, and 3.3 in all
    y : (n,) training targets
    places : (n, d) in which rows are near each other, or None to take the targets as they come
    covariates : (n, p) in which neighbours may differ, or None

    Raises
    ------
    InvalidInput
        an unknown name; log10 of targets that are not positive.

    Notes
    -----
    O(n log n) for the neighbours, O(ROWS) a candidate. Box and Cox 1964; Yeo and Johnson 2000.

    Examples
    --------
    >>> y = 10.0 ** np.random.default_rng(0).normal(size=3000)
    >>> transform_for("auto", y).words("speed")
    'stretched log10 of speed'
    """
    if name not in NAMES:
        raise InvalidInput(f"target_transform must be one of {', '.join(NAMES)}; got {name!r}.")
    sd = float(y.std())
    if name == "identity" or len(y) < 20 or not spread(y):
        return Identity()
    if name == "log10" and not (y > 0).all():
        raise InvalidInput(
            f"target_transform 'log10' needs positive targets; got {float(y.min()):g}: take 'yeo-johnson' or 'auto'."
        )
    rows = np.sort(np.random.default_rng(seed).permutation(len(y))[:ROWS])
    near, explained = None, np.zeros((len(rows), 0))
    if places is not None:
        near = _nearest(places, rows)
        columns = places if covariates is None else np.column_stack([places, covariates])
        explained = _basis(columns[rows] - columns[near].mean(axis=1))

    def quality(transform: Transform) -> float:
        u = transform.forward(y)
        left = u[rows] - (u.mean() if near is None else u[near].mean(axis=1))
        left = left - explained @ (explained.T @ left)
        return _student_likelihood(left) + float(transform.log_derivative(y[rows]).mean())

    def power(p: float) -> YeoJohnson:
        return YeoJohnson(float(p), float(y.mean()), sd)

    # The simplest first; one that curves more must be worth it.
    candidates: list[Transform] = []
    if name == "auto":
        candidates.append(Identity())
    if name in ("log10", "auto") and (y > 0).all():
        candidates.append(Log10())
    if name in ("yeo-johnson", "auto"):
        found = minimize_scalar(lambda p: -quality(power(p)), bounds=POWERS, method="bounded")
        candidates.append(power(found.x))
    worth = max(WORTH, WORTH_IN_ALL / len(rows))
    best = candidates.pop()
    reached = quality(best)
    for simpler in reversed(candidates):
        if reached < (q := quality(simpler)) + worth:
            best, reached = simpler, q
    if isinstance(best, Identity):
        return best
    best = straightened(best, y)
    u = best.forward(y)
    factor = sd / float(u.std())
    return Affine(best, float(y.mean()) - factor * float(u.mean()), factor)


def spread(y: Float[np.ndarray, " n"]) -> bool:
    """Whether targets differ by more than rounding, in whatever unit: dividing by less would amplify its errors.

    Examples
    --------
    >>> spread(np.array([1.0, 2.0]) * 1e-12), spread(np.full(3, 0.1))
    (True, False)
    """
    return bool(y.std() > 1e-10 * np.abs(y).max())


def quartiles_from(told: Any) -> tuple[float, float, float] | None:
    """Quartiles as a run's facts have them, None where they have none.

    Raises
    ------
    ValueError
        something else.
    """
    if told is None:
        return None
    if not isinstance(told, list) or len(told) != 3 or not all(_is_number(v) for v in told):
        raise ValueError(f"the target's quartiles are {told!r}")
    return float(told[0]), float(told[1]), float(told[2])


def unit_of(y: Float[np.ndarray, " n"]) -> float:
    """What targets are divided by: their standard deviation; where they do not differ their size, and 1 where they are 0.

    Examples
    --------
    >>> unit_of(np.array([1.0, 3.0])), unit_of(np.full(3, -0.1)), unit_of(np.zeros(3))
    (1.0, 0.1, 1.0)
    """
    return float(y.std()) if spread(y) else float(np.abs(y).max()) or 1.0


def quartiles(
    y: Float[np.ndarray, " n"], counts: Float[np.ndarray, " n"] | None = None
) -> tuple[float, float, float]:
    """The quarter, half and three quarters points of values (n,), each counted as often as `counts` (n,) says.

    Examples
    --------
    >>> quartiles(np.array([4.0, 1.0, 2.0, 3.0, 1e6]))
    (2.0, 3.0, 4.0)
    >>> quartiles(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 20.0]))
    (3.0, 3.0, 3.0)
    """
    order = np.argsort(y, kind="stable")
    weight = np.ones(len(y)) if counts is None else np.asarray(counts, dtype=np.float64)[order]
    share = np.cumsum(weight) / weight.sum()
    low, half, high = (
        float(y[order[np.searchsorted(share, p - 1e-12).clip(max=len(y) - 1)]]) for p in (0.25, 0.5, 0.75)
    )
    return low, half, high


def _nearest(places: Array, rows: NDArray[np.int64], k: int = 8) -> NDArray[np.int64]:
    """The k rows nearest to each of `rows`, itself not among them: (m, k)."""
    from scipy.spatial import cKDTree

    spread = places.std(axis=0)
    P = (places - places.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    k = min(k, len(P) - 1)
    index = cKDTree(P).query(P[rows], k=k + 1)[1]
    # Of many rows at one place the row itself need not come first, or at all: then the last one goes.
    own = index == rows[:, None]
    own[~own.any(axis=1), -1] = True
    return index[~own].reshape(len(rows), k)


def _basis(columns: Array) -> Array:
    """An orthonormal basis of the columns (m, p), less their means; of none where they are more than a tenth of the rows: (m, q)."""
    m, p = columns.shape
    if m < A_COLUMN * p:
        return np.zeros((m, 0))
    away = columns - columns.mean(axis=0)
    size = np.sqrt(np.square(away).mean(axis=0))
    left, values, _ = np.linalg.svd(away / np.where(size > 0, size, 1.0), full_matrices=False)
    return left[:, values > 1e-8 * max(float(values.max()), 1e-300)]


def _student_likelihood(residual: Array) -> float:
    """Mean log likelihood of centred residuals under the best Student-t of `TAILS`; the scale by EM."""
    r = residual - np.median(residual)
    size = float(np.abs(r).max()) or 1.0
    r = r / size  # in whatever unit
    best = -math.inf
    for nu in TAILS:
        s2 = float(np.mean(r * r)) + 1e-300
        for _ in range(30):
            s2 = float(np.mean((nu + 1.0) / (nu + r * r / s2) * r * r)) + 1e-300
        constant = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * nu) - 0.5 * math.log(nu * math.pi * s2)
        best = max(best, float(np.mean(constant - 0.5 * (nu + 1.0) * np.log1p(r * r / (s2 * nu)))))
    return best - math.log(size)
