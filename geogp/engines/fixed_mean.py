"""Fixed-mean GP: the variance of a Gaussian process around a predictor that stays as it is."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Num
from torch import Tensor, nn

from geogp.basis.build import build
from geogp.basis.initialise import warm_start
from geogp.basis.model import LowRankGP, in_double
from geogp.basis.objectives import OBJECTIVES, Weights
from geogp.basis.objectives.objective import GIVEN_MEAN
from geogp.basis.train import Loss, Watch, terms_of, train
from geogp.data import CHUNK, Data, Moments
from geogp.engines.base import Hooks, Plan
from geogp.engines.lowrank import EXACT_ROWS, WIDE, LowRankEngine
from geogp.engines.network import train_network
from geogp.engines.pieces import in_pieces
from geogp.errors import InvalidInput
from geogp.methods import Method
from geogp.rasters import Raster

#: The network that is frozen when no predictor is given.
OWN = Method(
    "own network", "", "", "", engine="network", expansion="last_layer", objective="mse", posterior="point"
)


class FixedMeanGP(LowRankGP):
    """A sparse GP whose mean is the last column of X: q(w) has mean 0, the auxiliary q* has mean `auxiliary`.

    Source: fixed-mean-gp, eq. 25 (the variance) and 28-30.
    """

    def __init__(self, model: LowRankGP):
        super().__init__(
            encoder=model.encoder,
            backbone=model.backbone,
            expansion=model.expansion,
            residual=model.residual,
            noise=model.noise,
            posterior=model.posterior,
        )
        self.auxiliary = nn.Parameter(torch.zeros(self.expansion.rank))
        self.constant_mean.requires_grad_(False)
        self.posterior.mean.requires_grad_(False)

    def kernel_parameters(self) -> list[nn.Parameter]:
        return [*super().kernel_parameters(), self.auxiliary]

    def standardised(self, X: Tensor) -> Tensor:
        return super().standardised(X[:, : self.encoder.n_inputs])

    def represent(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return super().represent(X[:, : self.encoder.n_inputs])

    def features(self, X: Tensor) -> Tensor:
        return super().features(X[:, : self.encoder.n_inputs])

    def moments(self, X: Tensor, counts: Tensor | None = None) -> Moments:
        """As `LowRankGP.moments`; the mean is 0 where X has no last column."""
        m = super().moments(X, counts)
        if X.shape[1] == self.encoder.n_inputs:
            return m
        return Moments(X[:, -1].to(m.mean.dtype), m.latent_variance, m.noise_variance, m.prior_variance)


class FixedMeanEngine(LowRankEngine):
    """`FixedMeanGP` around a predictor: its mean is the predictor's output, bit for bit.

    options : predictor, that maps X (N, D) float64 to (N,) in target units: a function, a scikit-learn model, a torch
        module, or a raster (a DataArray in the coordinates of X, or `geogp.rasters.Raster`) whose pixel at a place
        is the mean there, NaN where it has none. Without one a network is trained and frozen. A run on disk holds
        the network or the raster; of the others only code would be a record, so `attach` them after loading.
    """

    objectives_do: ClassVar[tuple[str, ...]] = (GIVEN_MEAN,)
    leaves_over: ClassVar[bool] = False
    chooses_scales: ClassVar[bool] = False
    has_trials: ClassVar[bool] = False
    streams: ClassVar[bool] = False
    rescales: ClassVar[bool] = False
    fixes_scale: ClassVar[bool] = True
    takes_predictor: ClassVar[bool] = True
    trains_network: ClassVar[bool] = True
    model_lines: ClassVar[tuple[str, ...]] = (
        "y | f ~ noise(f(x), n),  E f(x) = the predictor's value,  var f(x) = var φ(x)'w + var r(x)",
    )
    example_options: ClassVar[tuple[str, str]] = (" --predictor map.tif", ', options={"predictor": model}')

    @classmethod
    def far(cls, row: Method) -> tuple[str, str]:
        return "the predictor's own value, to the bit; none outside a raster", "the prior's"

    @classmethod
    def update_kind(cls, row: Method) -> str:
        return ""

    predictor: Any = None
    own: LowRankGP | None = None

    @classmethod
    def new(cls, plan: Plan) -> FixedMeanGP:
        return FixedMeanGP(build(plan.row, plan.shape, plan.size, seed=plan.seed))

    @classmethod
    def fit(cls, plan: Plan, data: Data, validation: Data | None, hooks: Hooks = Hooks()) -> Self:
        model = cls.new(plan)
        engine = cls(plan, model, {})
        engine.attach(plan.options.get("predictor"))
        if engine.predictor is None:
            net = Plan(OWN, plan.shape, plan.size, plan.schedule, plan.weights, plan.seed, plan.device)
            engine.own, _ = train_network(net, data, validation, hooks.within("the network first"))
        plain, _ = plan.place(model, data, None)
        data = engine.with_mean(data).to(plain.X.device)
        validation = None if validation is None else engine.with_mean(validation).to(plain.X.device)
        warm_start(model, plain.X, plain.y, plain.counts, seed=plan.seed)
        with torch.no_grad():
            model.auxiliary.copy_(model.posterior.mean)
            model.posterior.mean.zero_()
        loss_of = OBJECTIVES[plan.row.objective]
        model.train()
        progress = train(
            model,
            data,
            Loss.of(plan.row.objective, lambda batch: two_measures(model, batch, len(data), loss_of)),
            schedule=plan.schedule,
            watch=Watch(validation),
            seed=plan.seed,
            hooks=hooks,
        )
        model.residual.settle(model, plain)
        engine.facts = {**progress.facts(), "predictor": kind_of(engine.predictor)}
        return engine

    def attach(self, predictor: Any) -> None:
        """Use `predictor` for the mean from now on, e.g. after loading a run from disk."""
        if isinstance(predictor, xr.DataArray):
            places = self.plan.shape.spatial or (0, 1)
            if len(places) != 2:
                raise InvalidInput(
                    "a raster is read at easting and northing, and the places lie along a line."
                )
            predictor = Raster.of(predictor, columns=(places[0], places[1]))
        self.predictor = predictor

    def mean_in_units(self, X: Tensor) -> Tensor:
        """The predictor's output at X, in target units, float64: (N,)."""
        if self.own is not None:
            own = in_double(self.own) if len(X) <= EXACT_ROWS else self.own
            device = own.constant_mean.device
            wide = own.expansion.rank >= WIDE
            z = in_pieces(lambda part: own.moments(X[part].to(device)), len(X), CHUNK, device, wide=wide).mean
            return self.plan.target_mean + self.plan.target_sd * z.double().cpu()
        if self.predictor is None:
            raise InvalidInput(
                "this fixed-mean GP was fitted around a predictor in memory, which a run folder cannot hold; "
                "give it back with geogp.load(path, predictor=..) or model.attach(predictor)."
            )
        return as_function(self.predictor)(X.cpu())

    def standardised_mean(self, X: Tensor) -> Tensor:
        return (self.mean_in_units(X) - self.plan.target_mean) / self.plan.target_sd

    def with_mean(self, data: Data) -> Data:
        """The rows with the standardised mean as one more column; a raster must have a value at each of them."""
        mean = self.standardised_mean(data.X)
        without = int((~torch.isfinite(mean)).sum())
        if without:
            raise InvalidInput(
                f"the raster has no value at {without:,} of {len(mean):,} rows to fit; fill its gaps (gdal_fillnodata), "
                "take one that covers them, or drop those rows."
            )
        return Data(torch.cat([data.X.cpu(), mean[:, None]], 1), data.y, data.counts)

    def moments(self, X: Float[Tensor, "N D"], counts: Num[Tensor, " N"] | None = None) -> Moments:
        fixed = self.mean_in_units(X)
        z = (fixed - self.plan.target_mean) / self.plan.target_sd
        m = super().moments(X, counts)
        return Moments(z, m.latent_variance, m.noise_variance, m.prior_variance, in_units=fixed)

    def sample(
        self,
        X: Float[Tensor, "N D"],
        n_samples: int,
        generator: torch.Generator,
        counts: Num[Tensor, " N"] | None = None,
    ) -> Float[Tensor, "N n_samples"]:
        """Draws about the predictor, which is the mean of the surface: (N, n_samples) float64."""
        draws = super().sample(X, n_samples, generator, counts)
        if self.model.residual.needs_base_kernel:  # the general way, which asks `moments` for the mean
            return draws
        return draws + (self.standardised_mean(X) - float(self.model.constant_mean))[:, None]

    def state(self) -> tuple[dict[str, Tensor], dict]:
        tensors, facts = super().state()
        if self.own is not None:
            tensors |= {f"own.{k}": v.detach().cpu().contiguous() for k, v in self.own.state_dict().items()}
        if isinstance(self.predictor, Raster):
            values, about = self.predictor.state()
            tensors |= {f"raster.{k}": v for k, v in values.items()}
            facts = {**facts, "raster": about}
        return tensors, facts

    @classmethod
    def from_state(cls, plan: Plan, tensors: dict[str, Tensor], facts: dict) -> Self:
        engine = super().from_state(plan, tensors, facts)
        engine.attach(plan.options.get("predictor"))
        if "raster" in facts:
            values = {k.removeprefix("raster."): v for k, v in tensors.items() if k.startswith("raster.")}
            engine.attach(Raster.from_state(values, facts["raster"]))
        own = {k.removeprefix("own."): v for k, v in tensors.items() if k.startswith("own.")}
        if own:
            engine.own = build(OWN, plan.shape, plan.size, seed=plan.seed)
            engine.own.load_state_dict(own)
            engine.own.to(torch.device(plan.device)).eval()
        return engine


def two_measures(model: FixedMeanGP, batch: Data, n_total: int, loss_of: Callable[..., Tensor]) -> Tensor:
    """The loss of q, whose mean is given, plus that of q*, whose mean is learned (eq. 30)."""
    terms = terms_of(model, batch, n_total)
    given = replace(terms, mean=batch.X[:, -1].to(terms.y.dtype))
    phi = model.features(batch.X)
    own = replace(terms, mean=phi @ model.auxiliary, kl=terms.kl + 0.5 * model.auxiliary.square().sum())
    return loss_of(given, Weights()) + loss_of(own, Weights())


def kind_of(predictor: Any) -> str:
    """What run.json says of a predictor."""
    if predictor is None:
        return "own network"
    return "raster" if isinstance(predictor, Raster) else f"given ({type(predictor).__name__})"


def as_function(predictor: Any) -> Callable[[Tensor], Tensor]:
    """X (N, D) float64 -> (N,) float64, from a torch module, an object with `predict`, a function or a raster.

    A raster alone may have no value (NaN) at some rows.

    Raises
    ------
    InvalidInput
        when it is none of them, or does not give one finite number a row.
    """
    if isinstance(predictor, str | Path):
        raise InvalidInput(
            f"predictor {str(predictor)!r} is a file: open it first, as options={{'predictor': maps.open_raster(path)}}; "
            "on the command line --predictor does so."
        )
    if not (isinstance(predictor, nn.Module) or hasattr(predictor, "predict") or callable(predictor)):
        raise InvalidInput(
            "predictor must be a function, a torch module, a model with predict, or a raster; got "
            f"{type(predictor).__name__}."
        )

    def function(X: Tensor) -> Tensor:
        if isinstance(predictor, nn.Module):
            first = next(iter(predictor.parameters()), torch.zeros(()))
            with torch.no_grad():
                out = predictor(X.to(first)).detach().cpu()
        elif hasattr(predictor, "predict"):
            out = torch.as_tensor(np.asarray(predictor.predict(X.numpy()), dtype=np.float64))
        else:
            out = torch.as_tensor(np.asarray(predictor(X.numpy()), dtype=np.float64))
        out = out.double().reshape(-1)
        if isinstance(predictor, Raster):
            return out
        if len(out) != len(X) or not bool(torch.isfinite(out).all()):
            raise InvalidInput(
                f"the predictor must give one finite number for each of the {len(X)} rows; it gave {len(out)}"
                f"{'' if bool(torch.isfinite(out).all()) else ' with some NaN or infinite'}."
            )
        return out

    return function
