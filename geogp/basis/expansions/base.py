"""What every expansion promises."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from geogp.errors import ImpossibleCombination


class Expansion(nn.Module):
    """A map h (N, H) -> phi (N, r) whose inner products are the kernel: k(h, h') = phi(h)' phi(h').

    Rows are independent of the rest of their batch. Kernel hyperparameters that should learn faster than
    the network are listed by `kernel_parameters`.
    """

    rank: int
    #: For the methods' pages.
    formula: ClassVar[str]
    #: What mean and latent sd come to far from data where the inputs go into it as they are.
    far: ClassVar[tuple[str, str]] = ("the constant", "the prior's")
    #: False for a name that stands for no basis: an engine without one takes it.
    is_basis: ClassVar[bool] = True
    #: True when the expansion approximates a base kernel whose exact value is known (`base_kernel`).
    has_base_kernel = False
    #: True where phi takes a factor of a matrix, which may have none: a step looks, and waits for the device to say so.
    factorises = False

    def initialise(self, h: Float[Tensor, "n H"]) -> None:
        """Place the basis from a sample of backbone outputs h (n, H). Default: nothing to place."""

    def prior_sd(self, h: Float[Tensor, "n H"]) -> Float[Tensor, ""]:
        """Root of the mean prior variance over a sample of backbone outputs."""
        return self(h).square().sum(1).mean().sqrt()

    def base_diagonal(self, h: Float[Tensor, "N H"]) -> Float[Tensor, " N"]:
        """k~(h, h) of the base kernel: (N,). Only where `has_base_kernel`."""
        raise ImpossibleCombination(
            f"residual 'nystrom' needs an expansion with a base kernel; {type(self).__name__} has none: "
            "take expansion 'rbf', or residual 'none', 'unit' or 'local'."
        )

    def base_kernel(self, h: Float[Tensor, "N H"], h_ref: Float[Tensor, "M H"]) -> Float[Tensor, "N M"]:
        """k~(h, h_ref): (N, M). Only where `has_base_kernel`."""
        return self.base_diagonal(h)

    def root(self) -> Float[Tensor, "k r"] | None:
        """R (k, r), invertible, with phi(h) = before_root(h) R, where phi takes a matrix that no row knows of; else None."""
        return None

    def before_root(self, h: Float[Tensor, "N H"]) -> Float[Tensor, "N k"]:
        """What `root` makes phi of: (N, k). Only where there is a root."""
        raise NotImplementedError

    def unfactorised(
        self, h: Float[Tensor, "N H"]
    ) -> tuple[Float[Tensor, "N r"], Float[Tensor, "r r"]] | None:
        """s (N, r) and K (r, r) with phi phi' = s K s', where phi takes a factor of K that may fail; else None."""
        return None

    def kernel_parameters(self) -> list[nn.Parameter]:
        """Parameters of the kernel itself (not of a network): they take the doubled learning rate."""
        return []
