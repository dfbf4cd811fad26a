"""GPRegressor: every method of the table behind scikit-learn's face."""

import hashlib
import warnings
import weakref
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from geogp.basis.build import Shape, Size, check
from geogp.basis.capacity import BATCH, STEPS, Capacity, choose_capacity
from geogp.basis.objectives import Weights
from geogp.basis.schedule import Schedule
from geogp.data import Data, Moments
from geogp.engines import ENGINES, Engine, Hooks, Plan
from geogp.errors import ImpossibleCombination, InvalidInput, NotDistanceAware
from geogp.holdout import kinds_asked, random_part, rows_for_the_epoch
from geogp.methods import Method, method
from geogp.predictive import Predictive
from geogp.transforms import Identity, Transform, from_dict, transform_for

Array = NDArray[np.float64]

#: Fourier scales are chosen where the fit sees so many times the rows of one trial; there are four, mostly.
TRIALS_WORTH = 25

# The last prediction of each estimator, kept outside it so that predicting changes no attribute.
_LAST: "weakref.WeakKeyDictionary[GPRegressor, tuple[str, Moments]]" = weakref.WeakKeyDictionary()


class GPRegressor(RegressorMixin, BaseEstimator):
    """A scalable Gaussian process: mean, sd, intervals, joint samples and kernel slices at new places.

    With two columns and nothing said, both are projected coordinates in one length unit (multi-scale
    encoder, local residual); with more, they are generic features (standardised).

    Parameters
    ----------
    method : a row of the method table, see `geogp.METHODS` or `geogp methods`
    spatial : indices of the (easting, northing) columns, or None
    time : index of the time column (years), or None
    expansion, residual, noise, objective, posterior, backbone : replace that choice of the row
    rank : basis functions r; hidden : width h of the network; None for the defaults (128, but no more than
        the rows when there are fewer, and 64)
    fourier_scales : radians per standard deviation of position. "auto": chosen on rows held out of the training
        rows, weighed as `validation` lies beside them (see `geogp.basis.capacity`), by methods that train by
        minibatches on some 3,000 or more rows; else 1, 4, 12. None: those
    epochs : None trains for about `steps` steps
    steps, batch_size, learning_rate : of the schedule, see `geogp.basis.schedule.Schedule`
    target_transform : the scale on which y is modelled: "identity", "log10", "yeo-johnson" or "auto", the likeliest of
        them on the training rows; quantiles and exceedance go through it exactly
    trace_weight, kl_weight, crps_weight : strength of the objective's terms; trace_weight None lets 200 or more
        validation rows choose among .01, .1 and 1 (a fifth more time), and is .01 with fewer. The CRPS counts by
        its logarithm, in `dppgp` only
    options : further keywords of the method's engine
    device : "cpu", "cuda" or "auto"
    random_state : seed; None is seed 0, deterministic too

    Attributes
    ----------
    target_mean_, target_sd_ : of the training targets (ddof 0)
    typical_count_ : median training count, used where a prediction names none; None without counts
    fitted_rows_ : the rows of X that were fitted, all but those held out to choose the epoch; not kept in a run
    capacity_ : the Fourier scales that were chosen, and by which scores; None where there was no choice
    engine_ : the fitted model on standardised targets

    Notes
    -----
    Fit costs epochs * O(n (h^2 + h r + r^2)), prediction O(h^2 + h r + r^2) a row.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (200, 2)); y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(200)
    >>> model = GPRegressor(method="dbk-silu", epochs=5).fit(X, y)
    >>> mean, sd = model.predict(X[:3], return_std=True)
    >>> mean.shape, bool((sd > 0).all())
    ((3,), True)
    """

    def __init__(
        self,
        method: str = "geogp",
        *,
        spatial: Sequence[int] | None = None,
        time: int | None = None,
        backbone: str | None = None,
        expansion: str | None = None,
        residual: str | None = None,
        noise: str | None = None,
        objective: str | None = None,
        posterior: str | None = None,
        rank: int | None = None,
        hidden: int | None = None,
        fourier_scales: Sequence[float] | str | None = "auto",
        epochs: int | None = None,
        steps: int | None = None,
        batch_size: int = 1024,
        learning_rate: float = 5e-3,
        target_transform: str = "identity",
        trace_weight: float | None = 0.01,
        kl_weight: float = 0.01,
        crps_weight: float = 1.0,
        options: dict | None = None,
        device: str = "cpu",
        random_state: int | None = None,
    ):
        self.method = method
        self.spatial = spatial
        self.time = time
        self.backbone = backbone
        self.expansion = expansion
        self.residual = residual
        self.noise = noise
        self.objective = objective
        self.posterior = posterior
        self.rank = rank
        self.hidden = hidden
        self.fourier_scales = fourier_scales
        self.epochs = epochs
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.target_transform = target_transform
        self.trace_weight = trace_weight
        self.kl_weight = kl_weight
        self.crps_weight = crps_weight
        self.options = options
        self.device = device
        self.random_state = random_state

    # -- fitting -----------------------------------------------------------------------------------

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        counts: ArrayLike | None = None,
        *,
        validation: tuple[ArrayLike, ArrayLike, ArrayLike | None] | None = None,
        hooks: Hooks | None = None,
    ) -> "GPRegressor":
        """Train on X (n, d), y (n,) and, for averages, counts (n,): the measurements behind each value.

        Parameters
        ----------
        validation : (X, y, counts) that choose the epoch and calibrate, never conditioned on. Without it a
            tenth of the rows is held out when there are 1,000 or more, a fifth of 40 or more where a network
            is trained by minibatches
        hooks : progress and checkpoint callbacks

        Raises
        ------
        ValueError
            NaN, infinite or misshapen input; counts that are not positive.
        ImpossibleCombination
            choices that cannot go together.
        """
        checked = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=1)
        return self._fit(checked[0], np.asarray(checked[1], dtype=np.float64), counts, validation, hooks)

    def _fit(
        self,
        X: Array,
        y: Array,
        counts: ArrayLike | None,
        validation: tuple[ArrayLike, ArrayLike, ArrayLike | None] | None,
        hooks: Hooks | None,
    ) -> "GPRegressor":
        if not np.isfinite(y).all():
            raise InvalidInput("y holds NaN or infinity; drop those rows.")
        n_counts = _check_counts(counts, len(y))
        row, plan = self._plan(X.shape[1], n_counts is not None, len(y))
        self.target_mean_ = float(y.mean())
        sd = float(y.std())
        # A spread at rounding level is a constant target; dividing by it would amplify rounding errors.
        self.target_sd_ = sd if sd > 1e-10 * max(1.0, abs(self.target_mean_)) else 1.0
        self.target_range_ = (float(y.min()), float(y.max()))
        self.typical_count_ = None if n_counts is None else float(np.median(n_counts))
        self.transform_ = self._transform(X, y, row)
        engine = ENGINES[row.engine]
        data = self._data(X, y, n_counts, engine.dtype)
        held: Data | None = None
        kept = torch.arange(len(y))
        if validation is not None:
            Xv, yv, cv = validation
            Xv = np.asarray(Xv, dtype=np.float64)
            yv = np.asarray(yv, dtype=np.float64)
            held = self._data(Xv, yv, _check_counts(cv, len(yv)), engine.dtype) if len(yv) else None
        elif cut := _held_out(row, len(y)):
            kept, watched = (rows.sort().values for rows in random_part(len(y), cut, plan.seed))
            data, held = data.rows(kept), data.rows(watched)
        plan = replace(plan, target_mean=self.target_mean_, target_sd=self.target_sd_)
        self.capacity_ = self._capacity(plan, data, held if validation is not None else None)
        if self.capacity_ is not None:
            plan = replace(plan, size=replace(plan.size, fourier_scales=self.capacity_.fourier_scales))
        self.row_ = row
        self.n_rows_ = len(data)
        self.fitted_rows_ = kept.numpy()
        self.engine_: Engine = engine.fit(plan, data, held, hooks or Hooks())
        _LAST.pop(self, None)
        if not row.reverts_to_prior:
            warnings.warn(
                f"method {row.name!r} with residual {row.residual!r}: the latent sd far from data need not return "
                "to the prior; judge a map there by its distance to data, or take residual 'local' or a method "
                "whose row says reverts_to_prior.",
                NotDistanceAware,
                stacklevel=3,
            )
        return self

    def _transform(self, X: Array, y: Array, row: Method) -> Transform:
        if self.target_transform != "identity" and row.engine in ("cox", "fixed_mean"):
            raise ImpossibleCombination(
                f"method {row.name!r} fixes the scale of its target; leave target_transform at 'identity'."
            )
        columns = [*(self.spatial or range(X.shape[1])), *([] if self.time is None else [self.time])]
        return transform_for(self.target_transform, y, X[:, columns], seed=int(self.random_state or 0))

    def _capacity(self, plan: Plan, data: Data, asked: Data | None) -> Capacity | None:
        """The choice of Fourier scales, where there is one to make: rows to be asked for say how they lie."""
        row, spatial, time = plan.row, plan.shape.spatial, plan.shape.time
        if self.fourier_scales != "auto" or row.encoder != "fourier" or spatial is None:
            return None
        if (
            row.engine != "lowrank"
            or plan.schedule.n_epochs(len(data)) * len(data) < TRIALS_WORTH * STEPS * BATCH
        ):
            return None
        X = data.X.numpy()

        def where_and_when(rows: Array) -> tuple[Array, Array | None]:
            return rows[:, list(spatial)], None if time is None else rows[:, time]

        return choose_capacity(
            X,
            data.y.double().numpy(),
            None if data.counts is None else data.counts.double().numpy(),
            spatial=spatial,
            time=time,
            asked=None
            if asked is None
            else kinds_asked(*where_and_when(X), *where_and_when(asked.X.numpy())),
            seed=plan.seed,
        )

    def _plan(self, n_inputs: int, has_counts: bool, n_rows: int) -> tuple[Method, Plan]:
        row = method(self.method)
        changes = {
            name: getattr(self, name)
            for name in ("backbone", "expansion", "residual", "noise", "objective", "posterior")
            if getattr(self, name) is not None
        }
        row = replace(row, **changes)
        if "residual" in changes or "expansion" in changes:
            kept = row.reverts_to_prior and row.residual in ("nystrom", "local")
            row = replace(row, reverts_to_prior=kept or row.residual == "distance")
        spatial = self.spatial
        if spatial is None and n_inputs == 2:
            spatial = (0, 1)
        if row.engine == "local" and spatial is None:
            # Generic features have no neighbours in space.
            row = replace(method("dbk-rbf"), name=row.name)
        check(row)
        if row.residual == "local":
            row = replace(row, engine="local", reverts_to_prior=True)
        if row.engine not in ENGINES:
            raise ImpossibleCombination(
                f"method {row.name!r} needs the engine {row.engine!r}, which is absent."
            )
        if spatial is not None and (len(spatial) != 2 or max(spatial) >= n_inputs):
            raise InvalidInput(f"spatial must name two of the {n_inputs} columns; got {tuple(spatial)}.")
        shape = Shape(
            n_inputs, None if spatial is None else (int(spatial[0]), int(spatial[1])), self.time, has_counts
        )
        size = Size()
        if self.hidden is not None:
            size = replace(size, hidden=self.hidden)
        default = row.rank or size.rank
        size = replace(size, rank=min(default, max(16, n_rows)) if self.rank is None else self.rank)
        if isinstance(self.fourier_scales, str):
            if self.fourier_scales != "auto":
                raise InvalidInput(
                    f"fourier_scales must be numbers, 'auto' or None; got {self.fourier_scales!r}."
                )
        elif self.fourier_scales is not None:
            size = replace(size, fourier_scales=tuple(self.fourier_scales))
        schedule = Schedule(epochs=self.epochs, batch_size=self.batch_size, learning_rate=self.learning_rate)
        steps = self.steps if self.steps is not None else row.steps
        if steps is not None:
            schedule = replace(schedule, steps=steps)
        plan = Plan(
            row=row,
            shape=shape,
            size=size,
            schedule=schedule,
            weights=Weights(
                trace=0.01 if self.trace_weight is None else self.trace_weight,
                kl=self.kl_weight,
                crps=self.crps_weight,
                trace_candidates=(0.01, 0.1, 1.0) if self.trace_weight is None else (),
            ),
            seed=int(self.random_state or 0),
            device=_device(self.device),
            options=dict(self.options or {}),
        )
        return row, plan

    def _data(self, X: Array, y: Array, counts: Array | None, dtype: torch.dtype = torch.float32) -> Data:
        z = (self.transform_.forward(y) - self.target_mean_) / self.target_sd_
        return Data(
            torch.as_tensor(X, dtype=torch.float64),
            torch.as_tensor(z, dtype=dtype),
            None if counts is None else torch.as_tensor(counts, dtype=dtype),
        )

    # -- predicting --------------------------------------------------------------------------------

    def moments(self, X: ArrayLike, counts: ArrayLike | float | None = None) -> Moments:
        """Mean, latent, noise and prior variance, each (n,), on the standardised working scale."""
        check_is_fitted(self, "engine_")
        inputs = self._inputs(X)
        n = self._counts(counts, len(inputs))
        key = hashlib.blake2b(np.ascontiguousarray(inputs).tobytes(), digest_size=16)
        key.update(b"-" if n is None else n.tobytes())
        last = _LAST.get(self)
        if last is not None and last[0] == key.hexdigest():
            return last[1]
        moments = self.engine_.moments(
            torch.as_tensor(inputs),
            None if n is None else torch.as_tensor(n, dtype=torch.float32),
        )
        _LAST[self] = (key.hexdigest(), moments)
        return moments

    def predictive(
        self, X: ArrayLike, counts: ArrayLike | float | None = None, *, latent: bool = False
    ) -> Predictive:
        """The whole distribution of a new observation (or of the surface) at X: see `Predictive`."""
        return self.distribution(self.moments(X, counts), latent=latent)

    def distribution(self, moments: Moments, *, latent: bool = False) -> Predictive:
        """The distribution, on the scale of y, that moments of this model describe."""
        variance = moments.latent_variance if latent else moments.latent_variance + moments.noise_variance
        center = moments.mean if latent else moments.location()
        location = self.target_mean_ + self.target_sd_ * center.double().numpy()
        if moments.in_units is not None:
            location = moments.in_units.numpy()
        nu, skew = (None, None) if latent else (moments.degrees_of_freedom, moments.log_skewness)
        return Predictive(
            location=location,
            scale=self.target_sd_ * np.sqrt(np.maximum(variance.double().numpy(), 1e-30)),
            degrees_of_freedom=None if nu is None else nu.double().numpy(),
            transform=self.transform_,
            log_skewness=None if skew is None else skew.double().numpy(),
        )

    def predict(
        self,
        X: ArrayLike,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        counts: ArrayLike | float | None = None,
        latent: bool = False,
    ) -> Any:
        """Mean of a new observation at X (n, d), with its sd (n,) or covariance (n, n) on request.

        Parameters
        ----------
        counts : measurements behind the new observation (scalar or (n,)); default `typical_count_`
        latent : of the surface itself, without noise

        Raises
        ------
        ImpossibleCombination
            when sd and covariance are both asked for.
        """
        if return_std and return_cov:
            raise ImpossibleCombination("ask for return_std or return_cov, not both.")
        if return_cov:
            return self._mean_and_covariance(X, counts, latent)
        predictive = self.predictive(X, counts, latent=latent)
        return (predictive.mean(), predictive.sd()) if return_std else predictive.mean()

    def _mean_and_covariance(self, X: ArrayLike, counts: Any, latent: bool) -> tuple[Array, Array]:
        if not isinstance(self.transform_, Identity):
            raise ImpossibleCombination(
                "return_cov needs target_transform 'identity'; use sample_y for joint draws under another transform."
            )
        moments = self.moments(X, counts)
        covariance = self.engine_.posterior_covariance(torch.as_tensor(self._inputs(X)))
        if not latent:
            noise = moments.new_variance() - moments.latent_variance
            covariance = covariance + torch.diag(noise.to(covariance.dtype))
        mean = self.distribution(moments, latent=latent).mean()
        return mean, self.target_sd_**2 * covariance.double().numpy()

    def interval(
        self,
        X: ArrayLike,
        level: float = 0.95,
        *,
        counts: ArrayLike | float | None = None,
        latent: bool = False,
    ) -> tuple[Array, Array]:
        """(lower, upper) that hold a new observation with probability `level`: a prediction interval;
        with `latent=True` a credible interval of the surface. Exact for any likelihood and transform."""
        return self.predictive(X, counts, latent=latent).interval(level)

    def exceedance(
        self, X: ArrayLike, threshold: float, *, counts: ArrayLike | float | None = None, latent: bool = False
    ) -> Array:
        """P(new observation > threshold): (n,)."""
        return self.predictive(X, counts, latent=latent).exceedance(threshold)

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: int | None = 0) -> Array:
        """Joint draws of the surface at X: (n, n_samples), an integer seed for the same draws again.

        Methods with a learned basis draw its weights, O(n r) a draw at any n; the others factorise the
        posterior covariance of the places, O(n^3).
        """
        check_is_fitted(self, "engine_")
        generator = torch.Generator().manual_seed(int(random_state or 0))
        draws = self.engine_.sample(torch.as_tensor(self._inputs(X)), n_samples, generator)
        return self.transform_.inverse(self.target_mean_ + self.target_sd_ * draws.double().numpy())

    def kernel_slice(self, X: ArrayLike, x_ref: ArrayLike) -> Array:
        """k(X, x_ref), the prior covariance with one place, in squared target units: (n,)."""
        check_is_fitted(self, "engine_")
        inputs = self._inputs(X)
        ref = np.asarray(x_ref, dtype=np.float64).reshape(1, -1)
        if ref.shape[1] != inputs.shape[1]:
            raise InvalidInput(
                f"x_ref must have {inputs.shape[1]} numbers like a row of X; got {ref.shape[1]}."
            )
        k = self.engine_.prior_covariance(torch.as_tensor(inputs), torch.as_tensor(ref))
        return self.target_sd_**2 * k[:, 0].double().numpy()

    # -- state -------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, torch.Tensor], dict]:
        """Tensors and JSON-able facts that `from_state` restores without pickle."""
        check_is_fitted(self, "engine_")
        tensors, facts = self.engine_.state()
        plan = self.engine_.plan
        return tensors, {
            "parameters": {**self.get_params(), "options": self._storable_options()},
            "shape": {
                "n_inputs": plan.shape.n_inputs,
                "spatial": plan.shape.spatial,
                "time": plan.shape.time,
                "has_counts": plan.shape.has_counts,
            },
            "rank": plan.size.rank,
            "fourier_scales": list(plan.size.fourier_scales),
            "capacity": None if self.capacity_ is None else self.capacity_.to_dict(),
            "target_mean": self.target_mean_,
            "target_sd": self.target_sd_,
            "target_range": list(self.target_range_),
            "typical_count": self.typical_count_,
            "n_rows": self.n_rows_,
            "transform": self.transform_.to_dict(),
            "engine": facts,
        }

    @classmethod
    def from_state(
        cls, tensors: dict[str, torch.Tensor], facts: dict, *, device: str = "cpu"
    ) -> "GPRegressor":
        """The fitted estimator that `state` described."""
        model = cls(**{**facts["parameters"], "device": device})
        n_inputs = facts["shape"]["n_inputs"]
        row, plan = model._plan(n_inputs, facts["shape"]["has_counts"], facts["n_rows"])
        model.row_ = row
        model.n_features_in_ = n_inputs
        model.target_mean_, model.target_sd_ = facts["target_mean"], facts["target_sd"]
        plan = replace(
            plan,
            size=replace(
                plan.size,
                rank=facts["rank"],
                fourier_scales=tuple(facts.get("fourier_scales", plan.size.fourier_scales)),
            ),
            target_mean=model.target_mean_,
            target_sd=model.target_sd_,
        )
        low, high = facts["target_range"]
        model.target_range_ = (low, high)
        model.typical_count_, model.n_rows_ = facts["typical_count"], facts["n_rows"]
        model.transform_ = from_dict(facts["transform"])
        capacity = facts.get("capacity")
        model.capacity_ = None if capacity is None else Capacity.from_dict(capacity)
        model.engine_ = ENGINES[row.engine].from_state(plan, tensors, facts["engine"])
        return model

    def _with_engine(self, engine: Engine) -> "GPRegressor":
        """A copy of this fitted estimator that is carried by another engine."""
        out = copy(self)
        out.engine_ = engine
        return out

    def _storable_options(self) -> dict | None:
        """The options but for a predictor in memory, which no run folder can hold."""
        if self.options is None:
            return None
        return {k: v for k, v in self.options.items() if k != "predictor"}

    def _inputs(self, X: ArrayLike) -> Array:
        return np.asarray(validate_data(self, X, dtype=np.float64, reset=False))

    def _counts(self, counts: ArrayLike | float | None, n: int) -> Array | None:
        if not self.engine_.plan.shape.has_counts:
            return None
        if counts is None:
            counts = self.typical_count_
        return np.broadcast_to(np.asarray(counts, dtype=np.float64), (n,)).copy()


def _held_out(row: Method, n: int) -> int:
    """Rows to hold out of n for choosing the epoch; a local field holds out what it needs itself."""
    if row.engine == "local":
        return 0
    own_network = row.engine in ("fixed_mean", "pretrained")
    learns = own_network or (row.route == "variational" and row.backbone != "identity")
    return rows_for_the_epoch(n, by_heart=learns)


def _check_counts(counts: ArrayLike | None, n: int) -> Array | None:
    if counts is None:
        return None
    out = np.asarray(counts, dtype=np.float64)
    if out.shape != (n,):
        raise InvalidInput(f"counts must be one number a row, shape ({n},); got shape {out.shape}.")
    if not (np.isfinite(out).all() and (out > 0).all()):
        bad = int(np.flatnonzero(~(np.isfinite(out) & (out > 0)))[0])
        raise InvalidInput(
            f"counts must be positive; row {bad} has {out[bad]:g}: drop it or leave counts out."
        )
    return out


def _device(name: str) -> str:
    if name != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"
