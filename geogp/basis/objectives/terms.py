"""What a minibatch objective may look at."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Terms:
    """One batch of B rows, in standardised target units. Each field but the last two is (B,).

    y : targets
    mean : m(x) + phi'm
    weight_variance : ||L'phi||^2
    residual_variance : variance beyond the basis (zero for residual 'none')
    basis_variance : ||phi||^2, the prior variance of the basis
    noise_variance : of each observation
    kl : KL(q(w) || N(0, I)), scalar
    n_total : rows of the whole training set
    """

    y: Tensor
    mean: Tensor
    weight_variance: Tensor
    residual_variance: Tensor
    basis_variance: Tensor
    noise_variance: Tensor
    kl: Tensor
    n_total: int

    @property
    def latent_variance(self) -> Tensor:
        return self.weight_variance + self.residual_variance


@dataclass(frozen=True)
class Weights:
    """Strength of the terms beside the data fit: trace (alpha), kl (beta), and the log of the CRPS.

    trace_candidates : values of alpha among which validation rows choose; empty for `trace` as it is
    """

    trace: float = 0.01
    kl: float = 0.01
    crps: float = 1.0
    trace_candidates: tuple[float, ...] = ()
