"""Kernel, noise and count shift by conditional likelihood: each row predicted from its own neighbours."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from geogp.densities import MATERN_ORDER, log_density
from geogp.field.gradients import LeftOut
from geogp.field.kernel import LocalKernel
from geogp.field.local_gp import LocalGP
from geogp.field.noise.rows import ToldNoise, noise_variance
from geogp.field.solve import JITTER, conditional_moments
from geogp.field.steps import Group, Steps
from geogp.field.student import heavy_tailed, student_weights
from geogp.field.variation.told import Following, following
from geogp.linalg import cholesky, with_diagonal

#: Rows (m,), the neighbours (m, k) they are predicted from, and what is said at the centres of a variation that follows
#: what places say, without what is left out.
Targets = tuple[Tensor, Tensor, Tensor | None]

Array = NDArray[np.float64]

#: Degrees of freedom stay above this, where a Student-t's variance is still finite.
SMALLEST_DF = 2.05
#: All rows together teach the kernel where they are fewer; the search's passes over them.
TOGETHER_BELOW, PASSES = 1000, 20
#: How far the logarithm of a length or a variance goes from where it begins.
FARTHEST = 5.0
#: Columns of a plane with less than this share of the largest are none.
FLAT = 1e-8
#: Prior sd of the coefficients of b(n) there.
SHIFT_SD = 0.5
#: Each row by itself, no neighbour known, speaks for the variance of the whole: together as this many rows, at most this
#: share of what rows given their neighbours say; and so many of them at a step.
ALONE, MOST_ALONE, ALONE_AT_ONCE = 40.0, 0.1, 1024


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


def fit_local_gp(
    X: Tensor,
    y: Tensor,
    counts: Tensor,
    sets: Sequence[Targets] | None,
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
    seed: int = 0,
    tick: Callable[[], None] = lambda: None,
) -> LocalGP:
    """Kernel, noise and count shift that make the rows likely given their neighbours.

    Maximises the sum of `conditional_log_density` by minibatches (Adam, one cycle), or that of
    `leave_one_out_log_density`. Neighbours alone cannot tell a large variance and a long lengthscale from small and short
    ones: what each row is by itself has a small say, too.

    Parameters
    ----------
    X, y, counts : (N, D), (N,), (N,) observations, float64, all on one device; y standardised
    sets : targets, visited in turn; None leaves out each row in turn
    start : starting kernel; its structure is kept, its variation over space, if it has one, learned
    columns : (N, P) that shift the mean linearly (`count_columns`), or None
    told : noise that differs from row to row, its coefficients to be learned; None where it is the same
    follows : lengthscale and variance that follow what each set is told, the coefficients to be learned; None where
        they do not
    student : Student-t with learned degrees of freedom, else Gaussian
    weighted : condition on the neighbours as Student-t too (`student_weights`), else as Gaussian
    per_count : learn s² too; False when all counts are equal
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
    O(steps · batch · k³), without sets O(steps · N³).

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
    model = _Trained(start, shifting.shape[1], told, follows, student=student, per_count=per_count).to(
        X.device
    )
    cycle = _one_cycle(model, learning_rate, steps)
    generator = torch.Generator().manual_seed(seed)
    history = []
    for step in range(steps):
        kernel, noise, nu = model.kernel(), model.noise_variance(counts), model.degrees_of_freedom()
        follows = model.follows()
        value = y - shifting @ model.shift
        if sets is None:
            density = leave_one_out_log_density(kernel, X, value, noise, nu, weighted=weighted)
        else:
            target, index, said = sets[step % len(sets)]
            kernel = following(kernel, follows, said)
            pick = torch.randint(len(target), (batch,), generator=generator).to(X.device)
            density = conditional_log_density(
                kernel, X, value, noise, target[pick], index[pick], nu, weighted=weighted
            )
        loss = -density.mean()
        loss = loss - min(ALONE / len(y), MOST_ALONE) * _alone(kernel, X, value, noise, nu, generator).mean()
        if follows is not None:
            loss = loss + follows.penalty() / len(y)
        elif kernel.variation is not None:
            loss = loss + kernel.variation.penalty() / len(y)
        if (told := model.noise_of_rows()) is not None:
            loss = loss + told.noise.penalty() / len(y)
        cycle.down(loss)
        history.append(loss.item())
        tick()
    return model.cpu().learned(history, weighted and student)


def fit_all_together(
    gp: LocalGP,
    X: Tensor,
    y: Tensor,
    counts: Tensor,
    *,
    columns: Tensor | None = None,
    per_count: bool = True,
    tick: Callable[[], None] = lambda: None,
) -> LocalGP:
    """A local GP whose kernel, noise and count shift make all rows likely together, as a search from `gp` finds them.

    The rows' marginal likelihood, a plane integrated out (restricted likelihood). What minibatches of rows given their
    neighbours say of few rows is far less: of a range in space and time little, and that by chance. Tails stay; observations
    that are weighed as Student-t keep the weights they have under `gp`.

    Parameters
    ----------
    gp : as `fit_local_gp` gives it; X, y, counts, columns, per_count : as there

    Raises
    ------
    NumericalFailure
        when the rows' covariance cannot be factorised where the search begins

    Notes
    -----
    O(passes · N³)

    References
    ----------
    Harville 1974 (restricted likelihood); Rasmussen and Williams 2006, eq. 2.45

    Examples
    --------
    >>> X = torch.rand(40, 2, generator=torch.Generator().manual_seed(0)).double()
    >>> kernel = LocalKernel(torch.zeros(1, 2), torch.zeros(1), ("matern32",))
    >>> gp = LocalGP(kernel, 0.1, 0.1, None, torch.zeros(0), ())
    >>> fit_all_together(gp, X, X[:, 0].sin(), torch.ones(40).double(), per_count=False).tau2 < 0.01
    True
    """
    shifting = torch.zeros(len(y), 0, dtype=y.dtype, device=y.device) if columns is None else columns
    student = gp.degrees_of_freedom is not None
    model = _Trained(gp.kernel, shifting.shape[1], None, None, student=student, per_count=per_count)
    model = model.begun_at(gp).to(X.device)
    plane, size, _ = torch.linalg.svd(
        torch.cat([torch.ones_like(X[:, :1]), X[:, :2]], dim=1), full_matrices=False
    )
    plane = plane[:, size > FLAT * size[0]]  # of places on a line only what differs along it
    weights = torch.ones_like(y)
    if gp.weighted and heavy_tailed(gp.degrees_of_freedom):
        with torch.no_grad():
            left = y - shifting @ model.shift
            own = model.noise_variance(counts)
            kernel = gp.kernel.to(X.device)
            weights = student_weights(kernel(X, X)[None], own[None], left[None], gp.degrees_of_freedom)[0]
    learned = [p for name, p in model.named_parameters() if p.requires_grad and name != "tails"]

    def loss(at: Array) -> tuple[float, Array]:
        with torch.no_grad():
            vector_to_parameters(torch.from_numpy(at).to(X.device), learned)
        model.zero_grad()
        S = with_diagonal(model.kernel()(X, X), model.noise_variance(counts) / weights)
        total = _restricted(S, y - shifting @ model.shift, plane)
        total = total + 0.5 * model.shift.square().sum() / SHIFT_SD**2
        total.backward()
        tick()
        return total.item(), parameters_to_vector(
            [p.grad for p in learned if p.grad is not None]
        ).cpu().numpy()

    start = parameters_to_vector(learned).detach().cpu().numpy()
    reach = [(v - FARTHEST, v + FARTHEST) for v in start]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=reach, options={"maxiter": PASSES})
    loss(found.x)
    made = model.cpu().learned(list(gp.loss), gp.weighted and student)
    if gp.degrees_of_freedom is None or bool((weights != 1.0).any()):
        return made
    # Unweighed observations tell a variance; τ² and s² are squared scales of a Student-t.
    scale = (gp.degrees_of_freedom - 2.0) / gp.degrees_of_freedom
    return replace(made, tau2=scale * made.tau2, s2=scale * made.s2)


def _restricted(S: Tensor, y: Tensor, plane: Tensor) -> Tensor:
    """Minus log density of y (N,) under covariance S (N, N), what a plane (N, q) explains left out, less its constant."""
    L = cholesky(S, jitter=JITTER, what="the rows' covariance")
    white = torch.linalg.solve_triangular(L, torch.cat([y[:, None], plane], dim=1), upper=False)
    a, Q = white[:, :1], white[:, 1:]
    A, b = Q.T @ Q, Q.T @ a
    left = a.square().sum() - (b * torch.linalg.solve(A, b)).sum()
    return 0.5 * left + L.diagonal().log().sum() + 0.5 * torch.logdet(A)


def _alone(
    kernel: LocalKernel,
    X: Tensor,
    value: Tensor,
    noise: Tensor,
    nu: Tensor | None,
    generator: torch.Generator,
) -> Tensor:
    """log p(value_i) of some rows, nothing else known: (m,)."""
    pick = torch.randint(len(value), (min(len(value), ALONE_AT_ONCE),), generator=generator).to(X.device)
    v = value[pick]
    return log_density(v, torch.zeros_like(v), kernel.prior_at(X[pick]) + noise[pick], nu)


class _Trained(nn.Module):
    """What `fit_local_gp` trains, float64: the logarithms of all that is positive, and the shift."""

    def __init__(
        self,
        start: LocalKernel,
        n_columns: int,
        told: ToldNoise | None,
        follows: Following | None,
        *,
        student: bool,
        per_count: bool,
    ):
        super().__init__()
        self.start, self.told, self.begun, self.student = start, told, follows, student
        self.lengthscale = nn.Parameter(start.log_lengthscale.double().clone())
        # Neighbours tell v / ℓ^2ν and little more (Zhang 2004): learned itself, it leaves ℓ free to follow what is far away.
        self.rate = nn.Parameter(start.log_variance.double() - self._ridge(self.lengthscale.detach()))
        self.shift = nn.Parameter(torch.zeros(n_columns, dtype=torch.float64))
        self.tau2 = nn.Parameter(torch.tensor(math.log(0.1), dtype=torch.float64))
        self.s2 = nn.Parameter(
            torch.tensor(0.0 if per_count else -math.inf, dtype=torch.float64), requires_grad=per_count
        )
        self.tails = nn.Parameter(torch.tensor(math.log(3.0), dtype=torch.float64))
        if told is not None:
            self.row_coefficients = nn.Parameter(told.noise.coefficients.clone())
        if follows is not None:
            self.following_coefficients = nn.Parameter(follows.coefficients.clone())
        if start.variation is not None:
            self.stretch = nn.Parameter(start.variation.lengthscale.double().clone())
            self.amplitude = nn.Parameter(start.variation.variance.double().clone())

    def begun_at(self, gp: LocalGP) -> Self:
        """With the numbers of a local GP of this structure."""
        with torch.no_grad():
            self.lengthscale.copy_(gp.kernel.log_lengthscale)
            self.rate.copy_(gp.kernel.log_variance - self._ridge(self.lengthscale))
            self.shift.copy_(gp.count_shift)
            self.tau2.fill_(math.log(gp.tau2))
            if self.s2.requires_grad:
                self.s2.fill_(math.log(gp.s2))
            if gp.degrees_of_freedom is not None:
                self.tails.fill_(math.log(gp.degrees_of_freedom - SMALLEST_DF))
        return self

    def kernel(self, of: Callable[[Tensor], Tensor] = lambda p: p) -> LocalKernel:
        """The kernel made of the parameters, or of what `of` makes of each."""
        bumps = self.start.variation
        if bumps is not None:
            stretch, amplitude = of(self.stretch), of(self.amplitude)
            bumps = replace(bumps.to(stretch.device), lengthscale=stretch, variance=amplitude)
        lengthscale = of(self.lengthscale)
        variance = of(self.rate) + self._ridge(lengthscale)
        return replace(self.start, log_lengthscale=lengthscale, log_variance=variance, variation=bumps)

    def follows(self) -> Following | None:
        """How lengthscale and variance follow what is said, made of the parameters."""
        if self.begun is None:
            return None
        bumps = self.begun.bumps.to(self.following_coefficients.device)
        return Following(bumps, self.following_coefficients)

    def _ridge(self, log_lengthscale: Tensor) -> Tensor:
        """2ν log ℓ of each component, ℓ the mean over the axes of space."""
        power = [2.0 * MATERN_ORDER[name] for name in self.start.smoothness]
        mean = log_lengthscale[:, self.start.space_axes[:2]].mean(1)
        return torch.tensor(power, dtype=mean.dtype, device=mean.device) * mean

    def noise_of_rows(self) -> ToldNoise | None:
        """What tells rows' noises apart, made of the parameters."""
        if self.told is None:
            return None
        return replace(self.told, noise=replace(self.told.noise, coefficients=self.row_coefficients))

    def noise_variance(self, counts: Tensor) -> Tensor:
        """Of the rows that it is fitted to, of counts (N,)."""
        return noise_variance(self.tau2.exp(), self.s2.exp(), counts, self.noise_of_rows())

    def degrees_of_freedom(self) -> Tensor | None:
        return self.tails.exp() + SMALLEST_DF if self.student else None

    def learned(self, history: list[float], weighted: bool) -> LocalGP:
        """The numbers, without gradients."""
        told, follows = self.noise_of_rows(), self.follows()
        return LocalGP(
            kernel=self.kernel(Tensor.detach),
            tau2=self.tau2.exp().item(),
            s2=self.s2.exp().item(),
            degrees_of_freedom=self.tails.exp().item() + SMALLEST_DF if self.student else None,
            count_shift=self.shift.detach(),
            loss=tuple(history),
            weighted=weighted,
            rows=None if told is None else replace(told.noise, coefficients=self.row_coefficients.detach()),
            follows=None if follows is None else replace(follows, coefficients=follows.coefficients.detach()),
        )


def _one_cycle(model: _Trained, learning_rate: float, steps: int) -> Steps:
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
