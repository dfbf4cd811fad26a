"""What everybody needs of whatever carries a method: moments, joint posterior, updates, a state without pickle.

An engine also says what its rows may choose and what their pages tell, so that a new row needs no other edit.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Num
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from geogp.basis.backbones import BACKBONES
from geogp.basis.expansions import EXPANSIONS
from geogp.basis.residuals import RESIDUALS
from geogp.basis.statistics import Statistic
from geogp.data import Data, Moments
from geogp.engines.joint import MOST_DENSE, DenseJoint, Joint
from geogp.engines.plan import Hooks, Plan
from geogp.errors import InvalidInput
from geogp.linalg import cholesky
from geogp.methods import Method
from geogp.transforms import Warp

#: How a row's runs are updated.
STATISTICS, OBSERVATIONS = "statistics", "observations"
#: Pairs whose joint posterior is asked for at once.
PAIRS_AT_ONCE = 128
#: What a network's mean comes to far from data.
NETWORK_FAR = "what the network makes of inputs it has not seen, bounded by its last layer"


class Engine(ABC):
    """A fitted model of standardised targets. X (N, D) is float64 raw input, counts (N,) or None.

    Subclasses are registered in `geogp.engines.ENGINES`. They keep tensors on `plan.device` and accept CPU
    inputs there; `state` and `from_state` exchange CPU tensors and JSON-able numbers only.
    """

    #: How the weights get their distribution: learned by minibatches, or solved for from all rows.
    route: ClassVar[str] = "variational"
    #: What an objective of its rows may do (`Objective.does`), and the posteriors they may have.
    objectives_do: ClassVar[tuple[str, ...]] = ()
    posteriors: ClassVar[tuple[str, ...]] = ("solved",)
    #: Whether a residual that is a process of its own can be fitted to what it leaves over.
    leaves_over: ClassVar[bool] = False
    #: Whether it is built from an expansion, a residual and a noise of `geogp.basis`.
    has_basis: ClassVar[bool] = True
    #: Of an engine that is not: which further values of a choice it reads, beside those that its rows have.
    reads: ClassVar[dict[str, tuple[str, ...]]] = {}
    #: Whether rows held out may rescale its variances, see `geogp.basis.rescale`.
    rescales: ClassVar[bool] = False
    #: Whether the scale of the target is part of the method, so that no transform may change it.
    fixes_scale: ClassVar[bool] = False
    #: What no target can fall below, in target units; predictions are held there.
    least: ClassVar[float] = -math.inf
    #: Whether its mean can be somebody else's model, given as the option "predictor".
    takes_predictor: ClassVar[bool] = False
    #: Whether a network is trained by minibatches on its way, so that few rows would be learned by heart.
    trains_network: ClassVar[bool] = False
    #: Whether the Fourier scales of its rows may be chosen on rows held out, see `geogp.basis.capacity`.
    chooses_scales: ClassVar[bool] = False
    #: Whether it does nothing without a position, so that the only column there is must be one.
    needs_position: ClassVar[bool] = False
    #: Whether places left out of a trial can tell how its variance grows away from data, see `geogp.engines.growth`.
    has_trials: ClassVar[bool] = False
    #: Whether it takes care itself of rows to hold out.
    holds_out: ClassVar[bool] = False
    #: Whether it learns from rows that are read a group at a time, see `geogp.update.streaming`.
    streams: ClassVar[bool] = False
    #: Of the methods' pages: the model, a line each, and the choices whose formula stands below it.
    model_lines: ClassVar[tuple[str, ...]] = (
        "y | f ~ noise(f(x), n),  f(x) = m + φ(x)'w + r(x),  w ~ N(0, I)",
    )
    formulas_of: ClassVar[tuple[str, ...]] = ("expansion", "residual", "objective")
    #: Words for a choice that means something else here than in its docstring.
    words: ClassVar[dict[str, str]] = {}
    #: Of the usage on the pages: the target to fit, a further option of the command and of the constructor.
    example_target: ClassVar[str] = "download"
    example_options: ClassVar[tuple[str, str]] = ("", "")
    #: Of the targets and counts that `fit` is given.
    dtype: ClassVar[torch.dtype] = torch.float32

    plan: Plan

    # -- what its rows are -------------------------------------------------------------------------

    @classmethod
    def far(cls, row: Method) -> tuple[str, str]:
        """What mean and latent sd of a row come to far from all data, in words."""
        if not BACKBONES[row.backbone].is_network:
            return EXPANSIONS[row.expansion.split("+")[0]].far
        return NETWORK_FAR, RESIDUALS[row.residual].far_behind_network

    @classmethod
    def own_settings(cls, row: Method) -> tuple[str, ...]:
        """Parameters of `GPRegressor` that it takes as options of the same name, since it has no network to train."""
        return ()

    @classmethod
    def update_kind(cls, row: Method) -> str:
        """How runs of a row are updated: `STATISTICS`, `OBSERVATIONS`, or "" where they cannot be."""
        return ""

    @property
    def spread(self) -> str:
        """How wide its predictions are made, for comparisons: "own" where the method sees to it itself, or the row's
        choice, with the degrees of freedom of its tails."""
        return "own"

    @property
    def warp(self) -> Warp | None:
        """The scale, of standardised targets, on which new observations are as its moments say; None for the targets' own."""
        return None

    @property
    def has_tails(self) -> bool:
        """Whether a new observation has degrees of freedom, here or anywhere."""
        shape = self.plan.shape
        counts = torch.ones(1) if shape.has_counts else None
        return self.moments(torch.zeros(1, shape.n_inputs).double(), counts).degrees_of_freedom is not None

    # -- fitting and predicting --------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def fit(cls, plan: Plan, data: Data, validation: Data | None, hooks: Hooks = Hooks()) -> Self:
        """Train on `data`; `validation` rows choose and stop but are never conditioned on."""

    @abstractmethod
    def moments(self, X: Float[Tensor, "N D"], counts: Num[Tensor, " N"] | None = None) -> Moments:
        """Mean, latent, noise and prior variance at X, each (N,). No gradient. Any N: chunk inside."""

    def moments_by_count(
        self, X: Float[Tensor, "N D"], counts: Sequence[Num[Tensor, " N"] | None]
    ) -> list[Moments]:
        """`moments` at X for each of several (N,) counts; an engine may share what they have in common."""
        return [self.moments(X, n) for n in counts]

    def features(self, X: Float[Tensor, "N D"]) -> Float[Tensor, "N r"] | None:
        """phi(x) on the CPU, (N, r), of a kernel that is phi'phi (and a residual); None for any other."""
        return None

    def prior_variance(self, X: Float[Tensor, "N D"]) -> Float[Tensor, " N"]:
        """k(x, x) before data: (N,)."""
        n = X.new_ones(len(X), dtype=torch.float32) if self.plan.shape.has_counts else None
        return self.moments(X, n).prior_variance

    def prior_slice(
        self, X: Float[Tensor, "N D"], x_ref: Float[Tensor, "1 D"]
    ) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
        """Prior covariance and correlation of the surface at X (N, D) with one place x_ref (1, D): (N,) float64 each."""
        covariance = self.prior_covariance(X, x_ref)[:, 0].double()
        variance = self.prior_variance(X).double() * float(self.prior_variance(x_ref)[0])
        return covariance, (covariance / variance.clamp_min(1e-30).sqrt()).clamp(-1.0, 1.0)

    @abstractmethod
    def prior_covariance(self, X: Float[Tensor, "N D"], X_ref: Float[Tensor, "M D"]) -> Float[Tensor, "N M"]:
        """k(x, x_ref) before data: (N, M)."""

    @abstractmethod
    def posterior_covariance(
        self, X: Float[Tensor, "N D"], counts: Num[Tensor, " N"] | None = None
    ) -> Float[Tensor, "N N"]:
        """Covariance of the surface at X given the data: (N, N), its diagonal the latent variance of `moments`."""

    # -- joint posterior ---------------------------------------------------------------------------

    @property
    def most_places(self) -> int | None:
        """How many places `joint` takes at once; None for as many as one likes."""
        return MOST_DENSE

    def joint(self, X: Float[Tensor, "N D"], latent_variance: Float[Tensor, " N"]) -> Joint:
        """The joint posterior of the surface at X (N, D), whose latent variances are already known.

        This general way factorises the posterior covariance, O(N^3).

        Raises
        ------
        InvalidInput
            more places than `most_places`.
        """
        if len(X) > MOST_DENSE:
            raise InvalidInput(
                f"method {self.plan.row.name!r} takes at most {MOST_DENSE} places at once; got {len(X)}: take fewer, "
                "or a method with a learned basis or a local field."
            )
        return DenseJoint(self.posterior_covariance(X), latent_variance)

    def correlation(
        self,
        before: Float[Tensor, "N D"],
        after: Float[Tensor, "N D"],
        latent_variance: Float[Tensor, "2 N"],
    ) -> Float[np.ndarray, " N"]:
        """Of the surface's errors at rows `before` and `after`, pair by pair, the latent variances of both known.

        This general way asks for the joint posterior of some pairs at a time.
        """
        out = np.empty(len(before))
        for start in range(0, len(before), PAIRS_AT_ONCE):
            part = slice(start, start + PAIRS_AT_ONCE)
            variance = latent_variance[:, part]
            joint = self.joint(torch.cat([before[part], after[part]]), variance.flatten())
            # var(a - b) of standardised a, b is 2 (1 - r): rows of the two alone, then of no other pair.
            scale = 1.0 / np.sqrt(np.maximum(variance.double().numpy(), 1e-300))
            W = sparse.hstack([sparse.diags_array(scale[0]), -sparse.diags_array(scale[1])], format="csr")
            of_difference = joint.covariance(sparse.csr_array(W)).diagonal()
            out[part] = np.clip(1.0 - 0.5 * of_difference, -1.0, 1.0)
        return out

    # -- updates -----------------------------------------------------------------------------------

    @property
    def refits_by_conditioning(self) -> bool:
        """Whether a refit on more rows keeps all that was learned and only comes to know them."""
        return False

    def taught(self) -> dict[str, Any]:
        """What validation rows taught it beside the epoch, JSON-able: a refit that takes them in is given it
        (`Hooks.taught`), since no row is left to teach it again."""
        return {}

    def check_update(self) -> None:
        """Refuse where this very model cannot be updated though its row can.

        Raises
        ------
        InvalidInput
        """
        return

    def summarise(self, data: Data, labels: NDArray[np.str_]) -> dict[str, Statistic]:
        """One statistic for each label of rows (n,): what `refreshed` merges."""
        raise self._not_so("has no features to summarise", "give it other observations with `recondition`")

    def refreshed(self, merged: Statistic) -> "Engine":
        """This engine with the weights of exactly the rows of a statistic."""
        raise self._not_so("has no features to summarise", "give it other observations with `recondition`")

    def reconditioned(self, data: Data | None, keep: Bool[Tensor, " n"] | None) -> "Engine":
        """This engine knowing other observations: those of before that `keep` names (all for None), and new ones."""
        raise self._not_so("is no local field", "renew its weights with `refresh`")

    def observed_times(self) -> Float[np.ndarray, " n"] | None:
        """The time of each observation it is conditioned on, as X had it: (n,), or None without a time."""
        raise self._not_so("is no local field", "renew its weights with `refresh`")

    def observed_rows(self) -> Float[np.ndarray, "n d"]:
        """The row of X of each of them, in the same order, but for rounding; NaN in a column that is not kept."""
        raise self._not_so("is no local field", "renew its weights with `refresh`")

    def _not_so(self, what: str, remedy: str) -> InvalidInput:
        """What to raise where this engine cannot be updated in the way asked for."""
        return InvalidInput(f"method {self.plan.row.name!r} {what}; {remedy}.")

    # -- further -----------------------------------------------------------------------------------

    def attach(self, predictor: Any) -> None:
        """Use `predictor` for the mean from now on; refused by all but fixed-mean GPs."""
        raise InvalidInput(f"method {self.plan.row.name!r} takes no predictor.")

    def sample(
        self,
        X: Float[Tensor, "N D"],
        n_samples: int,
        generator: torch.Generator,
        counts: Num[Tensor, " N"] | None = None,
    ) -> Float[Tensor, "N n_samples"]:
        """Joint draws of the surface at X given the data: (N, n_samples) float64, their mean that of `moments`.

        This general way factorises the posterior covariance, O(N^3); engines with features draw weights.
        """
        mean = self.moments(X, counts).mean.double()
        L = cholesky(
            self.posterior_covariance(X, counts),
            jitter=1e-9,
            what="the posterior covariance of the sampled places",
        )
        noise = torch.randn(len(X), n_samples, generator=generator, dtype=torch.float64)
        return mean[:, None] + L @ noise

    @abstractmethod
    def state(self) -> tuple[dict[str, Tensor], dict]:
        """Tensors and JSON-able facts from which `from_state` restores the engine."""

    @classmethod
    @abstractmethod
    def from_state(cls, plan: Plan, tensors: dict[str, Tensor], facts: dict) -> Self:
        """The engine that `state` described."""
