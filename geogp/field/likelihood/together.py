"""Kernel, noise and count shift by the likelihood of all rows: a search from where minibatches have come."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from geogp.field.likelihood.restricted import Rows, restricted
from geogp.field.likelihood.trained import Trained
from geogp.field.local_gp import LocalGP
from geogp.field.noise.rows import ToldNoise
from geogp.field.student import heavy_tailed

Array = NDArray[np.float64]

#: Fewer rows than this are factorised as a whole; more are a product of conditionals.
DENSE_BELOW = 1000
#: The search's passes over the rows.
PASSES = 20
#: How far the logarithm of a length or a variance goes from where it begins.
FARTHEST = 5.0
#: Prior sd of the coefficients of b(n).
SHIFT_SD = 0.5


def fit_all_together(
    gp: LocalGP,
    X: Tensor,
    y: Tensor,
    counts: Tensor,
    *,
    columns: Tensor | None = None,
    told: ToldNoise | None = None,
    per_count: bool = True,
    passes: int = PASSES,
    seed: int = 0,
    tick: Callable[[], None] = lambda: None,
) -> LocalGP:
    """A local GP whose kernel, noise and count shift make all rows likely together, as a search from `gp` finds them.

    The rows' marginal likelihood, a plane integrated out (restricted likelihood). What minibatches of rows given their
    neighbours say of few rows is far less: of a range in space and time little, and that by chance. Tails stay; observations
    that are weighed as Student-t keep the weights they have under `gp`.

    Parameters
    ----------
    gp : as `fit_local_gp` gives it, its kernel the same everywhere; X, y, counts, columns, told, per_count : as there
    passes : of the search, at most; seed : of the order of more rows than are factorised at once

    Raises
    ------
    NumericalFailure
        when the rows' covariance cannot be factorised where the search begins

    Notes
    -----
    O(passes · N³) below 1,000 rows; above O(N log N), and O(passes · k³) for each of 3,000 rows.

    References
    ----------
    Harville 1974 (restricted likelihood); Stein, Chi and Welty 2004 (as a product of conditionals)

    Examples
    --------
    >>> from geogp.field.kernel import LocalKernel
    >>> X = torch.rand(40, 2, generator=torch.Generator().manual_seed(0)).double()
    >>> kernel = LocalKernel(torch.zeros(1, 2), torch.zeros(1), ("matern32",))
    >>> gp = LocalGP(kernel, 0.1, 0.1, None, torch.zeros(0), ())
    >>> fit_all_together(gp, X, X[:, 0].sin(), torch.ones(40).double(), per_count=False).tau2 < 0.01
    True
    """
    nothing = torch.zeros(len(y), 0, dtype=y.dtype, device=y.device)
    rows = Rows(X, y, counts, nothing if columns is None else columns, torch.ones_like(y))
    student = gp.degrees_of_freedom is not None
    model = Trained(gp.kernel, rows.columns.shape[1], told, None, student=student, per_count=per_count)
    model = model.begun_at(gp).to(X.device)
    likelihood = restricted(X, gp.kernel, dense_below=DENSE_BELOW, seed=seed)
    if gp.weighted and heavy_tailed(gp.degrees_of_freedom):
        rows = rows.weighed(likelihood, model, gp.degrees_of_freedom)
    learned = [p for name, p in model.named_parameters() if p.requires_grad and name != "tails"]

    def loss(at: Array) -> tuple[float, Array]:
        with torch.no_grad():
            vector_to_parameters(torch.from_numpy(at).to(X.device), learned)
        model.zero_grad()
        prior = 0.5 * model.shift.square().sum() / SHIFT_SD**2
        if (noise := model.noise_of_rows()) is not None:
            prior = prior + noise.noise.penalty()
        prior.backward()
        total = prior.item() + likelihood.backward(model, rows)
        tick()
        gradient = [torch.zeros_like(p) if p.grad is None else p.grad for p in learned]
        return total, parameters_to_vector(gradient).cpu().numpy()

    start = parameters_to_vector(learned).detach().cpu().numpy()
    reach = [(v - FARTHEST, v + FARTHEST) for v in start]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=reach, options={"maxiter": passes})
    with torch.no_grad():
        vector_to_parameters(torch.from_numpy(found.x).to(X.device), learned)
    made = model.cpu().learned(list(gp.loss), gp.weighted and student)
    if gp.degrees_of_freedom is None or bool((rows.weights != 1.0).any()):
        return made
    # Unweighed observations tell a variance; τ² and s² are squared scales of a Student-t.
    scale = (gp.degrees_of_freedom - 2.0) / gp.degrees_of_freedom
    return replace(made, tau2=scale * made.tau2, s2=scale * made.s2)
