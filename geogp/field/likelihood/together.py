"""Kernel, noise and count shift by the likelihood of all rows: a search from where minibatches have come."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from geogp.field.frame import SPACINGS
from geogp.field.kernel import LocalKernel
from geogp.field.likelihood.restricted import Restricted, Rows, restricted
from geogp.field.likelihood.trained import Trained
from geogp.field.local_gp import LocalGP
from geogp.field.noise.rows import ToldNoise
from geogp.field.student import heavy_tailed
from geogp.field.variation.crowding import Crowding
from geogp.field.variation.noisiness import Noisiness

Array = NDArray[np.float64]

#: Fewer rows than this are factorised as a whole; more are a product of conditionals.
DENSE_BELOW = 600
#: The search's passes over the rows.
PASSES = 20
#: It ends before where two of them make the rows likelier by fewer nats, and where so many promise too little.
SETTLED, GIVEN_UP_AFTER = 0.01, 8
#: How far the logarithm of a length or a variance goes from where it begins; that of a noise may fall farther.
FARTHEST, NOISELESS = 5.0, 14.0
#: Rates of a term's prior: of a spacing of places over its length, of a covariate's sd over its length along that, and of
#: the term's own sd, for values whose sd is about 1.
SHORT, COVARIATE, LARGE = 1.0, 2.0, 1.0
#: Prior sd of the logarithm of how its lengths along the axes of space differ: a turned metric is learned elsewhere.
RATIO_SD = 0.5
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
    crowding: Crowding | Noisiness | None = None,
    wanted: float = 0.0,
    passes: int = PASSES,
    dense_below: int = DENSE_BELOW,
    seed: int = 0,
    tick: Callable[[], None] = lambda: None,
) -> tuple[LocalGP, float]:
    """A local GP whose kernel, noise and count shift make all rows likely together, as a search from `gp` finds them; and
    by how many nats they are likelier, their prior included.

    The rows' marginal likelihood, a plane integrated out (restricted likelihood). What minibatches of rows given their
    neighbours say of few rows is far less: of a range in space and time little, and that by chance. Tails stay; observations
    that are weighed as Student-t keep the weights they have under `gp`.

    Parameters
    ----------
    gp : as `fit_local_gp` gives it, its kernel the same everywhere, and how its noise differs from time to time stays; X, y, counts, columns, told, per_count : as there
    crowding : of X, which lengthscale, variance and noise may follow, or the places among which the noise alone may differ; None
        where they are the same everywhere
    wanted : nats that must be gained for it to be of any use: given up where a quarter is not in sight
    passes : of the search, at most; dense_below : so many rows are factorised as a whole; seed : of the order of more rows than are factorised at once

    Raises
    ------
    NumericalFailure
        when the rows' covariance cannot be factorised where the search begins

    Notes
    -----
    O(passes · N³) below `dense_below` rows; above O(N log N), and O(passes · k³) for each of 3,000 rows.

    References
    ----------
    Harville 1974 (restricted likelihood); Stein, Chi and Welty 2004 (as a product of conditionals)

    Examples
    --------
    >>> from geogp.field.kernel import LocalKernel
    >>> X = torch.rand(40, 2, generator=torch.Generator().manual_seed(0)).double()
    >>> kernel = LocalKernel(torch.zeros(1, 2), torch.zeros(1), ("matern32",))
    >>> gp = LocalGP(kernel, 0.1, 0.1, None, torch.zeros(0), ())
    >>> fit_all_together(gp, X, X[:, 0].sin(), torch.ones(40).double(), per_count=False)[0].tau2 < 0.01
    True
    """
    rows = _rows(gp, X, y, counts, columns)
    likelihood = restricted(X, gp.kernel, dense_below=dense_below, seed=seed)
    model = _begun_at(gp, rows, told, per_count, crowding)
    rows = _weighed(rows, gp.tails, _begun_at(gp, rows, told, per_count), likelihood)
    learned = [p for name, p in model.named_parameters() if p.requires_grad and name != "tails"]
    losses: list[float] = []

    def loss(at: Array) -> tuple[float, Array]:
        with torch.no_grad():
            vector_to_parameters(torch.from_numpy(at).to(X.device), learned)
        model.zero_grad()
        prior = 0.5 * model.shift.square().sum() / SHIFT_SD**2
        prior = prior + penalty(model.kernel())
        if (noise := model.noise_of_rows()) is not None:
            prior = prior + noise.noise.penalty()
        if crowding is not None:
            prior = prior + crowding.penalty(model.crowding_coefficients)
        prior.backward()
        total = prior.item() + likelihood.backward(model, rows)
        losses.append(total)
        tick()
        gradient = [torch.zeros_like(p) if p.grad is None else p.grad for p in learned]
        return total, parameters_to_vector(gradient).cpu().numpy()

    start = parameters_to_vector(learned).detach().cpu().numpy()
    noises = {id(model.tau2), id(model.s2)}
    down = [NOISELESS if id(p) in noises else FARTHEST for p in learned for _ in range(p.numel())]
    reach = [(v - least, v + FARTHEST) for v, least in zip(start, down)]
    found = minimize(
        loss,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=reach,
        callback=_until_settled(losses, wanted),
        options={"maxiter": passes},
    )
    with torch.no_grad():
        vector_to_parameters(torch.from_numpy(found.x).to(X.device), learned)
    made = model.cpu().learned(list(gp.loss), gp.weighted)
    scale = 1.0 / gp.variance_factor
    made = replace(made, tau2=scale * made.tau2, s2=scale * made.s2, of_times=gp.of_times)
    return made, losses[0] - float(found.fun)


def _until_settled(losses: list[float], wanted: float) -> Callable[[OptimizeResult], None]:
    """What ends a search where two passes gain next to nothing, or the first of them less than a quarter of what is wanted."""
    reached: list[float] = []

    def after_a_pass(intermediate_result: OptimizeResult) -> None:
        reached.append(intermediate_result.fun)
        little = len(reached) > 2 and reached[-3] - reached[-1] < SETTLED
        if little or (len(reached) == GIVEN_UP_AFTER and losses[0] - reached[-1] < wanted / 4):
            raise StopIteration

    return after_a_pass


def penalty(kernel: LocalKernel) -> Tensor:
    """Minus the log prior density of a kernel's terms, less a constant: towards long lengths and small variances, as few
    rows leave them open, and lengths that are alike along both axes of space.

    References
    ----------
    Fuglstad, Simpson, Lindgren and Rue 2019, Constructing priors that penalize the complexity of Gaussian random fields
    """
    over_space = kernel.log_lengthscale[:, kernel.space_axes[:2]]
    spacing = torch.exp(-over_space.mean(1)) / SPACINGS
    ratio = over_space[:, 0] - over_space[:, 1]
    sd = torch.exp(0.5 * kernel.log_variance)
    followed = torch.exp(-kernel.log_lengthscale[:, kernel.space_axes[2:]]).sum(1)
    return (COVARIATE * followed + SHORT * spacing + LARGE * sd + 0.5 * (ratio / RATIO_SD).square()).sum()


def minus_log_likelihoods(
    gps: Sequence[LocalGP],
    X: Tensor,
    y: Tensor,
    counts: Tensor,
    *,
    weighed_by: LocalGP,
    columns: Tensor | None = None,
    told: ToldNoise | None = None,
    per_count: bool = True,
    seed: int = 0,
) -> list[float]:
    """Of all rows under each, a plane integrated out, less a constant; Student-t observations with the weights they have under another."""
    likelihood = restricted(X, weighed_by.kernel, dense_below=DENSE_BELOW, seed=seed)
    bare = _rows(weighed_by, X, y, counts, columns)
    by = _begun_at(weighed_by, bare, told, per_count)
    weighed = {tails: _weighed(bare, tails, by, likelihood) for tails in {gp.tails for gp in gps}}
    return [likelihood.backward(_begun_at(gp, bare, told, per_count), weighed[gp.tails]) for gp in gps]


def _rows(gp: LocalGP, X: Tensor, y: Tensor, counts: Tensor, columns: Tensor | None) -> Rows:
    nothing = torch.zeros(len(y), 0, dtype=y.dtype, device=y.device)
    return Rows(X, y, counts, nothing if columns is None else columns, torch.ones_like(y))


def _begun_at(
    gp: LocalGP,
    rows: Rows,
    told: ToldNoise | None,
    per_count: bool,
    crowding: Crowding | Noisiness | None = None,
) -> Trained:
    """What is trained, with the numbers of a local GP; its noise as that which rows have here."""
    student = gp.degrees_of_freedom is not None
    model = Trained(
        gp.kernel,
        rows.columns.shape[1],
        told,
        None,
        student=student,
        per_count=per_count,
        crowding=crowding,
        factor_of_times=gp.factor_of_times(rows.X),
    )
    factor = gp.variance_factor
    return model.begun_at(replace(gp, tau2=factor * gp.tau2, s2=factor * gp.s2)).to(rows.X.device)


def _weighed(rows: Rows, tails: float | None, model: Trained, likelihood: Restricted) -> Rows:
    """Rows with the weights they have under a model, where they are weighed."""
    return rows.weighed(likelihood, model, tails) if heavy_tailed(tails) else rows
