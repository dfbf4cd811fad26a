"""Mercer features of a squared-exponential kernel: weighted Hermite polynomials."""

import itertools

import torch
from jaxtyping import Float
from torch import Tensor, nn

from geogp.basis.expansions.base import Expansion
from geogp.basis.expansions.placing import spread_of
from geogp.linalg.slopes import products

#: alpha of the input density alpha / sqrt(pi) exp(-alpha^2 x^2): a standard normal.
ALPHA = 0.5**0.5


class Hermite(Expansion):
    """The r leading eigenfunctions of sigma_f^2 exp(-sum_j eps_j^2 (x_j - x'_j)^2) under a normal density.

    In one dimension phi_n(x) = sqrt(lambda_n) e_n(x), n = 0, 1, ...; in d dimensions products of them over
    the r multi-indices of least total degree, which are those of the largest eigenvalues when all eps are
    equal. Truncating a Mercer series never adds variance: ||phi||^2 <= sigma_f^2, rising to it with r near
    the data and falling to zero far away.

    h is first standardised by constants set in `initialise`, so that the density fits it; they do not
    follow the network during training.

    Parameters
    ----------
    n_inputs : d, in practice at most about 7
    rank : r

    Notes
    -----
    The features follow a three-term recursion that keeps every term below sigma_f, so no factorial or power
    overflows. Cost O(N d r). Source: how-good-are-low-rank-approximations, section 4.2, appendix B and D.1.

    Examples
    --------
    >>> basis = Hermite(1, 30)
    >>> x = torch.tensor([[0.0], [0.5]])
    >>> K = basis(x) @ basis(x).T
    >>> bool((K[0, 1] - torch.exp(-basis.epsilon[0] ** 2 * 0.25)).abs() < 1e-5)
    True
    """

    formula = "φ_n(h) = sqrt(λ_n) e_n(h), Hermite functions; h standardised as it was before training"
    far = (
        "the constant: all basis functions die out beyond the data",
        "0, and so is the prior's: the map looks certain where it knows nothing",
    )

    centre: Tensor
    spread: Tensor
    degrees: Tensor

    def __init__(self, n_inputs: int, rank: int):
        super().__init__()
        self.rank = rank
        degrees = leading_degrees(n_inputs, rank)
        self.highest = max(map(max, degrees))
        self.register_buffer("degrees", torch.tensor(degrees))
        self.register_buffer("centre", torch.zeros(n_inputs))
        self.register_buffer("spread", torch.ones(n_inputs))
        # eps^2 = 1 / (2 lengthscale^2); a first lengthscale of one standard deviation.
        self.log_epsilon = nn.Parameter(torch.full((n_inputs,), -0.5 * float(torch.tensor(2.0).log())))
        self.log_variance = nn.Parameter(torch.zeros(()))

    @property
    def epsilon(self) -> Float[Tensor, " d"]:
        """(d,) inverse lengthscales of the paper, in units of standardised h."""
        return self.log_epsilon.exp()

    def initialise(self, h: Float[Tensor, "n d"]) -> None:
        """Centre and spread of the sample."""
        with torch.no_grad():
            self.centre.copy_(h.mean(0))
            self.spread.copy_(spread_of(h))

    def forward(self, h: Float[Tensor, "N d"]) -> Float[Tensor, "N r"]:
        x = ((h - self.centre) / self.spread).T.contiguous()
        eps2 = self.epsilon.square()[:, None]
        beta2 = (1.0 + 4.0 * eps2 / ALPHA**2).sqrt()
        delta2 = 0.5 * ALPHA**2 * (beta2 - 1.0)
        total = ALPHA**2 + delta2 + eps2
        ratio = eps2 / total  # λ_{n+1} / λ_n
        u = ALPHA * beta2.sqrt() * x
        # f_n = √λ_n e_n:  f_{n+1} = √q (√(2/(n+1)) u f_n − √(n/(n+1)) √q f_{n−1}),  f_0 = (α²/total)^¼ β^½ e^{−δ²x²}
        first = (ALPHA**2 / total).pow(0.25) * beta2.pow(0.25) * torch.exp(-delta2 * x.square())
        terms = [first]
        root = ratio.sqrt()
        for n in range(self.highest):
            # Far out the exponential is exactly zero: there the product with an unbounded u is zero too.
            following = root * ((2.0 / (n + 1)) ** 0.5 * u * terms[n])
            if n > 0:
                following = following - ratio * (n / (n + 1)) ** 0.5 * terms[n - 1]
            terms.append(following)
        table = torch.stack(terms)  # (degree + 1, d, N): a basis function takes whole rows of it
        return self.log_variance.mul(0.5).exp() * products(table, self.degrees)

    def kernel_parameters(self) -> list[nn.Parameter]:
        return [self.log_epsilon, self.log_variance]


def leading_degrees(n_inputs: int, rank: int) -> list[tuple[int, ...]]:
    """The `rank` multi-indices of `n_inputs` degrees with the least total, ties in a fixed order.

    Examples
    --------
    >>> leading_degrees(2, 4)
    [(0, 0), (1, 0), (0, 1), (2, 0)]
    """
    out: list[tuple[int, ...]] = []
    for total in itertools.count():
        for bars in itertools.combinations(range(total + n_inputs - 1), n_inputs - 1):
            edges = (-1, *bars, total + n_inputs - 1)
            out.append(tuple(b - a - 1 for a, b in itertools.pairwise(edges))[::-1])
            if len(out) == rank:
                return out
    raise AssertionError
