"""A scale bent where values pile up: the plans that lines are sold by, the ends of what instruments measure."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray

from geogp.transforms.curves import Transform

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Warp:
    """v = (1 - a) M(u) + a S(u), a = 1 / (1 + (n - 1) / blur), for averages of n measurements: S bends the scale of a single one, M
    that of averages of very many, in which what was sharp has blurred.

    M and S increase. Their slopes are linear between knots, and 1 at the first and the last and beyond: v is u but for a shift
    there, so that tails are what they were. Where a slope is above 1 the density of u is as many times higher.

    Parameters
    ----------
    knots : (K,) increasing, on the scale of u
    many, single : (K,) slopes of M and S there, positive, those of the ends 1
    shifts : M and S less u at the first knot
    blur : measurements after which half of what sets S apart from M has gone, less one

    Examples
    --------
    >>> warp = Warp(np.array([0.0, 1.0, 2.0]), np.ones(3), np.array([1.0, 4.0, 1.0]), (0.0, -0.5), blur=3.0)
    >>> warp.forward(np.array([-1.0, 1.0, 3.0]), 1.0).tolist()
    [-1.5, 2.0, 5.5]
    >>> warp.inverse(np.array([-1.5, 2.0, 5.5]), 1.0).tolist()
    [-1.0, 1.0, 3.0]

    References
    ----------
    Snelson, Rasmussen and Ghahramani 2004 (warped Gaussian processes)
    """

    knots: Float[np.ndarray, " K"]
    many: Float[np.ndarray, " K"]
    single: Float[np.ndarray, " K"]
    shifts: tuple[float, float]
    blur: float

    def strength(self, counts: ArrayLike | None) -> Array:
        """a of averages of so many measurements; None for single ones."""
        n = np.ones(()) if counts is None else np.asarray(counts, dtype=np.float64)
        return np.asarray(1.0 / (1.0 + (n - 1.0) / self.blur))

    def forward(self, u: ArrayLike, strength: ArrayLike) -> Array:
        """v at u (N,) or (N, K) for strengths (N,), or one of all."""
        _, beyond, i, share, a = self._at(u, strength)
        low, high = self._slopes(a, i)
        rise = np.diff(self.knots)[i] * share * (low + 0.5 * (high - low) * share)
        return np.asarray(self._start(a, i) + rise + beyond)

    def slope(self, u: ArrayLike, strength: ArrayLike) -> Array:
        """dv/du."""
        inside, _, i, share, a = self._at(u, strength)
        low, high = self._slopes(a, i)
        return np.where(inside, low + (high - low) * share, 1.0)

    def inverse(self, v: ArrayLike, strength: ArrayLike) -> Array:
        """u at v."""
        v, a = np.asarray(v, dtype=np.float64), _beside(strength, np.ndim(v))
        last = len(self.knots) - 1
        ends = [self._start(a, np.array(k)) for k in (0, last)]
        held = np.clip(v, *ends)
        low = self._piece(held, a)
        first, second = self._slopes(a, low)
        width = np.diff(self.knots)[low]
        rise = np.maximum(held - self._start(a, low), 0.0) / width
        share = 2.0 * rise / (first + np.sqrt(first * first + 2.0 * (second - first) * rise))
        return np.asarray(self.knots[low] + width * share + (v - held))

    def scaled(self, mean: float, sd: float) -> "Warp":
        """The same where u and v are `mean` + `sd` times what they were."""
        return replace(self, knots=mean + sd * self.knots, shifts=(sd * self.shifts[0], sd * self.shifts[1]))

    def faded(self, part: float) -> "Warp":
        """Such a part of what it adds to u: 0 bends nothing.

        >>> Warp(np.arange(2.0), np.ones(2), np.ones(2), (0.0, 3.0), blur=1.0).faded(0.5).forward(np.zeros(1), 1.0).tolist()
        [1.5]
        """
        many, single = (slopes + (1.0 - part) * (1.0 - slopes) for slopes in (self.many, self.single))
        of_many, of_single = self.shifts
        return replace(self, many=many, single=single, shifts=(part * of_many, part * of_single))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; `from_dict` makes the same again."""
        return {
            "knots": self.knots.tolist(),
            "many": self.many.tolist(),
            "single": self.single.tolist(),
            "shifts": list(self.shifts),
            "blur": self.blur,
        }

    @classmethod
    def from_dict(cls, told: dict[str, Any]) -> "Warp":
        """The warp that `to_dict` described.

        Raises
        ------
        ValueError
            what is none: slopes that are not positive, knots that do not increase.
        """
        knots, many, single, shifts = (
            np.asarray(told[name], dtype=np.float64) for name in ("knots", "many", "single", "shifts")
        )
        blur = float(told["blur"])
        alike = knots.ndim == 1 and knots.shape == many.shape == single.shape and shifts.shape == (2,)
        numbers = alike and all(np.isfinite(part).all() for part in (knots, many, single, shifts))
        if not numbers or len(knots) < 2 or not (np.diff(knots) > 0).all() or not 0.0 < blur < np.inf:
            raise ValueError("a warp's knots do not increase, or differ in number from its slopes")
        if not ((many > 0).all() and (single > 0).all()):
            raise ValueError("a warp's slopes are not positive")
        return cls(knots, many, single, (float(shifts[0]), float(shifts[1])), blur)

    # -- pieces ------------------------------------------------------------------------------------

    def _at(self, u: ArrayLike, strength: ArrayLike) -> tuple[Array, Array, NDArray[np.int64], Array, Array]:
        """Whether u lies between the ends, how far it lies beyond them, its piece, its share of that, and the strength."""
        u = np.asarray(u, dtype=np.float64)
        a = _beside(strength, u.ndim)
        held = np.clip(u, self.knots[0], self.knots[-1])
        with np.errstate(invalid="ignore"):  # an infinity beyond itself
            beyond = np.where(np.isinf(u), u, u - held)
        i = np.clip(np.searchsorted(self.knots, held, side="right") - 1, 0, len(self.knots) - 2)
        share = (held - self.knots[i]) / np.diff(self.knots)[i]
        return beyond == 0.0, beyond, i, share, a

    def _piece(self, v: Array, a: Array) -> NDArray[np.int64]:
        """The piece that holds v."""
        last = len(self.knots) - 1
        if a.ndim == 0:
            starts = self._start(a, np.arange(last))
            return np.clip(np.searchsorted(starts, v, side="right") - 1, 0, last - 1)
        # By halves: where a piece starts differs with the strength.
        low, high = np.zeros(v.shape, dtype=np.int64), np.full(v.shape, last)
        while ((high - low) > 1).any():
            middle = (low + high) // 2
            before = self._start(a, middle) <= v
            low, high = np.where(before, middle, low), np.where(before, high, middle)
        return low

    def _slopes(self, a: Array, i: NDArray[np.int64]) -> tuple[Array, Array]:
        """dv/du where piece i starts and where it ends."""
        apart = self.single - self.many
        return self.many[i] + a * apart[i], self.many[i + 1] + a * apart[i + 1]

    def _start(self, a: Array, i: NDArray[np.int64]) -> Array:
        """v at knot i."""
        m, s = (
            self.knots[0] + shift + np.append(0.0, np.cumsum(0.5 * (k[1:] + k[:-1]) * np.diff(self.knots)))
            for k, shift in zip((self.many, self.single), self.shifts)
        )
        return np.asarray(m[i] + a * (s - m)[i])


def _beside(strength: ArrayLike, ndim: int) -> Array:
    """Strengths (N,) beside values (N,) or (N, K); one number where all are alike."""
    a = np.asarray(strength, dtype=np.float64)
    if a.size and (a == a.flat[0]).all():
        return a.reshape(-1)[0]
    return a[:, None] if a.ndim == 1 and ndim == 2 else a


@dataclass(frozen=True)
class Warped:
    """A target's transform, and what a warp makes of it for averages of one count or of (N,): see `geogp.transforms.Transform`.

    Examples
    --------
    >>> from geogp.transforms.curves import Identity
    >>> warp = Warp(np.array([0.0, 1.0, 2.0]), np.ones(3), np.array([1.0, 4.0, 1.0]), (0.0, 0.0), blur=3.0)
    >>> t = Warped(Identity(), warp, warp.strength([1.0, 4.0]))
    >>> t.forward(np.array([1.0, 1.0])).tolist()
    [2.5, 1.75]
    """

    inner: Transform
    warp: Warp
    strength: Float[np.ndarray, " *N"]

    def rows(self, index: NDArray) -> "Warped":
        """The same at some of the places."""
        return self if np.size(self.strength) == 1 else replace(self, strength=self.strength[index])

    def forward(self, y: Array) -> Array:
        return self.warp.forward(self.inner.forward(y), self.strength)

    def inverse(self, u: Array) -> Array:
        return self.inner.inverse(self.warp.inverse(u, self.strength))

    def log_derivative(self, y: Array) -> Array:
        bent = self.warp.slope(self.inner.forward(y), self.strength)
        return np.asarray(np.log(bent) + self.inner.log_derivative(y))

    @property
    def growth(self) -> tuple[float, float]:
        return self.inner.growth

    def to_dict(self) -> dict:
        return {"name": "warped", "inner": self.inner.to_dict()}

    def words(self, of: str) -> str:
        return f"{self.inner.words(of)}, bent"
