"""SoftKI's stabilised marginal likelihood: exact while its factorisation holds, Hutchinson's estimate when not."""

import logging

import torch
from torch import Tensor

from geogp.basis.objectives.objective import SOLVES_BATCHES, objective
from geogp.basis.objectives.sums import Design, Sums, negative_log_evidence
from geogp.errors import NumericalFailure
from geogp.linalg import conjugate_gradients

log = logging.getLogger(__name__)

#: Probe vectors of the trace estimate.
PROBES = 16


@objective(SOLVES_BATCHES, "-log N(y; m, Φ Φ' + σ² I) of a batch")
def softki(rows: Design, seed: int = 0) -> Tensor:
    """-log p(y_b) / b of one batch; its gradient's estimate `pseudoloss` where a Cholesky factor fails: that of the
    points' kernel matrix K_ZZ (then the rows come with it, unfactorised), or that of the evidence.

    A batch's evidence is that of the batch alone, so the sum over batches is not the evidence of all rows:
    it ignores what batches share. Cost O(b r^2 + r^3).

    Source: soft-kernel-interpolation, eq. 13 and 17.
    """
    n = len(rows.y)
    if rows.inner is not None:
        log.info(
            "the points' kernel matrix has no factor for a batch of %d rows; Hutchinson's pseudoloss instead",
            n,
        )
        return pseudoloss(rows, seed=seed)
    try:
        return negative_log_evidence(Sums.of(rows), max_jitter=0.0) / n
    except NumericalFailure:
        log.info("the marginal likelihood of a batch of %d rows failed; Hutchinson's pseudoloss instead", n)
        return pseudoloss(rows, seed=seed)


def pseudoloss(rows: Design, *, seed: int = 0, probes: Tensor | None = None) -> Tensor:
    """A number whose gradient estimates that of -log p(y) / b without any factorisation.

    With D = Phi Phi' + Lambda (or s K_ZZ s' + Lambda), u_0 = D^-1 y and u_j = D^-1 z_j held fixed:
    [-u_0'D u_0 + mean_j u_j'D z_j] / (2 b). Its gradient is that of the marginal likelihood with
    tr(D^-1 dD) estimated by probes z_j, E[z z'] = I. Unbiased in the probes. The value itself means nothing.

    Parameters
    ----------
    probes : (b, l) vectors z_j; default `PROBES` Gaussian ones

    Notes
    -----
    Cost O(b r (l + 1)) an iteration of conjugate gradients. Source: soft-kernel-interpolation, eq. 15-16,
    with two corrections that the derivative of eq. 13 demands: the first term's sign, and probes of length
    sqrt(b) rather than 1.
    """
    phi, y, noise = rows.phi.double(), rows.y.double(), rows.noise_variance.double()
    if probes is None:
        generator = torch.Generator().manual_seed(seed)
        probes = torch.randn(len(y), PROBES, generator=generator, dtype=torch.float64).to(y.device)

    inner = torch.eye(phi.shape[1]).to(phi) if rows.inner is None else rows.inner.double()

    def apply(V: Tensor) -> Tensor:
        return phi @ (inner @ (phi.T @ V)) + noise[:, None] * V

    with torch.no_grad():
        diagonal = ((phi @ inner) * phi).sum(1) + noise
        U = conjugate_gradients(apply, torch.cat([y[:, None], probes], 1), diagonal, tolerance=1e-8)
    fit = (U[:, :1] * apply(U[:, :1])).sum()
    trace = (U[:, 1:] * apply(probes)).sum() / probes.shape[1]
    return 0.5 * (trace - fit) / len(y)
