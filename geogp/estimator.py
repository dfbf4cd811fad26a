"""GPRegressor: every method of the table behind scikit-learn's face; long because all that they take is named here."""

import hashlib
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

from geogp.data import (
    Data,
    Moments,
    check_crs,
    counts_tensor,
    crs_of,
    features_of,
    finite,
    placed,
    spread_out,
    writable,
)
from geogp.engines import Engine, Hooks, Plan
from geogp.engines.asked import plan_of, rows_held_out, warn_far, warn_far_off, with_capacity
from geogp.engines.check import engine_of
from geogp.engines.columns import names_of
from geogp.engines.joint import DenseJoint
from geogp.engines.stored import restore, state_of
from geogp.errors import (
    ImpossibleCombination,
    InvalidInput,
    check_draws,
    check_values,
    checked_counts,
    checked_values,
    numbers_of,
    seed_of,
)
from geogp.holdout import random_part
from geogp.linalg.threads import patient
from geogp.methods import DEFAULT
from geogp.predictive import Peak, Predictive
from geogp.transforms import Identity, Transform, Warped, quartiles, transform_for, unit_of

Array = NDArray[np.float64]


# The last prediction of each engine, kept outside it: predicting changes no attribute. Other predictions, other engine.
_LAST: "weakref.WeakKeyDictionary[Engine, tuple[str, Moments]]" = weakref.WeakKeyDictionary()


class GPRegressor(RegressorMixin, BaseEstimator):
    """A scalable Gaussian process: mean, sd, intervals, joint samples and kernel slices at new places.

    With two columns beside `time` and nothing said, both are projected coordinates in one length unit (multi-scale encoder,
    local residual), and a single one is a line of places. Other columns are generic features, standardised, for which `geogp`
    is `gp-averaged` up to 2,000 rows, then `dbk-rbf` (`choice` says which): name `spatial` where some are places.

    Parameters
    ----------
    method : a row of the method table, see `geogp.METHODS` or `geogp methods`
    spatial : the (easting, northing) columns, or the one of a line, by number or, of a data frame, by name; None takes the
        two, or the one, beside `time`
    time : the time column (years), likewise, or None. Of points (a GeoDataFrame) columns 0 and 1 are easting and
        northing, its others follow by their names
    backbone, expansion, residual, noise, objective, posterior, spread : a name in that registry of `geogp.basis`
    rank : basis functions r; hidden : width h of the network; None for the defaults (128, but no more than
        the rows when there are fewer, and 64)
    fourier_scales : radians per standard deviation of position. "auto": chosen on rows held out of the training
        rows, weighed as `validation` lies beside them (see `geogp.basis.capacity`), by methods that train by
        minibatches on some 3,000 or more rows; else 1, 4, 12. None: those
    epochs : None trains for about `steps` steps
    steps, batch_size, learning_rate : of the schedule. `geogp` and `local-gp` take steps as those of the kernel's fit,
        epochs and hidden as those of the smooth noise (`geogp.field.FieldOptions`); `sgpr`, `gp-rbf` and others without a
        network find the length of their steps
    precision : of the large products of a deep basis' steps: "float32", or "bfloat16" for processors that multiply it (AMX,
        tensor cores), where a step of r 1,024 takes .6 of its time; predictions stay in float32
    region_rows : a local field of more rows than so many is fitted as overlapping regions of that size, each with a kernel and a
        noise of its own, merged without seams, see `geogp.field.regions`; None for one field, else 2,000 or more
    target_transform : the scale on which y is modelled: "identity", "log10", "yeo-johnson" or "auto", the likeliest of
        them on the training rows ("identity" for a method that fixes the scale); quantiles and exceedance go through it
        exactly. Ask for "identity" where only that is wanted: a covariance, the published method
    trace_weight, kl_weight, crps_weight : strength of the objective's terms; trace_weight None lets 200 or more
        validation rows choose among .01, .1 and 1 (a fifth more time), and is .01 with fewer. The CRPS counts by
        its logarithm, in `dppgp` only
    options : further keywords of the method's engine
    device : "cpu", "cuda" or "auto"; random_state : seed, None is seed 0, deterministic too

    Attributes
    ----------
    target_mean_, target_sd_ : of the training targets (ddof 0). Where all are equal, target_sd_ is their size, 1 of zeros:
        equal values say nothing of how they differ, and only their size follows a change of unit. Sds of predictions are
        then in proportion to it, so that they change with a constant added to all targets
    target_quartiles_ : of the training targets, each row counted as often as it was measured; None in older runs
    typical_count_ : median training count, used where a prediction names none; None without counts
    reference_count_ : the surface is the level of averages of so many measurements (the level may shift with the
        count): the median training count. Latent moments, draws, covariances and areas hold to it whatever a
        prediction is of, unless counts are named for them
    fitted_rows_ : the rows of X that were fitted, all but those held out to choose the epoch; not kept in a run
    capacity_ : the Fourier scales that were chosen, and by which scores; None where there was no choice
    crs_ : of the points it was fitted to (WKT), None where they came without
    transform_ : the scale of `target_transform`, chosen
    engine_ : the fitted model on standardised targets

    Notes
    -----
    Fit of a deep basis costs epochs * O(n (h^2 + h r + r^2)), prediction O(h^2 + h r + r^2) a row.

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
        method: str = DEFAULT,
        *,
        spatial: Sequence[int | str] | None = None,
        time: int | str | None = None,
        backbone: str | None = None,
        expansion: str | None = None,
        residual: str | None = None,
        noise: str | None = None,
        objective: str | None = None,
        posterior: str | None = None,
        spread: str | None = None,
        rank: int | None = None,
        hidden: int | None = None,
        fourier_scales: Sequence[float] | str | None = "auto",
        epochs: int | None = None,
        steps: int | None = None,
        batch_size: int = 1024,
        learning_rate: float = 5e-3,
        precision: str = "float32",
        region_rows: int | None = None,
        target_transform: str = "auto",
        trace_weight: float | None = 0.01,
        kl_weight: float = 0.01,
        crps_weight: float = 1.0,
        options: dict | None = None,
        device: str = "cpu",
        random_state: int | None = None,
    ):
        self.method = method
        self.spatial, self.time = spatial, time
        self.backbone, self.expansion, self.residual = backbone, expansion, residual
        self.noise, self.objective, self.posterior = noise, objective, posterior
        self.spread = spread
        self.rank, self.hidden, self.fourier_scales = rank, hidden, fourier_scales
        self.epochs, self.steps = epochs, steps
        self.batch_size, self.learning_rate, self.precision = batch_size, learning_rate, precision
        self.region_rows, self.target_transform = region_rows, target_transform
        self.trace_weight, self.kl_weight, self.crps_weight = trace_weight, kl_weight, crps_weight
        self.options, self.device, self.random_state = options, device, random_state

    # -- fitting -----------------------------------------------------------------------------------

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        counts: ArrayLike | None = None,
        *,
        validation: Sequence[ArrayLike | None] | None = None,
        hooks: Hooks | None = None,
    ) -> "GPRegressor":
        """Train on X (n, d), y (n,) and, for averages, counts (n,): the measurements behind each value.

        Parameters
        ----------
        validation : (X, y, counts), or (X, y), that choose the epoch and calibrate, never conditioned on. Without it a
            tenth of the rows is held out when there are 1,000 or more, a fifth of 40 or more where a network
            is trained by minibatches
        hooks : progress and checkpoint callbacks

        Raises
        ------
        ValueError
            NaN, infinite or misshapen input, columns that hold no numbers (`InvalidInput`, which is one); counts that are
            not positive.
        ImpossibleCombination
            choices that cannot go together.
        """
        self.crs_, names = crs_of(X), names_of(X)
        features = features_of(X, y)
        if y is not None:
            check_values(numbers_of(y, "y").ravel())  # scikit-learn says neither how many nor where
        checked = validate_data(self, features, y, dtype=np.float64, y_numeric=True, ensure_all_finite=False)
        rows, values = spread_out(placed(checked[0], columns=names)), np.asarray(checked[1], dtype=np.float64)
        n = None if counts is None else checked_counts(counts, len(values))
        plan = plan_of(self.get_params(deep=False), rows.shape[1], n is not None, len(values), names)
        engine = engine_of(plan.row)
        self._take_scale(rows, values, n, plan)
        data, held, self.fitted_rows_ = self._rows(rows, values, n, validation, plan)
        plan = replace(plan, target_mean=self.target_mean_, target_sd=self.target_sd_)
        self.capacity_ = None
        if self.fourier_scales == "auto":
            plan, self.capacity_ = with_capacity(plan, data, None if validation is None else held)
        self.row_, self.n_rows_ = plan.row, len(data)
        with patient():
            self.engine_: Engine = engine.fit(plan, data, held, hooks or Hooks())
        warn_far(plan.row)
        return self

    def _take_scale(self, X: Array, y: Array, counts: Array | None, plan: Plan) -> None:
        """What targets are standardised and transformed by, and the usual count."""
        self.target_mean_ = float(y.mean())
        self.target_sd_ = unit_of(y)
        self.target_range_ = (float(y.min()), float(y.max()))
        self.target_quartiles_: tuple[float, float, float] | None = quartiles(y, counts)
        shape, engine = plan.shape, engine_of(plan.row)
        when = None if shape.time is None else X[:, shape.time]
        self.time_range_ = when if when is None else (float(when.min()), float(when.max()))
        self.typical_count_ = None if counts is None else float(np.median(counts))
        self.reference_count_ = self.typical_count_
        name, fixed = self.target_transform, engine.fixes_scale
        if name not in ("auto", "identity") and fixed:
            raise ImpossibleCombination(
                f"method {plan.row.name!r} fixes the scale of its target; leave target_transform at 'auto' or 'identity'."
            )
        columns = [*(shape.spatial or range(X.shape[1])), *([] if shape.time is None else [shape.time])]
        name = "identity" if name == "auto" and fixed else name
        others = [d for d in range(X.shape[1]) if d not in columns]
        self.transform_: Transform = transform_for(name, y, X[:, columns], X[:, others], seed=plan.seed)

    def _rows(
        self,
        X: Array,
        y: Array,
        counts: Array | None,
        validation: Sequence[ArrayLike | None] | None,
        plan: Plan,
    ) -> tuple[Data, Data | None, NDArray[np.int64]]:
        """Rows to fit, rows that choose and stop (given or held out), and which of X the first are."""
        dtype = engine_of(plan.row).dtype
        data = self._data(X, y, counts, dtype)
        if validation is not None:
            held = self._validation(validation, counted=counts is not None, dtype=dtype)
            return data, held, np.arange(len(y))
        if cut := rows_held_out(plan.row, len(y)):
            kept, watched = (rows.sort().values for rows in random_part(len(y), cut, plan.seed))
            return data.rows(kept), data.rows(watched), kept.numpy()
        return data, None, np.arange(len(y))

    def _validation(
        self, given: Sequence[ArrayLike | None], *, counted: bool, dtype: torch.dtype
    ) -> Data | None:
        """Rows given for validation, held to what those of the fit are held to; None where there are none."""
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise InvalidInput(
                f"validation is (X, y, counts), or (X, y) without counts; got {type(given).__name__}."
            )
        X, y, counts = given if len(given) == 3 else (*given, None) if len(given) == 2 else (None, None, None)
        if X is None or y is None:
            raise InvalidInput(
                f"validation is (X, y, counts), or (X, y) without counts; got {len(given)} parts."
            )
        rows = self._inputs(X, y, fewest=0)
        values = checked_values(y, len(rows), f"validation has {len(rows)} rows of X")
        if not len(rows):
            return None
        if (counts is not None) != counted:
            raise InvalidInput(
                f"the rows of the fit have {'' if counted else 'no '}counts and those of validation {'none' if counted else 'some'}; "
                "give them to both or to neither."
            )
        n = None if counts is None else checked_counts(counts, len(rows))
        held = self._data(rows, values, n, dtype)
        if not bool(torch.isfinite(held.y).all()):
            raise InvalidInput(
                f"validation holds a value of {values.min():g}, which the scale of the fit, {self.transform_.words('y')}, does "
                "not reach; drop it, or take target_transform 'identity'."
            )
        return held

    def _data(self, X: Array, y: Array, counts: Array | None, dtype: torch.dtype = torch.float32) -> Data:
        z = (self.transform_.forward(y) - self.target_mean_) / self.target_sd_
        return Data(
            torch.as_tensor(writable(X), dtype=torch.float64),
            torch.as_tensor(z, dtype=dtype),
            None if counts is None else torch.as_tensor(writable(counts), dtype=dtype),
        )

    # -- what it knows -----------------------------------------------------------------------------

    @property
    def choice(self) -> str:
        """What carries the fit, and why, in a sentence."""
        return self.engine_.plan.choice

    @property
    def has_time(self) -> bool:
        """Whether a column of X is time."""
        return self.engine_.plan.shape.time is not None

    @property
    def has_counts(self) -> bool:
        """Whether it was fitted with counts, so that a prediction is of an average of so many."""
        return self.engine_.plan.shape.has_counts

    @property
    def center(self) -> str:
        """What `predict` gives: "mean", or "median" of a fit of before whose scale nowhere goes on straight."""
        if isinstance(self.transform_, Identity):
            return "mean"
        tails = np.ones(1) if self.engine_.has_tails else None
        return Predictive(np.zeros(1), np.ones(1), tails, self.transform_).center

    @property
    def most_places(self) -> int | None:
        """How many places the joint posterior takes at once; None for as many as one likes."""
        return self.engine_.most_places

    @property
    def refits_by_conditioning(self) -> bool:
        """Whether a refit on more rows keeps all that was learned and only comes to know them."""
        return self.engine_.refits_by_conditioning

    def attach(self, predictor: Any) -> None:
        """Give a fixed-mean GP that was loaded from disk its predictor back.

        Raises
        ------
        InvalidInput
            a method that takes none.
        """
        engine = copy(self.engine_)
        engine.attach(predictor)
        self.engine_ = engine

    # -- predicting --------------------------------------------------------------------------------

    def moments(self, X: ArrayLike, counts: ArrayLike | float | None = None) -> Moments:
        """Mean, latent, noise and prior variance, each (n,), on the standardised working scale."""
        check_is_fitted(self, "engine_")
        inputs = self._inputs(X)
        n = self._counts(counts, len(inputs))
        key = hashlib.blake2b(np.ascontiguousarray(inputs).tobytes(), digest_size=16)
        key.update(b"-" if n is None else n.tobytes())
        last = _LAST.get(self.engine_)
        if last is not None and last[0] == key.hexdigest():
            return last[1]
        time = self.engine_.plan.shape.time
        if time is not None and self.time_range_ is not None and len(inputs):
            asked = float(inputs[:, time].min()), float(inputs[:, time].max())
            warn_far_off(self.engine_, asked, self.time_range_)
        moments = self.engine_.moments(torch.as_tensor(inputs), counts_tensor(n)).checked()
        _LAST[self.engine_] = (key.hexdigest(), moments)
        return moments

    def predictive(
        self, X: ArrayLike, counts: ArrayLike | float | None = None, *, latent: bool = False
    ) -> Predictive:
        """The whole distribution of a new observation (or of the surface) at X: see `Predictive`."""
        return self.distribution(self.moments(X, self._counts_of(counts, latent)), latent=latent)

    def distribution(self, moments: Moments, *, latent: bool = False) -> Predictive:
        """The distribution, on the scale of y, that moments of this model describe."""
        variance = moments.latent_variance if latent else moments.latent_variance + moments.noise_variance
        center = moments.mean if latent else moments.location()
        location = self.target_mean_ + self.target_sd_ * center.double().numpy()
        if moments.in_units is not None:
            location = moments.in_units.numpy()
        nu, skew = (None, None) if latent else (moments.degrees_of_freedom, moments.log_skewness)
        bent = None if latent or moments.bent is None else moments.bent.numpy()
        peak = None
        if moments.peak is not None and not latent:
            share, offset, noise = moments.peak.double()
            wide = (moments.latent_variance + noise).sqrt()
            beyond, wide = (self.target_sd_ * v.numpy() for v in (offset, wide))
            peak = Peak(share.numpy(), location + beyond, wide)
        return Predictive(
            location=location,
            scale=self.target_sd_ * np.sqrt(np.maximum(variance.double().numpy(), 1e-30)),
            degrees_of_freedom=None if nu is None else nu.double().numpy(),
            transform=self._bent(bent),
            log_skewness=None if skew is None else skew.double().numpy(),
            least=self.engine_.least,
            peak=peak,
        )

    def scale_of_new(self, counts: float | None = None) -> Transform:
        """`transform_`, bent as the method bends it for averages of `counts` measurements (default `typical_count_`)."""
        warp = self.engine_.warp
        return self._bent(None if warp is None else warp.strength(self._counts(counts, 1)).reshape(-1)[:1])

    def _bent(self, strength: Array | None) -> Transform:
        warp = self.engine_.warp
        own = None if warp is None else warp.scaled(self.target_mean_, self.target_sd_)
        return self.transform_ if own is None or strength is None else Warped(self.transform_, own, strength)

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
        counts : measurements behind the new observation (scalar or (n,)); default `typical_count_`, of the surface
            `reference_count_`
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
        return (predictive.central(), predictive.spread()) if return_std else predictive.central()

    def _mean_and_covariance(self, X: ArrayLike, counts: Any, latent: bool) -> tuple[Array, Array]:
        if not isinstance(self.transform_, Identity):
            raise ImpossibleCombination(
                "return_cov needs target_transform 'identity'; use sample_y for joint draws under another transform."
            )
        asked = self._counts_of(counts, latent)
        moments, inputs = self.moments(X, asked), self._inputs(X)
        S = self.engine_.posterior_covariance(
            torch.as_tensor(inputs), counts_tensor(self._counts(asked, len(inputs)))
        )
        covariance = DenseJoint(S, moments.latent_variance).S
        if not latent:
            total = np.square(self.distribution(moments).sd() / self.target_sd_)
            covariance = covariance + np.diag(np.maximum(total - np.diag(covariance), 0.0))
        return self.distribution(moments, latent=latent).mean(), self.target_sd_**2 * covariance

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

    def sample_y(
        self,
        X: ArrayLike,
        n_samples: int = 1,
        random_state: int | None = 0,
        *,
        counts: ArrayLike | float | None = None,
    ) -> Array:
        """Joint draws of the surface at X: (n, n_samples), an integer seed for the same draws again.

        counts : measurements behind the averages whose level the surface is; default `reference_count_`.

        Methods with a basis draw its weights, O(n r) a draw; the others factorise the places' covariance, O(n^3).
        """
        check_is_fitted(self, "engine_")
        generator = torch.Generator().manual_seed(seed_of(random_state))
        inputs = self._inputs(X)
        check_draws(n_samples, len(inputs))
        n = counts_tensor(self._counts(self._counts_of(counts, latent=True), len(inputs)))
        draws = finite(self.engine_.sample(torch.as_tensor(inputs), n_samples, generator, n))
        return self.transform_.inverse(self.target_mean_ + self.target_sd_ * draws.double().numpy())

    def kernel_slice(self, X: ArrayLike, x_ref: ArrayLike) -> Array:
        """k(X, x_ref), the prior covariance with one place, in squared units of the working scale: (n,)."""
        check_is_fitted(self, "engine_")
        inputs = self._inputs(X)
        ref = placed(numbers_of(x_ref, "x_ref").reshape(1, -1), "x_ref")
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
        return state_of(self)

    @classmethod
    def from_state(
        cls, tensors: dict[str, torch.Tensor], facts: dict, *, device: str = "cpu"
    ) -> "GPRegressor":
        """The fitted estimator that `state` described."""
        model = cls(**{**facts["parameters"], "device": device})
        restore(model, tensors, facts)
        return model

    def _with_engine(self, engine: Engine) -> "GPRegressor":
        """This fitted estimator, carried by another engine."""
        out = copy(self)
        out.engine_ = engine
        return out

    def _inputs(self, X: ArrayLike, y: ArrayLike | None = None, *, fewest: int = 1) -> Array:
        """Inputs (n, d) like those of the fit, at least so many; y where X is not to hold it, see `features_of`."""
        check_crs(X, getattr(self, "crs_", None))
        rows = validate_data(
            self,
            features_of(X, y),
            dtype=np.float64,
            reset=False,
            ensure_min_samples=fewest,
            ensure_all_finite=False,
        )
        return placed(writable(rows), columns=names_of(X))

    def _counts_of(self, counts: ArrayLike | float | None, latent: bool) -> ArrayLike | float | None:
        """Counts named, else those of the surface; None stands for those of a new observation."""
        return self.reference_count_ if latent and counts is None else counts

    def _counts(self, counts: ArrayLike | float | None, n: int) -> Array | None:
        named = None if counts is None else checked_counts(counts, n)
        if not self.has_counts:
            return None
        return np.full(n, float(self.typical_count_ or 1.0)) if named is None else named
