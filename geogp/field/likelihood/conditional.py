"""How likely rows are given others: their neighbours, or all."""

import torch
from torch import Tensor

from geogp.densities import log_density
from geogp.field.gradients import LeftOut
from geogp.field.kernel import LocalKernel
from geogp.field.solve import JITTER, conditional_moments
from geogp.field.student import heavy_tailed, student_weights
from geogp.linalg import cholesky, with_diagonal


def conditional_log_density(
    kernel: LocalKernel,
    X: Tensor,
    y: Tensor,
    noise_variance: Tensor,
    target: Tensor,
    index: Tensor,
    degrees_of_freedom: Tensor | None = None,
    *,
    weighted: bool = True,
) -> Tensor:
    """log p(y_i | y of its neighbours) for the rows `target` (B,): (B,).

    With every row's neighbours taken among the rows before it (`geogp.field.earlier`) the sum over all rows is
    the Vecchia likelihood, exact when all earlier rows are neighbours. With degrees of
    freedom the outermost density is a Student-t, which keeps outliers from setting the kernel, and with
    `weighted` the neighbours count by how well they agree (`student_weights`).

    Notes
    -----
    O(B k³); any subset of rows gives an unbiased estimate of the mean.

    References
    ----------
    Vecchia 1988; Katzfuss and Guinness 2021

    Examples
    --------
    >>> kernel = LocalKernel(torch.zeros(1, 2), torch.zeros(1), ("matern12",))
    >>> X, y, noise = torch.zeros(2, 2).double(), torch.zeros(2).double(), torch.ones(2).double()
    >>> first, nobody = torch.tensor([0]), torch.tensor([[-1]])
    >>> conditional_log_density(kernel, X, y, noise, first, nobody)  # log N(0; 0, 2)
    tensor([-1.2655], dtype=torch.float64)
    """
    nu = float(degrees_of_freedom.detach()) if weighted and degrees_of_freedom is not None else None
    c = conditional_moments(kernel, X[target], X, y, noise_variance, index, nu)
    return log_density(y[target], c.mean, c.variance + noise_variance[target], degrees_of_freedom)


def leave_one_out_log_density(
    kernel: LocalKernel,
    X: Tensor,
    y: Tensor,
    noise_variance: Tensor,
    degrees_of_freedom: Tensor | None = None,
    *,
    weighted: bool = True,
) -> Tensor:
    """log p(y_i | all other rows), for every row: (N,). What `conditional_log_density` is with all others as neighbours,
    but that the weights of Student-t observations are those given all rows.

    Notes
    -----
    O(N³): one factorisation, for few rows.

    References
    ----------
    Rasmussen and Williams 2006, eq. 5.12

    Examples
    --------
    >>> kernel = LocalKernel(torch.zeros(1, 2), torch.zeros(1), ("matern12",))
    >>> X, y, noise = torch.zeros(2, 2).double(), torch.zeros(2).double(), torch.ones(2).double()
    >>> leave_one_out_log_density(kernel, X, y, noise)  # log N(0; 0, 1 - 1/2 + 1)
    tensor([-1.1217, -1.1217], dtype=torch.float64)
    """
    K, own = kernel(X, X), noise_variance
    if weighted and degrees_of_freedom is not None and heavy_tailed(nu := float(degrees_of_freedom.detach())):
        with torch.no_grad():
            weights = student_weights(K[None], own[None], y[None], nu)[0]
        own = own / weights
    S = with_diagonal(K, own)
    with torch.no_grad():
        L = cholesky(S, jitter=JITTER, what="the rows' covariance")
    alpha, precision = LeftOut.apply(L, S, y)
    variance = (1.0 / precision - own).clamp_min(0.0)
    return log_density(y, y - alpha / precision, variance + noise_variance, degrees_of_freedom)
