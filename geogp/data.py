"""The ground floor: rows to learn from, and what a model says of places."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Num
from numpy.typing import NDArray
from torch import Tensor

from geogp.errors import MOST_VALUE, InvalidInput, NumericalFailure, check_quarter, numbers_of
from geogp.predictive import standard_moments

Array = NDArray[np.float64]

#: Inputs that differ by less cannot be divided by and squared.
LEAST_WIDTH = 1e-100
#: Rows taken through a model at once: 2,048 to 4,096 of them keep the activations of a network in cache.
CHUNK = 4096


def crs_of(X: Any) -> str | None:
    """The CRS of points (WKT), None of anything else."""
    crs = getattr(X, "crs", None)
    return crs.to_wkt() if hasattr(X, "geometry") and crs is not None else None


def check_crs(X: Any, fitted: str | None) -> None:
    """Refuse points in another CRS than that of the fit (WKT, None where it was not said).

    Raises
    ------
    InvalidInput
    """
    crs = getattr(X, "crs", None)
    if fitted is None or not hasattr(X, "geometry") or crs is None or crs == fitted:
        return
    raise InvalidInput(
        f"the points are in {crs.name}, and the model was fitted to points in another CRS: give points.to_crs(model.crs_)."
    )


def features_of(X: Any, y: Any = None) -> Any:
    """X, or of points (a GeoSeries, a GeoDataFrame) their projected coordinates (n, 2) and then the frame's other columns.

    Known by what they offer, since geopandas is not needed here.

    Raises
    ------
    InvalidInput
        X of one dimension; a table with the column y that is to be predicted; a column that holds no numbers; points in degrees or without CRS, geometries that are no points, a missing one.

    Examples
    --------
    >>> features_of([[1.0, 2.0]])
    [[1.0, 2.0]]
    """
    name = getattr(y, "name", None)
    if name is not None and name in getattr(X, "columns", ()):
        raise InvalidInput(
            f"the inputs still hold the column {name!r} that is to be predicted; give X.drop(columns={name!r})."
        )
    if not (hasattr(X, "geometry") and hasattr(X, "crs") and hasattr(X, "geom_type")):
        if getattr(X, "ndim", 2) == 1 or (isinstance(X, list | tuple) and len(X) and np.isscalar(X[0])):
            raise InvalidInput(
                f"X has one dimension, of {len(X)} values, and takes a row a measurement. Reshape your data: X.reshape(-1, 1) "
                "makes them a column of places along a line, X.reshape(1, -1) a single row."
            )
        _check_columns(X)
        return X
    if X.crs is None or X.crs.is_geographic:
        what = "have no CRS" if X.crs is None else f"are in degrees ({X.crs.name})"
        raise InvalidInput(
            f"the points {what}, and a model takes projected coordinates: give points.to_crs(points.estimate_utm_crs())."
        )
    shapes = X.geometry
    if not bool((X.geom_type == "Point").all()) or bool(shapes.is_empty.any()):
        raise InvalidInput("the geometries must all be points; take centroids, or drop rows without one.")
    xy = np.column_stack([shapes.x.to_numpy(), shapes.y.to_numpy()])
    if X is shapes or not hasattr(X, "columns"):
        return xy
    others = X.drop(columns=shapes.name)
    _check_columns(others)
    return np.column_stack([xy, others.to_numpy(dtype=np.float64)]) if others.shape[1] else xy


_INSTEAD = "drop the column, or give numbers in its place"


def _check_columns(X: Any) -> None:
    """Refuse dates, words and complex numbers in a table X (n, d), frame or array or list; what has no columns is left."""
    if hasattr(X, "iloc") and hasattr(X, "dtypes"):
        names = list(X.columns)
        if twice := [name for name in names if names.count(name) > 1]:
            raise InvalidInput(f"X has several columns called {twice[0]!r}; give each a name of its own.")
        for j, (name, dtype) in enumerate(zip(X.columns, X.dtypes)):
            if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
                continue
            column, called = X.iloc[:, j], f"column {name!r} of X"
            values = numbers_of(column[column.notna()], called, _INSTEAD)
            if len(values) < len(column):
                raise InvalidInput(_gaps(len(column) - len(values), len(column), called))
        return
    if hasattr(X, "dtype") and getattr(X.dtype, "kind", "f") not in "cMmOUST":
        return
    try:
        table = np.asarray(X)
    except (TypeError, ValueError):
        return
    if table.ndim != 2 or table.dtype.kind in "biuf":
        return
    for j, column in enumerate(table.T):
        # Other objects are told by scikit-learn, whose checks know its words.
        if column.dtype.kind != "O" or any(
            isinstance(v, str | complex) or hasattr(v, "year") for v in column
        ):
            numbers_of(column, f"column {j} of X", _INSTEAD)


def _gaps(n: int, rows: int, name: str, what: str = "NaN") -> str:
    return f"{name} holds {what} in {n:,} of {rows:,} rows; drop those rows, or fill them in."


def writable(values: Any) -> Array:
    """Numbers that torch may share: those of a data frame are locked, those of a reversed array run backwards: both are copied."""
    return np.require(values, dtype=np.float64, requirements=["C", "W"])


def placed(X: Array, name: str = "X", columns: Sequence[str] | None = None) -> Array:
    """Places (n, d) as they are, none of them NaN or too far away to be squared; what their columns are called.

    Raises
    ------
    InvalidInput
    """
    bad = np.argwhere(~(np.abs(X) <= MOST_VALUE))
    if len(bad):
        j = int(bad[0, 1])
        for what, wrong in (("NaN", np.isnan(X)), ("infinity", np.isinf(X))):
            if name == "X" and wrong[tuple(bad[0])]:
                called = f"column {repr(columns[j]) if columns else j} of X"
                raise InvalidInput(_gaps(int(wrong[:, j].sum()), len(X), called, what))
        raise InvalidInput(
            f"{name} holds {X[tuple(bad[0])]:g}, and at most {MOST_VALUE:g} are possible; drop that place, or take another unit."
        )
    return X


def spread_out(X: Array) -> Array:
    """Places (n, d) as they are, whose columns stand still or differ by what can be divided by and squared.

    Raises
    ------
    InvalidInput
    """
    wide = np.ptp(X, axis=0)
    thin = np.flatnonzero((wide > 0) & (wide < LEAST_WIDTH))
    if len(thin):
        raise InvalidInput(
            f"column {thin[0]} of X spans {wide[thin[0]]:g}, and at least {LEAST_WIDTH:g} is needed; take another unit."
        )
    return X


def finite(values: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """What a model says, as it is: a row of X that its arithmetic does not reach is never NaN in silence.

    Raises
    ------
    NumericalFailure
    """
    if not bool(torch.isfinite(values).all()):
        raise NumericalFailure(
            "The model says NaN or infinity of some row of X; look for values in X far beyond those it was fitted to, or fit "
            "it anew on another scale."
        )
    return values


def quarter_to_years(quarter: str) -> float:
    """The middle of a quarter, in years.

    Raises
    ------
    InvalidInput

    Examples
    --------
    >>> quarter_to_years("2023Q4")
    2023.875
    """
    check_quarter(quarter)
    year, _, part = quarter.upper().partition("Q")
    return int(year) + (int(part) - 0.5) / 4.0


def n_batches(n: int, size: int) -> int:
    """Batches of `size` in an epoch of n rows: a last one below half of it is dropped when there are others.

    Examples
    --------
    >>> [n_batches(n, 10) for n in (4, 10, 14, 15, 30)]
    [1, 1, 1, 2, 3]
    """
    whole, rest = divmod(n, size)
    return max(1, whole + (rest > 0 and rest >= size // 2))


@dataclass(frozen=True)
class Data:
    """Rows to learn from: X (n, D) float64 raw inputs, y (n,) float32 standardised, counts (n,) or None."""

    X: Float[Tensor, "n D"]
    y: Float[Tensor, " n"]
    counts: Num[Tensor, " n"] | None = None

    def __len__(self) -> int:
        return len(self.y)

    def rows(self, index: Tensor) -> "Data":
        counts = None if self.counts is None else self.counts[index]
        return Data(self.X[index], self.y[index], counts)

    def chunks(self, size: int = CHUNK) -> Iterator["Data"]:
        """The rows in order, at most `size` of them at a time."""
        for i in range(0, len(self), size):
            counts = None if self.counts is None else self.counts[i : i + size]
            yield Data(self.X[i : i + size], self.y[i : i + size], counts)

    def shuffled(self, size: int, generator: torch.Generator) -> Iterator["Data"]:
        """One epoch of batches of `size` rows, `n_batches` of them."""
        order = torch.randperm(len(self), generator=generator).to(self.y.device)
        for i in range(n_batches(len(self), size)):
            yield self.rows(order[i * size : (i + 1) * size])

    def to(self, device: torch.device) -> "Data":
        counts = None if self.counts is None else self.counts.to(device)
        return Data(self.X.to(device), self.y.to(device), counts)


@dataclass(frozen=True)
class Moments:
    """Mean, latent variance and noise variance at N inputs, each (N,), kept apart: a band for the surface,
    an interval for a new measurement and coverage each need a different sum.

    in_units : the mean in target units, where a method fixes it there to the bit; else None
    degrees_of_freedom : (N,), or None where a new observation is Gaussian. A Student-t observation has the
        squared scale latent + noise variance; its variance is nu / (nu - 2) times that
    log_skewness : (N,), or None where a new observation is symmetric; see `Predictive`. The mean is that of
        the new observation either way
    peak : of a second peak beside the first, which latent and noise variance, degrees of freedom and skewness are then of: (3, N)
        its share, how far beyond the first one's location it lies, and its noise variance; or None
    bent : (N,) how strongly the engine's `warp` bends the scale on which a new observation is so, or None where it has none: all
        the above are on that scale
    """

    mean: Float[Tensor, " N"]
    latent_variance: Float[Tensor, " N"]
    noise_variance: Float[Tensor, " N"]
    prior_variance: Float[Tensor, " N"]
    in_units: Float[Tensor, " N"] | None = None
    degrees_of_freedom: Float[Tensor, " N"] | None = None
    log_skewness: Float[Tensor, " N"] | None = None
    bent: Float[Tensor, " N"] | None = None
    peak: Float[Tensor, "3 N"] | None = None

    #: Rows of `stack`.
    PLANES: ClassVar[int] = 10

    def stack(self) -> Float[Tensor, "10 N"]:
        """(10, N) float32, what a grid keeps of each pixel: infinite degrees of freedom for a Gaussian, and
        skewness 0 for a symmetric observation, and 0 where no scale is bent and for a second peak where there is none."""
        nu, skew = self.degrees_of_freedom, self.log_skewness
        nu = torch.full_like(self.mean, torch.inf) if nu is None else nu
        skew = torch.zeros_like(self.mean) if skew is None else skew
        bent = torch.zeros_like(self.mean) if self.bent is None else self.bent
        peak = self.mean.new_zeros(3, len(self.mean)) if self.peak is None else self.peak
        one = [self.mean, self.latent_variance, self.noise_variance, self.prior_variance, nu, skew, bent]
        return torch.cat([torch.stack(one).float(), peak.float()])

    def checked(self) -> "Moments":
        """These, whose mean and variance of the surface are numbers; raises `NumericalFailure` for others. A mean that is given
        from outside may have gaps."""
        if self.in_units is None:
            finite(self.mean)
        finite(self.latent_variance)
        return self

    @classmethod
    def unstack(cls, values: Float[Tensor, "10 N"]) -> "Moments":
        """What `stack` made (10, N)."""
        mean, latent, noise, prior, nu, skew, bent = values[:7]
        return cls(
            mean,
            latent,
            noise,
            prior,
            degrees_of_freedom=None if bool(torch.isinf(nu).all()) else nu,
            log_skewness=skew if bool(skew.any()) else None,
            bent=bent if bool(bent.any()) else None,
            peak=values[7:] if bool(values[7].any()) else None,
        )

    @classmethod
    def joined(cls, parts: Sequence["Moments"]) -> "Moments":
        """Moments of places given in parts, in order; all parts say the same kinds of things."""
        if len(parts) == 1:
            return parts[0]

        def whole(name: str) -> Any:
            columns = [getattr(part, name) for part in parts]
            return None if columns[0] is None else torch.cat(columns, dim=-1)

        return cls(*(whole(f.name) for f in fields(cls)))

    def new_variance(self) -> Float[Tensor, " N"]:
        """(N,) variance of a new observation."""
        total = self.latent_variance + self.noise_variance
        shift, square = (torch.as_tensor(v, dtype=total.dtype) for v in self.standard_moments())
        if self.peak is None:
            return total * square
        share, offset, noise = self.peak
        apart = offset - total.sqrt() * shift
        second = self.latent_variance + noise + (1.0 - share) * apart.square()
        return (1.0 - share) * total * square + share * second

    def location(self) -> Float[Tensor, " N"]:
        """(N,) mode of a new observation, of its first peak: its mean less what skewness and the second peak add."""
        scale = (self.latent_variance + self.noise_variance).sqrt()
        more = scale * torch.as_tensor(self.standard_moments()[0], dtype=scale.dtype)
        if self.peak is not None:
            more = more + self.peak[0] * (self.peak[1] - more)
        return self.mean - more

    def standard_moments(self) -> tuple[Float[np.ndarray, " N"] | float, Float[np.ndarray, " N"] | float]:
        """Mean and variance of a new observation of the first peak at mode 0 and scale 1."""
        nu, skew = self.degrees_of_freedom, self.log_skewness
        return standard_moments(
            None if nu is None else nu.double().numpy(), None if skew is None else skew.double().numpy()
        )


def counts_tensor(counts: Float[np.ndarray, " n"] | None) -> Float[Tensor, " n"] | None:
    """Counts as engines take them."""
    return None if counts is None else torch.as_tensor(counts, dtype=torch.float32)
