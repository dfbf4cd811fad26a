"""The local field: trend + local Gaussian process + level shift + noise that knows its counts, in one fit.

    u = β₀ + β₁ t + r(x) + b(x, n) + ε,   r ~ local GP,   ε ~ skewed Student-t(0, τ²(x) + s²(x)/n)

Steps: weighted trend; kernel, global noise and level shift by the conditional likelihood; a regional level from all
places at once, to lean on where the neighbours are few or odd; then every kind of missing data is played through on
the training rows (`geogp.holdout`), and the smooth noise learns from the result, and from validation rows where they are
given, what each kind is worth. Nothing is tuned by hand: lengths are measured in spacings of the places, times in
spans of the data.
"""

import math
from dataclasses import asdict, dataclass, replace
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.calibrate import Calibration, fit_calibration, groups_of, standardised_miss
from geogp.field import kernel as local
from geogp.field import neighbours
from geogp.field.frame import SPACINGS, SPAN_SHARE, Frame, frame_of
from geogp.field.kernel import LocalFit, LocalKernel
from geogp.field.noise import HeldOutRows, SmoothNoise, fit_smooth_noise, new_smooth_noise
from geogp.field.regional import Region, RegionalLevel, fit_level, thinned
from geogp.field.surroundings import NAMES, Observations, Surroundings, count_features, survey
from geogp.field.trend import Trend, fit_trend
from geogp.field.variation import Variation
from geogp.holdout import HeldOut, left_out_kinds
from geogp.predictive import standard_moments

#: Below this many rows the smooth noise has too little to learn from; the constant one stays.
SMOOTH_FROM = 1000
#: Held-out rows within a square of this many spacings of places share their luck: one vote in calibration.
CLUSTER_SPACINGS = 30.0
#: Below this many rows the kernel is fitted by leaving out each row in turn.
HOLD_OUT_FROM = 400
#: Fewer rows over space alone say too little about lengths that differ from place to place.
VARY_FROM, VARY_AT = 10_000, 16
#: Fewer validation rows say too little about noise or coverage.
VALIDATE_FROM = 200
#: Parts of the validation rows' squares, each calibrated by a noise that did not learn from it.
FOLDS = 2


@dataclass(frozen=True)
class FieldOptions:
    """Choices of a local field; the defaults serve every data set measured so far.

    neighbours : observations a prediction rests on
    components : (smoothness, lengthscale in spacings, time lengthscale in spans) of each additive term; None
        takes three for data in time, two for data in space
    smooth : fit the smooth noise and level shift; False keeps τ² + s²/n constant over space
    regional : range of the regional level in spacings, None for no such level
    varying : places over which lengthscale and variance of the local kernel may vary smoothly, tried and kept only
        where held-out rows gain; 0 for a stationary kernel, None for 16 of them on 10,000 rows or more without time
        (on tiles measured again and again it gains nothing: Hawaii)
    n_targets : held-out rows of each kind; block_sizes : of left-out blocks, in spacings
    """

    neighbours: int = 48
    components: tuple[tuple[str, float, float], ...] | None = None
    smooth: bool = True
    regional: float | None = 100.0
    varying: int | None = None
    n_targets: int = 12000
    block_sizes: tuple[float, ...] = (10.0, 30.0)
    hidden: int = 64
    epochs: int = 20
    steps: int = 120
    batch: int = 128
    seed: int = 0


#: Tiles measured again and again: what stays at a place, what comes and goes there, and the wide field.
IN_TIME = (("matern12", 1.2, 4.0), ("matern12", 1.75, 0.4), ("matern32", 26.0, 4.0))
IN_SPACE = (("matern12", 10.0, 1.0), ("matern32", 100.0, 1.0))


@dataclass(frozen=True)
class FieldMoments:
    """(N,) each. The predictive distribution is a skewed Student-t about its mode `location`, with squared
    scale latent + noise variance; see `Predictive`."""

    location: Tensor
    latent_variance: Tensor
    noise_variance: Tensor
    prior_variance: Tensor
    degrees_of_freedom: Tensor
    log_skewness: Tensor

    @property
    def mean(self) -> Tensor:
        """(N,) of a new observation."""
        shift, _ = standard_moments(self.degrees_of_freedom.numpy(), self.log_skewness.numpy())
        return self.location + (self.latent_variance + self.noise_variance).sqrt() * torch.as_tensor(shift)


@dataclass(frozen=True)
class _Rows:
    """Surroundings of N rows to predict: moments of r, inputs (N, F) of the smooth noise, counts, base (N,) = trend and
    level shift, ahead (N,) = variance of the level beyond what was learned, prior (N,) of r, group (N,) of calibration."""

    around: Surroundings
    inputs: Tensor
    counts: Tensor
    base: Tensor
    ahead: Tensor
    prior: Tensor
    group: NDArray[np.int64]


class LocalField:
    """A fitted local field. Make one with `fit` or `from_state`."""

    def __init__(
        self,
        *,
        options: FieldOptions,
        frame: Frame,
        has_counts: bool,
        trend: Trend,
        fit: LocalFit,
        noise: SmoothNoise | None,
        seen: Observations,
        horizon: float,
        learned_until: float | None = None,
        device: str = "cpu",
    ):
        self.options, self.frame, self.has_counts = options, frame, has_counts
        self.trend, self.local, self.noise, self.seen = trend, fit, noise, seen
        #: How far ahead of the known rows the noise was learned; beyond it the level drifts.
        self.horizon = horizon
        self.calibration: Calibration | None = None
        #: Where the neighbourhoods are solved; everything else, the neighbour search included, is on the CPU.
        self.device = device
        self._seen, self._kernel = seen.to(device), fit.kernel.to(device)
        self.search = neighbours.build(
            seen.X.numpy(), scale=np.ones(seen.X.shape[1]), time_axis=self.time_axis
        )
        self.latest = float(seen.X[:, 2].max()) if self.time_axis is not None else 0.0
        #: The newest time that kernel and noise learned from; observations may be newer after an update.
        self.learned_until = self.latest if learned_until is None else learned_until
        self._region: Region | None = None
        self._level_of_all: RegionalLevel | None = None

    @property
    def time_axis(self) -> int | None:
        return None if self.frame.time is None else 2

    # -- fitting -----------------------------------------------------------------------------------

    @classmethod
    def fit(
        cls,
        X: Tensor,
        y: Tensor,
        counts: Tensor | None,
        *,
        space: tuple[int, int] = (0, 1),
        time: int | None = None,
        options: FieldOptions = FieldOptions(),
        validation: tuple[Tensor, Tensor, Tensor | None] | None = None,
        device: str = "cpu",
    ) -> Self:
        """Fit to X (N, D) raw inputs, y (N,) standardised values, counts (N,) measurements behind each or None.

        Parameters
        ----------
        space : the two columns of X with projected coordinates
        time : the column with time, or None; further columns are covariates
        validation : X, y, counts of rows that are never conditioned on: they show the smooth noise what it looks
            like to miss in the way this model will be used, and calibrate the intervals
        device : where the small dense systems are solved

        Notes
        -----
        O(N log N + (targets + steps · batch) · k³); independent of the order of the rows and of units.
        """
        n_rows = len(y)
        X, y, n = _sorted(X.double(), y.double(), counts)
        frame = frame_of(X.numpy(), space, time)
        C = frame.coordinates(X)
        has_counts = counts is not None and bool((n != n[0]).any())

        # Weights of a typical noise: a tenth of what n = 1 says stays at any n. Only the trend uses them.
        weight = 1.0 / (0.15 + 1.2 / n)
        clock = C[:, 2] if frame.time is not None else None
        columns = _shift_columns(n, has_counts)
        trend = fit_trend(clock, y, weight)
        held: list[HeldOut] = []
        if n_rows >= HOLD_OUT_FROM:
            held = left_out_kinds(
                C[:, :2].numpy(),
                None if clock is None else clock.numpy(),
                n_targets=min(options.n_targets, n_rows),
                block_sizes=options.block_sizes,
                seed=options.seed,
            )
        time_axis = None if frame.time is None else 2
        sets = [_neighbours_of(C, h, options.neighbours, time_axis) for h in held]
        fit = _best_fit(
            Observations(C, y - trend(C), n, n).to(device),
            columns.to(device),
            {
                kind: [(t.to(device), i.to(device)) for h, (t, i) in zip(held, sets) if h.kind == kind]
                for kind in ("rows", "blocks", "future")
            }
            if held
            else {"rows": [_leave_one_out(C, options.neighbours, time_axis)]},
            _starting_kernel(options, frame),
            has_counts=has_counts,
            options=options,
        )
        trend = fit_trend(clock, y - columns @ fit.shift, weight)
        field = cls(
            options=options,
            frame=frame,
            has_counts=has_counts,
            trend=trend,
            fit=fit,
            noise=None,
            seen=Observations(C, y - trend(C) - columns @ fit.shift, n, fit.noise_variance(n)),
            horizon=max((_lead(C, h) for h in held if h.kind == "future"), default=0.0),
            device=device,
        )
        asked = None if validation is None or len(validation[1]) < VALIDATE_FROM else validation
        if options.smooth and n_rows >= SMOOTH_FROM:
            learn = field._held_out_rows(held, sets, X)
            if asked is None:
                field.noise = field._fit_noise(learn)
            else:
                field._fit_noise_and_calibrate(learn, *asked)
        elif asked is not None:
            field.calibrate(*asked)
        return field

    def _held_out_rows(
        self, held: list[HeldOut], sets: list[tuple[Tensor, Tensor]], X: Tensor
    ) -> list[HeldOutRows]:
        """What the smooth noise learns from: the held-out training rows, one table for each kind."""
        seen = self.seen
        pieces: dict[str, list[HeldOutRows]] = {}
        for h, (target, index) in zip(held, sets):
            latest = float(seen.X[h.reference, 2].max()) if self.time_axis is not None else 0.0
            around = self._survey(seen.X[target], index, latest)
            level = self._level_given(torch.from_numpy(h.reference))
            known = None if level is None else level.at_observations(target)
            rows = HeldOutRows(
                features=self._inputs(around, seen.counts[target], X[target], known),
                mean=around.mean,
                variance=around.variance,
                counts=seen.counts[target],
                value=seen.value[target],
                weight=torch.ones(len(target), dtype=torch.float64),
            )
            pieces.setdefault(h.kind, []).append(rows)
        return [HeldOutRows.together(parts) for parts in pieces.values()]

    def _fit_noise(self, kinds: list[HeldOutRows], asked: HeldOutRows | None = None) -> SmoothNoise:
        """Each kind of missing data counts the same, however many targets it found; of validation rows (`asked`) none
        counts more than those rows do on average, so that a few of them cannot outvote the rest."""
        typical = sum(len(rows.value) for rows in kinds) / len(kinds)
        share = [replace(rows, weight=rows.weight * (typical / len(rows.value))) for rows in kinds]
        if asked is not None:
            share.append(replace(asked, weight=asked.weight * min(1.0, typical / len(asked.value))))
        rows = HeldOutRows.together(share)
        o = self.options
        model = new_smooth_noise(rows.features.shape[1], hidden=o.hidden, seed=o.seed)
        s2 = self.local.s2 if self.has_counts else 1e-6
        model.start_from(rows.features, self.local.tau2, s2, self.local.degrees_of_freedom or 30.0)
        fit_smooth_noise(model, rows, self.local.kernel.prior_variance, epochs=o.epochs, seed=o.seed)
        return model.eval()

    def _fit_noise_and_calibrate(
        self, learn: list[HeldOutRows], X: Tensor, y: Tensor, counts: Tensor | None
    ) -> None:
        """Let validation rows be a kind of missing data of their own, and calibrate out of fold.

        The noise that is kept learned from all of them; the misses that calibrate come from noises that did not see
        the squares they judge.
        """
        X, y, n = _sorted(X.double(), y.double(), counts)
        v = self._rows(X, n)
        asked = HeldOutRows(
            v.inputs, v.around.mean, v.around.variance, v.counts, y - v.base, torch.ones(len(y)).double()
        )
        cluster = self._squares(X)
        fold = np.random.default_rng(self.options.seed).permutation(cluster.max() + 1)[cluster] % FOLDS
        miss = np.ones(len(y))
        for part in np.unique(fold):
            inside, outside = np.flatnonzero(fold == part), np.flatnonzero(fold != part)
            self.noise = self._fit_noise(learn, asked.at(outside) if len(outside) else None)
            miss[inside] = _misses(self._moments_of(v), y)[inside]
        self.noise = self._fit_noise(learn, _thinned(asked, self.options))
        self.calibration = fit_calibration(miss, v.group, cluster=cluster)

    # -- predicting --------------------------------------------------------------------------------

    def moments(self, X: Tensor, counts: Tensor | None = None) -> FieldMoments:
        """Moments at X (N, D) of an average of `counts` (N,) measurements (default 1). Rows do not interact.

        Notes
        -----
        O(N (log n + k³)).
        """
        rows = self._rows(X.double(), counts)
        return self._calibrated(self._moments_of(rows), rows.group)

    def _rows(self, X: Tensor, counts: Tensor | None) -> _Rows:
        n = _counted(counts, len(X))
        C = self.frame.coordinates(X)
        k = min(self.options.neighbours, len(self.seen.X))
        index = torch.from_numpy(neighbours.query(self.search, C.numpy(), k))
        around = self._survey(C, index, self.latest)
        group = groups_of(n.numpy(), torch.expm1(around.features[:, NAMES.index("log_nearest")]).numpy())
        base = self._level(C, n)
        ahead = torch.zeros_like(base)
        if self.time_axis is not None:
            ahead = self.trend.extra_variance((C[:, 2] - self.latest - self.horizon).clamp_min(0.0))
        level = self._level_given(None)
        known = None if level is None else level(C[:, :2])
        prior = self.local.kernel.prior_at(C).expand(len(X))
        return _Rows(around, self._inputs(around, n, X, known), n, base, ahead, prior, group)

    def _moments_of(self, rows: _Rows) -> FieldMoments:
        """Moments before calibration."""
        around, n, base, ahead = rows.around, rows.counts, rows.base, rows.ahead
        prior, far = rows.prior, self.local.kernel.prior_variance
        if self.noise is None:
            location, latent, noise = around.mean, around.variance, self.local.noise_variance(n)
            nu = torch.full_like(base, self.local.degrees_of_freedom or 1e6)
            skew = torch.zeros_like(base)
        else:
            with torch.no_grad():
                p = self.noise(rows.inputs, around.mean, around.variance, far, n)
            location, latent, noise = p.location, p.latent_variance, p.noise_variance
            nu, skew = p.degrees_of_freedom, p.log_skewness
            prior = prior * self.noise.prior_factor()
        if self.local.kernel.variation is not None:
            # The smooth noise bounds the latent variance by the prior's far from data.
            prior = torch.maximum(prior, latent)
        return FieldMoments(base + location, latent + ahead, noise, prior + ahead, nu, skew)

    def _level(self, C: Tensor, n: Tensor) -> Tensor:
        """Trend and level shift at coordinates C for n measurements: (N,)."""
        return self.trend(C) + _shift_columns(n, self.has_counts) @ self.local.shift

    def _calibrated(self, m: FieldMoments, group: NDArray[np.int64]) -> FieldMoments:
        """Stretch the predictive scale by the noise alone: the surface's own sd stays that of the model."""
        if self.calibration is None:
            return m
        square = torch.from_numpy(self.calibration.factor(group)).square()
        wanted = square * (m.latent_variance + m.noise_variance) - m.latent_variance
        return replace(m, noise_variance=torch.maximum(wanted, 0.05 * m.noise_variance))

    def calibrate(self, X: Tensor, y: Tensor, counts: Tensor | None) -> None:
        """Fit the conformal factors to held-out rows X (M, D), y (M,), counts (M,), which stay unconditioned."""
        rows = self._rows(X.double(), counts)
        miss = _misses(self._moments_of(rows), y.double())
        self.calibration = fit_calibration(miss, rows.group, cluster=self._squares(X.double()))

    def _squares(self, X: Tensor) -> NDArray[np.int64]:
        """Number of the square that each row of X (N, D) lies in; its rows share their luck."""
        cell = np.floor(self.frame.coordinates(X)[:, :2].numpy() * (SPACINGS / CLUSTER_SPACINGS))
        return np.unique(cell, axis=0, return_inverse=True)[1].ravel()

    # -- other observations --------------------------------------------------------------------------

    def observations(self, X: Tensor, y: Tensor, counts: Tensor | None) -> Observations:
        """Rows X (M, D), y (M,), counts (M,) as this field conditions on them: less trend and level shift."""
        n = _counted(counts, len(y))
        C = self.frame.coordinates(X.double())
        return Observations(C, y.double() - self._level(C, n), n, self.local.noise_variance(n))

    def conditioned_on(self, seen: Observations) -> Self:
        """A copy of this field, all that it learned kept, that knows these observations instead of its own.

        The result does not depend on their order. Cost: one neighbour search over them.
        """
        order = np.lexsort((seen.counts.numpy(), seen.value.numpy(), *seen.X.numpy().T[::-1]))
        tensors, facts = self.state()
        tensors |= {
            "seen.X": seen.X[order],
            "seen.value": seen.value[order],
            "seen.counts": seen.counts[order],
        }
        return type(self).from_state(tensors, facts, device=self.device)

    # -- joint distributions -------------------------------------------------------------------------

    def prior_variance(self, X: Tensor) -> Tensor:
        """k(x, x) before data: (N,)."""
        factor = 1.0 if self.noise is None else self.noise.prior_factor()
        with torch.no_grad():
            return (factor * self.local.kernel.prior_at(self.frame.coordinates(X.double()))).expand(len(X))

    def prior_covariance(self, X: Tensor, X_ref: Tensor) -> Tensor:
        """k(x, x_ref) before data: (N, M)."""
        factor = 1.0 if self.noise is None else self.noise.prior_factor()
        with torch.no_grad():
            A, B = self.frame.coordinates(X.double()), self.frame.coordinates(X_ref.double())
            return factor * self.local.kernel(A, B)

    def posterior_covariance(self, X: Tensor, *, most: int = 2000) -> Tensor:
        """Covariance of the surface at X (N, D) given the data: (N, N), its diagonal that of `moments`.

        The correlation is that of the Gaussian process given the union of all places' neighbours (the
        nearest `most` of them by how often they are named).

        Notes
        -----
        O((N + most)³): for up to some thousand places.
        """
        X = X.double()
        C = self.frame.coordinates(X)
        index = neighbours.query(self.search, C.numpy(), self.options.neighbours)
        names, times = np.unique(index[index >= 0], return_counts=True)
        rows = np.sort(names[np.argsort(-times, kind="stable")[:most]])
        seen = self.seen
        with torch.no_grad():
            _, S = local.joint(
                self.local.kernel, C, seen.X, seen.value, seen.noise_variance, torch.from_numpy(rows)
            )
        sd = S.diagonal().clamp_min(1e-300).sqrt()
        own = self.moments(X).latent_variance.sqrt() / sd
        return S * own[:, None] * own[None, :]

    # -- state -----------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Tensor], dict]:
        """Tensors and JSON-able facts from which `from_state` restores the field."""
        fit = self.local
        tensors = {
            "kernel.log_lengthscale": fit.kernel.log_lengthscale,
            "kernel.log_variance": fit.kernel.log_variance,
            "shift": fit.shift,
            "seen.X": self.seen.X,
            "seen.value": self.seen.value,
            "seen.counts": self.seen.counts,
        }
        if (bumps := fit.kernel.variation) is not None:
            tensors |= {
                "kernel.centres": bumps.centres,
                "kernel.stretch": bumps.lengthscale,
                "kernel.amplitude": bumps.variance,
            }
        if self.noise is not None:
            tensors |= {f"noise.{name}": value for name, value in self.noise.state_dict().items()}
        facts = {
            "options": asdict(self.options),
            "frame": asdict(self.frame),
            "trend": asdict(self.trend),
            "has_counts": self.has_counts,
            "horizon": self.horizon,
            "learned_until": self.learned_until,
            "smoothness": list(fit.kernel.smoothness),
            "tau2": fit.tau2,
            "s2": fit.s2,
            "degrees_of_freedom": fit.degrees_of_freedom,
            "loss": list(fit.loss),
            "width": None if fit.kernel.variation is None else fit.kernel.variation.width,
            "weighted": fit.weighted,
            "calibration": None if self.calibration is None else asdict(self.calibration),
        }
        return {name: value.detach().contiguous() for name, value in tensors.items()}, facts

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor], facts: dict, *, device: str = "cpu") -> Self:
        """The field that `state` described."""
        o, f = dict(facts["options"]), facts["frame"]
        if o["components"] is not None:
            o["components"] = tuple((str(n), float(a), float(b)) for n, a, b in o["components"])
        o["block_sizes"] = tuple(o["block_sizes"])
        o.setdefault("regional", None)  # fields saved before there was a regional level
        frame = Frame(
            space=(f["space"][0], f["space"][1]),
            time=f["time"],
            others=tuple(f["others"]),
            origin=tuple(f["origin"]),
            space_unit=f["space_unit"],
            time_unit=f["time_unit"],
        )
        variation = None
        if "kernel.centres" in tensors:
            variation = Variation(
                tensors["kernel.centres"],
                facts["width"],
                tensors["kernel.stretch"],
                tensors["kernel.amplitude"],
            )
        kernel = LocalKernel(
            tensors["kernel.log_lengthscale"],
            tensors["kernel.log_variance"],
            tuple(facts["smoothness"]),
            None if frame.time is None else 2,
            variation,
        )
        fit = LocalFit(
            kernel,
            facts["tau2"],
            facts["s2"],
            facts["degrees_of_freedom"],
            tensors["shift"],
            tuple(facts["loss"]),
            facts["weighted"],
        )
        options = FieldOptions(**o)
        noise = None
        if "noise.center" in tensors:
            noise = new_smooth_noise(len(tensors["noise.center"]), hidden=options.hidden)
            noise.load_state_dict({k[6:]: v for k, v in tensors.items() if k.startswith("noise.")})
            noise.eval()
        n = tensors["seen.counts"]
        field = cls(
            options=options,
            frame=frame,
            has_counts=facts["has_counts"],
            trend=Trend(**facts["trend"]),
            fit=fit,
            noise=noise,
            seen=Observations(tensors["seen.X"], tensors["seen.value"], n, fit.noise_variance(n)),
            horizon=facts["horizon"],
            learned_until=facts.get("learned_until"),
            device=device,
        )
        if (c := facts["calibration"]) is not None:
            field.calibration = Calibration(c["pooled"], tuple(c["factors"]), tuple(c["rows"]), c["level"])
        return field

    def _survey(self, C: Tensor, index: Tensor, latest: float) -> Surroundings:
        with torch.no_grad():
            around = survey(
                self._kernel,
                self._seen,
                C.to(self.device),
                index.to(self.device),
                spacing=1.0 / SPACINGS,
                space=(0, 1),
                latest=latest,
                degrees_of_freedom=self.local.tails,
            )
        return Surroundings(around.mean.cpu(), around.variance.cpu(), around.features.cpu())

    def _level_given(self, rows: Tensor | None) -> RegionalLevel | None:
        """The regional level given some of the observations, or all of them; None where the field has none."""
        if self.options.regional is None or not self.options.smooth:
            return None
        if rows is None and self._level_of_all is not None:
            return self._level_of_all
        seen, variance = self.seen, self.local.kernel.log_variance.exp()
        if self._region is None:
            self._region = Region.of(seen.X[:, :2].contiguous(), self.options.regional / SPACINGS)
        # The last component is the widest: what it carries beyond the neighbours is regional, the rest is places'.
        level = fit_level(
            self._region,
            torch.arange(len(seen.value)) if rows is None else rows,
            seen.value,
            seen.noise_variance,
            place_variance=float(variance[:-1].sum()),
            prior_variance=float(variance[-1]),
            degrees_of_freedom=self.local.tails,
        )
        if rows is None:
            self._level_of_all = level
        return level

    def _inputs(
        self, around: Surroundings, n: Tensor, X: Tensor, level: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """Inputs of the smooth noise: surroundings, regional level, count, time (held at the newest learned from),
        covariates."""
        parts = [around.features]
        if level is not None:
            g, variance = level
            gap = g - around.mean
            known = around.variance / self.local.kernel.prior_variance
            parts.append(torch.stack([g, gap, gap * known, variance.clamp_min(1e-12).log()], dim=-1))
        if self.frame.time is not None:
            parts.append(self.frame.coordinates(X)[:, 2:].clamp_max(self.learned_until))
        if self.has_counts:
            parts.append(count_features(n))
        parts += [X[:, d : d + 1] for d in self.frame.others]
        return torch.cat(parts, dim=-1)


Targets = list[tuple[Tensor, Tensor]]


def _best_fit(
    seen: Observations,
    columns: Tensor,
    kinds: dict[str, Targets],
    start: LocalKernel,
    *,
    has_counts: bool,
    options: FieldOptions,
) -> LocalFit:
    """Kernel and noise that predict held-out rows best, over all kinds of missing data alike.

    Weighing observations as Student-t (`student_weights`) helps where outliers are wrong and hurts where they
    are right. Over space alone, rows left out singly ask for short lengths and left-out blocks for long ones:
    both kernels are tried. In time most places have a history of their own, and the kernel of the single rows
    serves gaps as well (the other one was better on two of nine Hawaiian splits). A level that shifts with the count
    stays only where held-out rows gain by it.
    """

    def fitted(targets: Targets, weighted: bool, start: LocalKernel = start) -> LocalFit:
        return local.fit(
            seen.X,
            seen.value,
            seen.counts,
            targets,
            start,
            columns=columns,
            weighted=weighted,
            per_count=has_counts,
            steps=options.steps,
            batch=min(options.batch, max(len(seen.value), 8)),
            seed=options.seed,
        )

    def quality(fit: LocalFit) -> float:
        return sum(_held_out_density(fit, seen, columns, t) for t in kinds.values() if t)

    rows, blocks = kinds["rows"], [] if start.time_axis is not None else kinds.get("blocks", [])
    best = fitted(rows, True)
    reached = quality(best)
    heavy = (best.degrees_of_freedom or math.inf) < local.GAUSSIAN_FROM
    if heavy and quality(replace(best, weighted=False)) > reached:
        best = fitted(rows, False)
        reached = quality(best)
    if blocks:
        mixed = [s for i, block in enumerate(blocks) for s in (rows[i % len(rows)], block)]
        other = fitted(mixed, best.weighted)
        best = other if quality(other) > reached else best
    varying = options.varying
    if varying is None:
        varying = VARY_AT if start.time_axis is None and len(seen.value) >= VARY_FROM else 0
    if varying:
        centres = torch.from_numpy(thinned(seen.X[:, :2].cpu().numpy(), varying)[0])
        bent = replace(best.kernel, variation=Variation.flat(centres))
        other = fitted(rows, best.weighted, bent)
        best = other if quality(other) > quality(best) else best
    if has_counts:
        level = replace(best, shift=torch.zeros_like(best.shift))
        best = best if quality(best) > quality(level) else level
    return best


def _held_out_density(
    fit: LocalFit, seen: Observations, columns: Tensor, sets: Targets, most: int = 800
) -> float:
    """Mean log density of some held-out rows under the kernel and the constant noise."""
    total, count = 0.0, 0
    kernel, nu = fit.kernel.to(seen.X.device), fit.degrees_of_freedom
    value = seen.value - columns @ fit.shift.to(seen.X.device)
    noise = fit.noise_variance(seen.counts)
    share = max(1, sum(len(t) for t, _ in sets) // most)
    for target, index in sets:
        for t, i in zip(target[::share].split(local.CHUNK), index[::share].split(local.CHUNK)):
            with torch.no_grad():
                density = local.conditional_log_density(
                    kernel,
                    seen.X,
                    value,
                    noise,
                    t,
                    i,
                    None if nu is None else torch.as_tensor(nu, dtype=value.dtype),
                    weighted=fit.weighted,
                )
            total, count = total + float(density.sum()), count + len(t)
    return total / count


def _misses(m: FieldMoments, y: Tensor) -> NDArray[np.float64]:
    """`standardised_miss` of values y (N,) at the level that calibration looks at."""
    return standardised_miss(
        y.numpy(),
        m.location.numpy(),
        (m.latent_variance + m.noise_variance).sqrt().numpy(),
        m.degrees_of_freedom.numpy(),
        0.95,
        m.log_skewness.numpy(),
    )


def _counted(counts: Tensor | None, n: int) -> Tensor:
    """Measurements behind each of n rows: (n,) float64, 1 where nothing counts them."""
    return torch.ones(n, dtype=torch.float64) if counts is None else counts.double().clamp_min(1.0)


def _sorted(X: Tensor, y: Tensor, counts: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Rows in an order that does not depend on the one given; counts 1 where there are none."""
    n = _counted(counts, len(y))
    order = np.lexsort((n.numpy(), y.numpy(), *X.numpy().T[::-1]))
    return X[order], y[order], n[order]


def _thinned(rows: HeldOutRows, options: FieldOptions) -> HeldOutRows:
    """At most `n_targets` of them, as of every other kind."""
    n = len(rows.value)
    if n <= options.n_targets:
        return rows
    keep = np.random.default_rng(options.seed).choice(n, options.n_targets, replace=False)
    return rows.at(np.sort(keep))


def _neighbours_of(C: Tensor, held: HeldOut, k: int, time_axis: int | None) -> tuple[Tensor, Tensor]:
    known = held.reference
    search = neighbours.build(C[known].numpy(), scale=np.ones(C.shape[1]), time_axis=time_axis)
    index = neighbours.query(search, C[held.target].numpy(), k)
    index = np.where(index >= 0, known[index], neighbours.MISSING)
    return torch.from_numpy(held.target), torch.from_numpy(index[:, : len(known)])


def _leave_one_out(C: Tensor, k: int, time_axis: int | None) -> tuple[Tensor, Tensor]:
    rows = np.arange(len(C))
    search = neighbours.build(C.numpy(), scale=np.ones(C.shape[1]), time_axis=time_axis)
    index = neighbours.query(search, C.numpy(), k, own_row=rows)
    return torch.from_numpy(rows), torch.from_numpy(index[:, : len(C)])


def _lead(C: Tensor, held: HeldOut) -> float:
    """How far the last target lies ahead of the newest reference row."""
    return float(C[held.target, 2].max() - C[held.reference, 2].max())


def _shift_columns(n: Tensor, has_counts: bool) -> Tensor:
    return torch.stack([1.0 / n, n.rsqrt()], dim=-1) if has_counts else n.new_zeros(len(n), 0)


def _starting_kernel(options: FieldOptions, frame: Frame) -> LocalKernel:
    components = options.components or (IN_TIME if frame.time is not None else IN_SPACE)
    lengths = [
        [size / SPACINGS] * 2 + ([span / SPAN_SHARE] if frame.time is not None else [])
        for _, size, span in components
    ]
    # The wide and the lasting parts carry most; the network sees what is left either way.
    variance = [0.15] * len(components)
    return LocalKernel(
        torch.tensor(lengths, dtype=torch.float64).log(),
        torch.tensor(variance, dtype=torch.float64).log(),
        tuple(name for name, _, _ in components),
        None if frame.time is None else 2,
    )
