"""Kernel, noise and count shift by conditional likelihood: each row predicted from its own neighbours."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from geogp.densities import log_density
from geogp.field.kernel import LocalKernel
from geogp.field.likelihood.conditional import among, conditional_log_density
from geogp.field.likelihood.trained import Trained
from geogp.field.local_gp import LocalGP
from geogp.field.noise.rows import ToldNoise
from geogp.field.steps import Group, Steps
from geogp.field.variation.told import Following, following

#: Rows (m,), the neighbours (m, k) they are predicted from, and what is said at the centres of a variation that follows
#: what places say, without what is left out.
Targets = tuple[Tensor, Tensor, Tensor | None]

#: Noise variance that a fit begins with, of values whose variance is about 1.
NOISE = 0.1
#: Each row by itself, no neighbour known, speaks for the variance of the whole: together as this many rows, at most this
#: share of what rows given their neighbours say; and so many of them at a step.
ALONE, MOST_ALONE, ALONE_AT_ONCE = 40.0, 0.1, 1024


def fit_local_gp(
    X: Tensor,
    y: Tensor,
    counts: Tensor,
    sets: Sequence[Targets],
    start: LocalKernel,
    *,
    columns: Tensor | None = None,
    told: ToldNoise | None = None,
    follows: Following | None = None,
    student: bool = True,
    weighted: bool = True,
    per_count: bool = True,
    steps: int = 120,
    batch: int = 128,
    learning_rate: float = 0.04,
    noise: float = NOISE,
    seed: int = 0,
    tick: Callable[[], None] = lambda: None,
) -> LocalGP:
    """Kernel, noise and count shift that make the rows likely given their neighbours.

    Maximises the sum of `conditional_log_density` by minibatches (Adam, one cycle). Neighbours alone cannot tell a large
    variance and a long lengthscale from small and short ones: what each row is by itself has a small say, too.

    Parameters
    ----------
    X, y, counts : (N, D), (N,), (N,) observations, float64, all on one device; y standardised
    sets : targets, visited in turn
    start : starting kernel; its structure is kept, its variation over space, if it has one, learned
    columns : (N, P) that shift the mean linearly (`count_columns`), or None
    told : noise that differs from row to row, its coefficients to be learned; None where it is the same
    follows : lengthscale and variance that follow what each set is told, the coefficients to be learned; None where
        they do not
    student : Student-t with learned degrees of freedom, else Gaussian
    weighted : condition on the neighbours as Student-t too (`student_weights`), else as Gaussian
    per_count : learn s² too; False when all counts are equal
    noise : variance that it begins with, beside that of a single measurement where counts differ
    tick : called after each step; what it raises ends the fit

    Returns
    -------
    LocalGP

    Raises
    ------
    NumericalFailure
        when a neighbourhood's covariance cannot be factorised

    Notes
    -----
    O(steps · batch · k³).

    References
    ----------
    Zhang 2004 (what neighbours tell of a Matérn kernel: v / ℓ^2ν); Varin, Reid and Firth 2011 (composite likelihood)

    Examples
    --------
    >>> X = torch.rand(40, 2, generator=torch.Generator().manual_seed(0)).double()
    >>> kernel = LocalKernel(torch.zeros(1, 2), torch.zeros(1), ("matern12",))
    >>> every = torch.arange(40), torch.arange(40).roll(1)[:, None], None
    >>> len(fit_local_gp(X, X[:, 0], torch.ones(40).double(), [every], kernel, steps=3).loss)
    3
    """
    shifting = torch.zeros(len(y), 0, dtype=y.dtype, device=y.device) if columns is None else columns
    model = Trained(start, shifting.shape[1], told, follows, student=student, per_count=per_count).to(
        X.device
    )
    with torch.no_grad():
        model.tau2.fill_(math.log(noise))
    cycle = _one_cycle(model, learning_rate, steps)
    generator = torch.Generator().manual_seed(seed)
    history = []

    def of(rows: Tensor) -> tuple[Tensor, Tensor]:
        """Values of some rows, less the shift, and their noise variances."""
        return y[rows] - shifting[rows] @ model.shift, model.noise_variance(counts, rows)

    for step in range(steps):
        kernel, nu, follows = model.kernel(), model.degrees_of_freedom(), model.follows()
        target, index, said = sets[step % len(sets)]
        kernel = following(kernel, follows, said)
        pick = torch.randint(len(target), (batch,), generator=generator).to(X.device)
        # Of the rows that it is about alone: of millions all would take longer than the step.
        rows, own, others = among(target[pick], index[pick])
        density = conditional_log_density(kernel, X[rows], *of(rows), own, others, nu, weighted=weighted)
        loss = -density.mean()
        rows = torch.randint(len(y), (min(len(y), ALONE_AT_ONCE),), generator=generator).to(X.device)
        loss = loss - min(ALONE / len(y), MOST_ALONE) * _alone(kernel, X[rows], *of(rows), nu).mean()
        if follows is not None:
            loss = loss + follows.penalty() / len(y)
        elif kernel.variation is not None:
            loss = loss + kernel.variation.penalty() / len(y)
        if (noisy := model.noise_of_rows(rows)) is not None:
            loss = loss + noisy.noise.penalty() / len(y)
        cycle.down(loss)
        history.append(loss.item())
        tick()
    return model.cpu().learned(history, weighted and student)


def _alone(kernel: LocalKernel, X: Tensor, value: Tensor, noise: Tensor, nu: Tensor | None) -> Tensor:
    """log p(value_i) of rows, nothing else known: (m,)."""
    return log_density(value, torch.zeros_like(value), kernel.prior_at(X) + noise, nu)


def _one_cycle(model: Trained, learning_rate: float, steps: int) -> Steps:
    """Adam whose rates rise and fall once.

    The noise travels farther than the lengthscales (decades of τ²), and must settle before the tails can: twice the rate;
    so does v / ℓ^2ν, which lies far off where ℓ does.
    Each of many bumps sees few rows of a batch, and must not wander with them: a quarter.
    """
    fast = [p for p in (model.rate, model.tau2, model.s2, model.tails) if p.requires_grad]
    bumps = [] if model.start.variation is None else [model.stretch, model.amplitude]
    fast += [] if model.told is None else [model.row_coefficients]
    fast += [] if model.begun is None else [model.following_coefficients]
    apart = [*fast, *bumps]
    slow = [p for p in model.parameters() if p.requires_grad and not any(p is q for q in apart)]
    shares = [(slow, 1.0), (fast, 2.0), *([(bumps, 0.25)] if bumps else [])]
    groups = [Group(parameters, share * learning_rate) for parameters, share in shares]
    # Five steps or fewer are the start of a longer cycle.
    return Steps(groups, total=max(steps, 6), beta2=0.98)
