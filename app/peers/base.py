"""What every peer shares: checked rows, standardised targets, a held-out tenth when none is given."""

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geogp.errors import seed_of

if TYPE_CHECKING:
    from geogp.predictive import Predictive

Array = NDArray[np.float64]


class UnknownPeer(ValueError):
    """A name that is not in the table of peers."""

    exit_code = 2


class MissingPackage(ValueError):
    """A peer whose package is not installed; the message names the extra."""

    exit_code = 2

    @classmethod
    def of(cls, peer: "Peer") -> "MissingPackage":
        """The sentence for one peer."""
        return cls(
            f"peer {peer.name!r} needs the package {peer.package!r}: install the extra with "
            "`pip install 'geogp[bench]'`."
        )


class UnsuitedPeer(ValueError):
    """A peer that needs a position, asked about generic features."""

    exit_code = 2


@dataclass(frozen=True)
class Sample:
    """Rows to learn from or to predict: X (N, D) float64, z (N,) standardised targets, counts (N,) or None.

    covariates : so many of the last columns of X are neither place nor time
    """

    X: Array
    z: Array
    counts: Array | None
    covariates: int = 0

    def __len__(self) -> int:
        return len(self.X)

    def take(self, index: NDArray) -> "Sample":
        counts = None if self.counts is None else self.counts[index]
        return Sample(self.X[index], self.z[index], counts, self.covariates)

    @property
    def places(self) -> Array:
        """The columns that are no covariates: (N, D - covariates)."""
        return self.X[:, : self.X.shape[1] - self.covariates]

    @property
    def beside(self) -> Array:
        """The covariates: (N, covariates)."""
        return self.X[:, self.X.shape[1] - self.covariates :]

    @property
    def has_position(self) -> bool:
        """Two or three columns beside the covariates: (easting, northing[, time])."""
        return self.places.shape[1] in (2, 3)

    @property
    def timed(self) -> bool:
        """Whether the third column is a time."""
        return self.places.shape[1] == 3


@dataclass(frozen=True)
class Options:
    """How to run: seed, where (GPyTorch can use a GPU), on how many threads.

    effort : share of the usual training length, for trials
    """

    seed: int = 0
    device: str = "cpu"
    threads: int = 1
    effort: float = 1.0


class Model(Protocol):
    """A fitted peer on standardised targets."""

    facts: dict[str, Any]

    def predictive(self, rows: Sample) -> "Predictive":
        """Distributions of z at the rows' X and counts (their z is not read)."""
        ...


@dataclass(frozen=True)
class Fitted:
    """A fitted peer on the scale of y.

    facts : what it chose on validation rows (JSON-able)
    covariates, ignored : so many of the last columns of X are covariates, which it does not take
    """

    model: Model
    target_mean: float
    target_sd: float
    facts: dict[str, Any] = field(default_factory=dict)
    covariates: int = 0
    ignored: bool = False

    def predictive(self, X: ArrayLike, counts: ArrayLike | float | None = None) -> "Predictive":
        """The distribution of new averages of `counts` measurements at X (n, d)."""
        inputs = np.asarray(X, dtype=np.float64)
        n = None if counts is None else np.broadcast_to(np.asarray(counts, float), (len(inputs),))
        rows = Sample(inputs, np.zeros(len(inputs)), n, self.covariates)
        if self.ignored:
            rows = replace(rows, X=rows.places, covariates=0)
        return rescale(self.model.predictive(rows), self.target_mean, self.target_sd)


@dataclass(frozen=True)
class Peer:
    """One row of the table.

    where : "module:function" that fits it: (train, validation, options) -> Model
    package : what to install beside GeoGP, or None
    needs_position : cannot use generic features
    uses_validation : stops or chooses by validation rows; else it trains on all rows when none are given
    uses_covariates : takes columns beside the position; else it is fitted to the position alone
    """

    name: str
    summary: str
    where: str
    package: str | None = None
    needs_position: bool = False
    uses_validation: bool = True
    uses_covariates: bool = True

    @property
    def installed(self) -> bool:
        """Whether its package can be imported."""
        return self.package is None or importlib.util.find_spec(self.package) is not None

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        counts: ArrayLike | None = None,
        validation: tuple[ArrayLike, ArrayLike, ArrayLike | None] | None = None,
        *,
        seed: int = 0,
        device: str = "cpu",
        threads: int = 1,
        effort: float = 1.0,
        covariates: int = 0,
    ) -> Fitted:
        """Train on X (n, d), y (n,) and, for averages, counts (n,).

        Parameters
        ----------
        validation : (X, y, counts) for early stopping and choices, never conditioned on; without it a tenth
            of the rows is held out at random by the peers that need it
        device : "cpu", "cuda" or "auto", for the peers that can
        threads : for the peers that can
        effort : share of the usual training length, for trials
        covariates : so many of the last columns of X are neither place nor time; without any, two columns are a position, three
            a position and a time, more are features

        Raises
        ------
        MissingPackage, UnsuitedPeer
        """
        if not self.installed:
            raise MissingPackage.of(self)
        seed = seed_of(seed, "seed")
        X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
        mean, sd = float(y.mean()), float(y.std()) or 1.0
        train = Sample(X, (y - mean) / sd, None if counts is None else np.asarray(counts, float), covariates)
        if (self.needs_position or covariates) and not train.has_position:
            raise UnsuitedPeer(
                f"peer {self.name!r} needs a position, and a time at most; got {train.places.shape[1]} columns."
            )
        if validation is not None and len(np.asarray(validation[1])):
            Xv, yv, nv = validation
            held = Sample(
                np.asarray(Xv, float),
                (np.asarray(yv, float) - mean) / sd,
                None if nv is None else np.asarray(nv, float),
                covariates,
            )
        elif not self.uses_validation:
            held = train.take(np.arange(0))
        else:
            order = np.random.default_rng(seed).permutation(len(train))
            cut = max(1, len(train) // 10)
            train, held = train.take(np.sort(order[cut:])), train.take(np.sort(order[:cut]))
        ignored = covariates > 0 and not self.uses_covariates
        if ignored:
            train, held = (replace(part, X=part.places, covariates=0) for part in (train, held))
        from geogp.engines.asked import device_named

        module, _, function = self.where.partition(":")
        fit: Callable[..., Model] = getattr(importlib.import_module(module), function)
        model = fit(train, held, Options(seed, device_named(device), threads, effort))
        return Fitted(model, mean, sd, model.facts, covariates, ignored)


def rescale(predictive: "Predictive", mean: float, sd: float) -> "Predictive":
    """The distribution of mean + sd * z, from that of z."""
    from app.peers.quantiles import QuantilePredictive

    if isinstance(predictive, QuantilePredictive):
        return predictive.rescaled(mean, sd)
    return replace(predictive, location=mean + sd * predictive.location, scale=sd * predictive.scale)


def precision_of_counts(counts: Array | None, n: int, floor: float = 0.1) -> Array:
    """1 / (floor + 1/count) with mean one: how much an average of `count` measurements weighs. (n,)

    The floor is the share of a single measurement's variance that no amount of measuring removes.
    """
    if counts is None:
        return np.ones(n)
    w = 1.0 / (floor + 1.0 / counts)
    return w / w.mean()
