"""How likely rows are given others."""

import torch
from torch import Tensor

from geogp.densities import log_density
from geogp.field.kernel import LocalKernel
from geogp.field.solve import conditional_moments
from geogp.field.student import variance_over_scale2


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
    `weighted` the neighbours count by how well they agree (`student_weights`), else as Gaussian ones of their variance.

    Notes
    -----
    O(B k³); any subset of rows gives an unbiased estimate of the mean.

    References
    ----------
    Vecchia 1988; Katzfuss and Guinness 2021

    Examples
    --------
    >>> import torch
    >>> kernel = LocalKernel(torch.zeros(1, 2), torch.zeros(1), ("matern12",))
    >>> X, y, noise = torch.zeros(2, 2).double(), torch.zeros(2).double(), torch.ones(2).double()
    >>> first, nobody = torch.tensor([0]), torch.tensor([[-1]])
    >>> conditional_log_density(kernel, X, y, noise, first, nobody)  # log N(0; 0, 2)
    tensor([-1.2655], dtype=torch.float64)
    """
    nu = None if degrees_of_freedom is None else float(degrees_of_freedom.detach())
    known, tails = as_neighbours(noise_variance, nu, weighted)
    c = conditional_moments(kernel, X[target], X, y, known, index, tails)
    return log_density(y[target], c.mean, c.variance + noise_variance[target], degrees_of_freedom)


def as_neighbours(
    noise_variance: Tensor, degrees_of_freedom: float | None, weighted: bool
) -> tuple[Tensor, float | None]:
    """Noise variances (N,) and degrees of freedom with which rows of such squared scales are conditioned on: as Student-t, or as
    Gaussian ones of their variance."""
    if weighted:
        return noise_variance, degrees_of_freedom
    return noise_variance * variance_over_scale2(degrees_of_freedom), None


def among(target: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The rows that targets (m,) and their neighbours (m, k) are, one after another, and where among these the targets and
    the neighbours stand, -1 for none: so much of a table is asked about, which may have millions of rows.

    Examples
    --------
    >>> import torch
    >>> rows, own, others = among(torch.tensor([7, 9]), torch.tensor([[5, 3], [7, -1]]))
    >>> rows.tolist(), own.tolist(), others.tolist()
    ([7, 9, 5, 3, 7, 0], [0, 1], [[2, 3], [4, -1]])
    """
    rows = torch.cat([target, index.clamp_min(0).reshape(-1)])
    place = torch.arange(len(rows), device=rows.device)
    return rows, place[: len(target)], torch.where(index < 0, index, place[len(target) :].view_as(index))
