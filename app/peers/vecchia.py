"""GPBoost's Gaussian process under a Vecchia approximation (Sigrist 2022; Datta et al. 2016)."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from app.peers.base import Array, Options, Sample
from geogp.predictive import Predictive

NEIGHBOURS = 20  # the package's default; twice as many when predicting, its default too
SHAPE = 0.5  # exponential covariance: rough fields, as in the published comparisons
FLOOR = 0.1
AT_ONCE = 50_000


@dataclass(frozen=True)
class Scaling:
    """Coordinates in units of the map's spread, the time (if any) first, as the package wants it."""

    centre: Array
    scale: Array

    def __call__(self, X: Array) -> Array:
        C = (X - self.centre) / self.scale
        return np.ascontiguousarray(C[:, [2, 0, 1]] if C.shape[1] == 3 else C)


@dataclass(frozen=True)
class Standard:
    """Columns less their mean, over their sd."""

    centre: Array
    scale: Array

    @classmethod
    def of(cls, A: Array) -> "Standard":
        sd = A.std(0)
        return cls(A.mean(0), np.where(sd > 0, sd, 1.0))

    def __call__(self, A: Array) -> Array:
        return (A - self.centre) / self.scale


@dataclass(frozen=True)
class VecchiaGP:
    """A linear mean (1, time, log n, covariates, with `plane` the position), a Matérn field, and a nugget divided by
    1 / (0.1 + 1/n), or None where the model's own variance has the noise in it."""

    model: Any
    scaling: Scaling
    nugget: float | None
    mean_weight: float
    beside: Standard
    plane: bool = False
    facts: dict[str, Any] = field(default_factory=dict)

    def predictive(self, rows: Sample) -> Predictive:
        mean, variance = [], []
        for i in range(0, len(rows), AT_ONCE):
            part = rows.take(np.arange(i, min(i + AT_ONCE, len(rows))))
            C = self.scaling(part.places)
            out = self.model.predict(
                gp_coords_pred=C,
                X_pred=_mean_columns(C, part, self.beside, self.plane),
                predict_var=True,
                predict_response=self.nugget is None,
            )
            mean.append(np.asarray(out["mu"]).ravel())
            variance.append(np.asarray(out["var"]).ravel())
        noise = np.full(len(rows), self.nugget or 0.0)
        if rows.counts is not None:
            noise *= self.mean_weight * (FLOOR + 1.0 / rows.counts)
        total = np.maximum(np.concatenate(variance), 0.0) + noise
        return Predictive(np.concatenate(mean), np.sqrt(np.maximum(total, 1e-8)))


def _mean_columns(C: Array, rows: Sample, beside: Standard, plane: bool) -> Array:
    columns = [np.ones(len(C)), *beside(rows.beside).T]
    if plane:
        columns += [C[:, -2], C[:, -1]]
    if C.shape[1] == 3:
        columns.append(C[:, 0])
    if rows.counts is not None:
        columns.append(np.log(rows.counts))
    return np.column_stack(columns)


def fit_plane(train: Sample, held: Sample, options: Options) -> VecchiaGP:
    """As `fit`, the mean linear in the position."""
    return fit(train, held, options, plane=True)


def fit_heteroscedastic(train: Sample, held: Sample, options: Options) -> VecchiaGP:
    """A Gaussian likelihood whose log variance is linear in the same columns as the mean, by Laplace's method."""
    scaling, beside = _scaling(train.places), Standard.of(train.beside)
    C = scaling(train.places)
    model = _model(C, options, likelihood="gaussian_heteroscedastic")
    model.fit(y=train.z, X=_mean_columns(C, train, beside, plane=True))
    parameters = np.asarray(model.get_cov_pars()).ravel()
    facts = {"covariance_parameters": [round(float(v), 5) for v in parameters]}
    return VecchiaGP(model, scaling, None, 1.0, beside, True, facts)


def fit(train: Sample, held: Sample, options: Options, *, plane: bool = False) -> VecchiaGP:
    """Maximum of the Vecchia likelihood; nothing is chosen on validation rows."""
    scaling, beside = _scaling(train.places), Standard.of(train.beside)
    C = scaling(train.places)
    weights, mean_weight = None, 1.0
    if train.counts is not None:
        raw = 1.0 / (FLOOR + 1.0 / train.counts)
        mean_weight = float(raw.mean())
        weights = raw / mean_weight
    model = _model(C, options, likelihood="gaussian", weights=weights)
    model.fit(y=train.z, X=_mean_columns(C, train, beside, plane))
    parameters = np.asarray(model.get_cov_pars()).ravel()
    facts = {"covariance_parameters": [round(float(v), 5) for v in parameters]}
    return VecchiaGP(model, scaling, float(parameters[0]), mean_weight, beside, plane, facts)


def _scaling(X: Array) -> Scaling:
    spread = X.std(0)
    spread[:2] = np.sqrt((spread[:2] ** 2).mean())
    return Scaling(X.mean(0), np.where(spread > 0, spread, 1.0))


def _model(C: Array, options: Options, **more: Any) -> Any:
    import gpboost

    return gpboost.GPModel(
        gp_coords=C,
        cov_function="matern_space_time" if C.shape[1] == 3 else "matern",
        cov_fct_shape=SHAPE,
        gp_approx="vecchia",
        num_neighbors=NEIGHBOURS,
        num_parallel_threads=options.threads,
        GPU_use=False,
        seed=options.seed,
        **more,
    )
