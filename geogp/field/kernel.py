"""Local Gaussian process: the residual r, conditioned on the nearest observations on all sides.

    r ~ GP(0, k),   k(x, x') = Σ_c v_c · M_c(‖(x − x') / ℓ_c‖ over space) · exp(−|t − t'| / ℓ_ct)

with Matérn correlations M_c (1/2, 3/2, 5/2), a lengthscale per axis and component, and a noise variance per
observation. Every prediction conditions on its own neighbours (`geogp.field.neighbours`) in batches of small dense
systems, so cost grows with the rows and not with their cube; with all neighbours it is the exact GP.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from geogp.densities import log_density, matern
from geogp.field.variation import Variation
from geogp.linalg import cholesky, distances

#: Relative to the covariance's mean diagonal; the noise variances usually dominate it.
JITTER = 1e-12
#: Variational steps for the weights of Student-t observations: on latencies, which have the heaviest tails
#: (2.3 degrees of freedom), three go two thirds of the way to convergence and forty gain nothing.
REWEIGHTINGS = 3
#: From these degrees of freedom on observations count as Gaussian: no weight would leave 1 by more than a tenth.
GAUSSIAN_FROM = 30.0
#: Places solved at once: chunk * k^2 float64 numbers stay in the cache (1.2 MB at k = 48).
CHUNK = 64


def _factor(K: Tensor) -> Tensor:
    """Cholesky factor of a batch; the bounded jitter of `linalg.cholesky` only where plain factorising fails."""
    L, info = torch.linalg.cholesky_ex(K)
    return cholesky(K, jitter=JITTER, what="a neighbourhood's covariance") if bool(info.any()) else L


@dataclass(frozen=True)
class LocalKernel:
    """Additive Matérn kernel. Its numbers are tensors, so gradients and safetensors work alike.

    Attributes
    ----------
    log_lengthscale : (C, D), of the coordinates' own units
    log_variance : (C,)
    smoothness : C names of `densities.MATERN`, for space
    time_axis : the axis whose exponential correlation multiplies that of space, or None
    variation : lengthscale and variance that vary over space, or None for a stationary kernel

    Examples
    --------
    >>> kernel = LocalKernel(torch.zeros(1, 2), torch.zeros(1), ("matern12",))
    >>> abs(float(kernel(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]]))) - math.exp(-5.0)) < 1e-6
    True
    """

    log_lengthscale: Tensor
    log_variance: Tensor
    smoothness: tuple[str, ...]
    time_axis: int | None = None
    variation: Variation | None = None

    @property
    def prior_variance(self) -> Tensor:
        """k(x, x), the same everywhere; with a variation that far from data."""
        return self.log_variance.exp().sum()

    def prior_at(self, X: Tensor) -> Tensor:
        """k(x, x) at X (N, D): (N,), or a scalar that holds everywhere."""
        if self.variation is None:
            return self.prior_variance
        return self.prior_variance * self.variation(X[..., self._space(X)])[1].exp()

    def _space(self, X: Tensor) -> list[int]:
        return [d for d in range(X.shape[-1]) if d != self.time_axis]

    def __call__(self, A: Tensor, B: Tensor) -> Tensor:
        """Covariance of (..., N, D) and (..., M, D): (..., N, M)."""
        t = self.time_axis
        axes = self._space(A)
        stretch = factor = None
        if self.variation is not None:
            (h, s), (g, r) = self.variation(A[..., axes]), self.variation(B[..., axes])
            h, g = h[..., :, None], g[..., None, :]
            stretch = torch.sqrt(0.5 * (torch.exp(2.0 * h) + torch.exp(2.0 * g)))
            factor = torch.exp(0.5 * (s[..., :, None] + r[..., None, :])) * (
                torch.exp(0.5 * (h + g)) / stretch
            ) ** len(axes)
        total: Tensor | None = None
        for c, name in enumerate(self.smoothness):
            inverse = torch.exp(-self.log_lengthscale[c]).to(A.dtype)
            distance = distances(A[..., axes] * inverse[axes], B[..., axes] * inverse[axes])
            if stretch is not None:
                distance = distance / stretch
            if t is None:
                term = self.log_variance[c].exp() * matern(distance, name)
            else:
                lag = distances(A[..., t : t + 1] * inverse[t], B[..., t : t + 1] * inverse[t])
                if name == "matern12":  # one exponential for both
                    term = torch.exp(self.log_variance[c] - distance - lag)
                else:
                    term = matern(distance, name) * torch.exp(self.log_variance[c] - lag)
            total = term if total is None else total + term
        assert total is not None
        return total if factor is None else total * factor

    def to(self, device: torch.device | str) -> "LocalKernel":
        """The same kernel on a device."""
        return replace(
            self,
            log_lengthscale=self.log_lengthscale.to(device),
            log_variance=self.log_variance.to(device),
            variation=None if self.variation is None else self.variation.to(device),
        )


@dataclass(frozen=True)
class Conditional:
    """Moments of r at B places given their neighbours.

    mean : (B,), or (B, Q) when Q columns of values are carried
    variance : (B,), never negative
    covariance : (B, k) prior covariance with each neighbour, 0 where there is none
    """

    mean: Tensor
    variance: Tensor
    covariance: Tensor


def condition(
    kernel: LocalKernel,
    X_new: Tensor,
    X: Tensor,
    y: Tensor,
    noise_variance: Tensor,
    index: Tensor,
    degrees_of_freedom: float | None = None,
) -> Conditional:
    """Mean and variance of r at X_new given the observations that each row of `index` names.

    mean = kᵀ (K + Σ)⁻¹ y,   variance = k(x, x) − kᵀ (K + Σ)⁻¹ k

    With `degrees_of_freedom` the observations are Student-t: Σ is divided by the expected precision that the
    variational posterior gives each of them among its neighbours (`student_weights`), so that one wild value
    does not pull its surroundings along.

    Parameters
    ----------
    kernel : the covariance
    X_new : (B, D)
    X, noise_variance : (N, D), (N,) places and noise variances of the observations
    y : (N,) values, or (N, Q) columns that share places and noise
    index : (B, k) rows of X; -1 counts as no observation
    degrees_of_freedom : of the observations; None, or 30 and more, for Gaussian ones

    Raises
    ------
    NumericalFailure
        when a system stays singular under the bounded jitter of `linalg.cholesky`

    Notes
    -----
    O(B k³) time, O(B k²) memory, differentiable in the kernel, the noise and y.

    Examples
    --------
    >>> kernel = LocalKernel(torch.zeros(1, 2), torch.zeros(1), ("matern12",))
    >>> X, y = torch.zeros(1, 2).double(), torch.ones(1).double()
    >>> condition(kernel, X, X, y, torch.ones(1).double(), torch.zeros(1, 1, dtype=torch.int64)).mean
    tensor([0.5000], dtype=torch.float64)
    """
    present = index >= 0
    rows = index.clamp_min(0)
    A = X[rows]
    mask = present.to(A.dtype)
    K, k = kernel(A, A), kernel(X_new[:, None, :], A)[:, 0, :]
    if not bool(present.all()):
        # A missing neighbour has no covariance with anything and unit variance: it drops out exactly.
        K, k = K * (mask[:, :, None] * mask[:, None, :]), k * mask
    noise = torch.where(present, noise_variance[rows], torch.ones_like(mask))
    values = y[rows] if y.ndim == 2 else y[rows][..., None]
    if degrees_of_freedom is not None and degrees_of_freedom < GAUSSIAN_FROM:
        with torch.no_grad():
            weights = student_weights(K, noise, values[..., 0] * mask, degrees_of_freedom)
        noise = noise / weights
    L = _factor(K + torch.diag_embed(noise))
    whitened = torch.linalg.solve_triangular(
        L, torch.cat([k[..., None], values * mask[..., None]], dim=-1), upper=False
    )
    v = whitened[..., :1]
    mean = (v * whitened[..., 1:]).sum(-2)
    variance = (kernel.prior_at(X_new) - v.square().sum((-2, -1))).clamp_min(0.0)
    return Conditional(mean if y.ndim == 2 else mean[:, 0], variance, k)


def student_weights(
    K: Tensor, noise_variance: Tensor, y: Tensor, degrees_of_freedom: float, steps: int = REWEIGHTINGS
) -> Tensor:
    """Expected precision of Student-t observations of a Gaussian process, in units of 1/noise_variance: (B, k).

    w = (ν + 1) / (ν + E[(y − f)²] / σ²), the expectation under the Gaussian posterior that the weights of the
    step before give: E[(y − f)²] = (Σ α)² + Σ − Σ² diag Q, Q = (K + Σ)⁻¹, α = Q y, Σ = σ² / w.

    Parameters
    ----------
    K : (B, k, k) prior covariances
    noise_variance, y : (B, k) squared scales σ² and values

    Notes
    -----
    O(steps · B k³).

    References
    ----------
    Tipping and Lawrence 2005, Variational inference for Student-t models, section 3

    Examples
    --------
    >>> K, y = torch.ones(1, 3, 3).double(), torch.tensor([[0.1, -0.1, 9.0]]).double()
    >>> [round(w, 1) for w in student_weights(K, torch.full((1, 3), 0.1).double(), y, 4.0)[0].tolist()]
    [1.0, 0.9, 0.0]
    """
    nu = float(degrees_of_freedom)
    weights = torch.ones_like(y)
    for _ in range(steps):
        noise = noise_variance / weights
        Q = torch.linalg.inv(K + torch.diag_embed(noise))
        missed = noise * (Q @ y[..., None])[..., 0]
        square = missed.square() + noise - noise.square() * Q.diagonal(dim1=-2, dim2=-1)
        weights = (nu + 1.0) / (nu + square / noise_variance)
    return weights


def joint(
    kernel: LocalKernel, X_new: Tensor, X: Tensor, y: Tensor, noise_variance: Tensor, rows: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean (B,) and covariance (B, B) of r at X_new given one shared set of observations `rows` (m,).

    Notes
    -----
    O(m³ + B m² + B² m): meant for some thousand places and observations at most.
    """
    A = X[rows]
    L = cholesky(
        kernel(A, A) + torch.diag(noise_variance[rows]), jitter=JITTER, what="the shared observations"
    )
    v = torch.linalg.solve_triangular(L, kernel(A, X_new), upper=False)
    alpha = torch.linalg.solve_triangular(L, y[rows][:, None], upper=False)
    return (v.T @ alpha)[:, 0], kernel(X_new, X_new) - v.T @ v


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

    With every row's neighbours taken among the rows before it (`neighbours.earlier`) the sum over all rows is
    the Vecchia likelihood, exact when all earlier rows are neighbours. With degrees of
    freedom the outermost density is a Student-t, which keeps outliers from setting the kernel, and with
    `weighted` the neighbours count by how well they agree (`condition`).

    Notes
    -----
    O(B k³); any subset of rows gives an unbiased estimate of the mean.

    References
    ----------
    Vecchia 1988; Katzfuss and Guinness 2021
    """
    nu = float(degrees_of_freedom.detach()) if weighted and degrees_of_freedom is not None else None
    c = condition(kernel, X[target], X, y, noise_variance, index, nu)
    return log_density(y[target], c.mean, c.variance + noise_variance[target], degrees_of_freedom)


@dataclass(frozen=True)
class LocalFit:
    """What `fit` learned.

    kernel : of r
    tau2, s2 : noise variance τ² + s²/n of an average of n measurements
    degrees_of_freedom : of a new observation, None for Gaussian noise
    shift : (P,) coefficients of the columns that move the level
    loss : minibatch losses, one a step
    weighted : whether observations are conditioned on as Student-t, else as Gaussian
    """

    kernel: LocalKernel
    tau2: float
    s2: float
    degrees_of_freedom: float | None
    shift: Tensor
    loss: tuple[float, ...]
    weighted: bool = True

    @property
    def tails(self) -> float | None:
        """Degrees of freedom with which observations are conditioned on, None for Gaussian ones."""
        return self.degrees_of_freedom if self.weighted else None

    def noise_variance(self, counts: Tensor) -> Tensor:
        """τ² + s²/n for counts (N,)."""
        return self.tau2 + self.s2 / counts


def fit(
    X: Tensor,
    y: Tensor,
    counts: Tensor,
    sets: Sequence[tuple[Tensor, Tensor]],
    start: LocalKernel,
    *,
    columns: Tensor | None = None,
    student: bool = True,
    weighted: bool = True,
    per_count: bool = True,
    steps: int = 120,
    batch: int = 128,
    learning_rate: float = 0.04,
    seed: int = 0,
) -> LocalFit:
    """Kernel, noise and level shift that make the rows likely given their neighbours.

    Maximises the sum of `conditional_log_density` by minibatches (Adam, one cycle).

    Parameters
    ----------
    X, y, counts : (N, D), (N,), (N,) observations, float64, all on one device; y standardised
    sets : (target rows (m,), their neighbours (m, k)) pairs, visited in turn
    start : starting kernel; its structure is kept, its variation over space, if it has one, learned
    columns : (N, P) that shift the level linearly (what b(n) is made of), or None
    student : Student-t with learned degrees of freedom, else Gaussian
    weighted : condition on the neighbours as Student-t too (`student_weights`), else as Gaussian
    per_count : learn s² too; False when all counts are equal

    Returns
    -------
    LocalFit

    Raises
    ------
    NumericalFailure
        when a neighbourhood's covariance cannot be factorised

    Notes
    -----
    O(steps · batch · k³).
    """
    device = X.device
    B = torch.zeros(len(y), 0, dtype=y.dtype, device=device) if columns is None else columns
    p = {
        "lengthscale": start.log_lengthscale.double().clone(),
        "variance": start.log_variance.double().clone(),
        "tau2": torch.tensor(math.log(0.1), dtype=torch.float64),
        "s2": torch.tensor(0.0 if per_count else -math.inf, dtype=torch.float64),
        "tails": torch.tensor(math.log(3.0), dtype=torch.float64),
        "shift": torch.zeros(B.shape[1], dtype=torch.float64),
    }
    bumps = start.variation
    if bumps is not None:
        p |= {"stretch": bumps.lengthscale.double().clone(), "amplitude": bumps.variance.double().clone()}
    p = {name: v.to(device) for name, v in p.items()}
    for name, v in p.items():
        v.requires_grad_(name != "s2" or per_count)

    def kernel_of(p: dict[str, Tensor]) -> LocalKernel:
        variation = None
        if bumps is not None:
            variation = replace(
                bumps.to(p["stretch"].device), lengthscale=p["stretch"], variance=p["amplitude"]
            )
        return LocalKernel(p["lengthscale"], p["variance"], start.smoothness, start.time_axis, variation)

    # The noise travels farther than the kernel (decades of τ²), and must settle before the tails can.
    groups = [
        {
            "params": [p[n] for n in ("lengthscale", "variance", "shift", "stretch", "amplitude") if n in p],
            "lr": learning_rate,
        },
        {
            "params": [p[name] for name in ("tau2", "s2", "tails") if p[name].requires_grad],
            "lr": 2 * learning_rate,
        },
    ]
    optimiser = torch.optim.Adam(groups, betas=(0.9, 0.98))
    rates = [learning_rate, 2 * learning_rate]
    # torch divides by the length of the rise less one: five steps or fewer are the start of a longer cycle.
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, rates, total_steps=max(steps, 6), pct_start=0.2)
    generator = torch.Generator().manual_seed(seed)
    history = []
    for step in range(steps):
        target, index = sets[step % len(sets)]
        pick = torch.randint(len(target), (batch,), generator=generator).to(device)
        kernel = kernel_of(p)
        noise = p["tau2"].exp() + p["s2"].exp() / counts
        nu = p["tails"].exp() + 2.05 if student else None
        loss = -conditional_log_density(
            kernel, X, y - B @ p["shift"], noise, target[pick], index[pick], nu, weighted=weighted
        ).mean()
        if kernel.variation is not None:
            loss = loss + kernel.variation.penalty() / len(y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        cycle.step()
        history.append(loss.item())
    p = {name: v.detach().cpu() for name, v in p.items()}
    return LocalFit(
        kernel=kernel_of(p),
        tau2=p["tau2"].exp().item(),
        s2=p["s2"].exp().item(),
        degrees_of_freedom=p["tails"].exp().item() + 2.05 if student else None,
        shift=p["shift"],
        loss=tuple(history),
        weighted=weighted and student,
    )
