"""A latent variance that grows with the distance from the training inputs."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from geogp.basis.expansions.base import Expansion
from geogp.basis.residuals.base import Representing, Residual
from geogp.data import Data

#: Places that stand for all training inputs.
ANCHORS = 1024
#: Rows of a training sample whose variogram gives the first range and sill.
SAMPLE = 1500
#: Held-out rows away from every anchor below which they decide nothing.
ENOUGH = 100


class Distance(Residual):
    """a (1 - exp(-d(x) / range)), d(x) the distance to the nearest training input.

    d is measured on the position (on all standardised inputs when there is none) and is zero on every training
    row: with more than 1,024 of them, well-spread anchors stand for all and their covering radius is taken off.
    Training rows therefore cannot fit a and the range. They start from the exponential variogram of the
    training targets and, where at least 100 validation rows lie at d > 0 (held-out blocks), are multiplied by
    the factors of a small grid that score those rows best.

    Notes
    -----
    Cost O(N A) with A <= 1,024 anchors.

    Examples
    --------
    >>> from geogp.basis.expansions.linear import Linear
    >>> residual = Distance(Linear(1, 2)).eval()
    >>> residual.place(torch.zeros(1, 1))
    >>> x = torch.tensor([[0.0], [1.0], [9.0]])
    >>> residual.variance(Linear(1, 2), x, x, x).diff().gt(0).tolist()
    [True, True]
    """

    formula = "var r(x) = a (1 - exp(-d(x) / ρ))"
    far_behind_network = "the prior's, once the distance to the data is several times ρ"

    takes_phi = False
    reverts_to_prior = True
    moves_with_rows = True
    scales_with_basis = False
    anchors: Tensor
    columns: Tensor
    radius: Tensor
    range: Tensor
    sill: Tensor

    def __init__(self, expansion: Expansion):
        super().__init__(expansion)
        self.register_buffer("anchors", torch.zeros(0, 1))
        self.register_buffer("columns", torch.zeros(0, dtype=torch.long))
        self.register_buffer("radius", torch.zeros(()))
        self.register_buffer("range", torch.ones(()))
        self.register_buffer("sill", torch.ones(()))

    def distance(self, Z: Float[Tensor, "N D"]) -> Float[Tensor, " N"]:
        """d(x) of standardised inputs Z (N, D): (N,)."""
        P = Z[:, self.columns] if len(self.columns) else Z
        # By products of matrices a place would lie up to 1e-3 from itself, and a row measured before count as away.
        away = torch.cdist(P, self.anchors.to(P), compute_mode="donot_use_mm_for_euclid_dist")
        return (away.min(1).values - self.radius).clamp_min(0.0)

    def variance(
        self,
        expansion: Expansion,
        Z: Float[Tensor, "N D"],
        h: Float[Tensor, "N H"],
        phi: Float[Tensor, "N r"],
    ) -> Float[Tensor, " N"]:
        if self.training or not len(self.anchors):  # on training rows d = 0
            return torch.zeros_like(phi[:, 0])
        return grown(self.distance(Z), self.sill, self.range)

    def place(self, P: Float[Tensor, "n p"]) -> None:
        """Choose the anchors of places P (n, p): each next one is the place farthest from those before."""
        places = torch.unique(P, dim=0)
        if len(places) <= ANCHORS:
            self.anchors, self.radius = places, torch.zeros((), dtype=P.dtype, device=P.device)
            return
        chosen = [0]
        nearest = (places - places[0]).norm(dim=1)
        for _ in range(ANCHORS - 1):
            far = int(nearest.argmax())
            chosen.append(far)
            nearest = torch.minimum(nearest, (places - places[far]).norm(dim=1))
        self.anchors, self.radius = places[chosen], nearest.max()

    def settle(self, model: Representing, data: Data, validation: Data | None = None) -> None:
        with torch.no_grad():
            Z = model.encoder.standardise(data.X)
            spatial = model.encoder.spatial
            self.columns = torch.tensor(list(spatial or ()), dtype=torch.long, device=Z.device)
            P = Z[:, self.columns] if len(self.columns) else Z
            self.place(P)
            sill, reach = variogram(P, data.y)
            self.sill, self.range = P.new_tensor(sill), P.new_tensor(reach)
            if validation is not None:
                self.tune(model, validation)

    def taught(self) -> dict[str, float]:
        return {"sill": float(self.sill), "range": float(self.range)}

    def take(self, taught: dict[str, float]) -> None:
        if taught:
            self.sill = torch.full_like(self.sill, taught["sill"])
            self.range = torch.full_like(self.range, taught["range"])

    def tune(self, model: Representing, validation: Data) -> None:
        """Multiply sill and range by the factors that predict held-out rows away from the anchors best."""
        d = self.distance(model.encoder.standardise(validation.X))
        away = torch.nonzero(d > 0)[:, 0]
        if len(away) < ENOUGH:
            return
        rows = validation.rows(away[:: max(1, len(away) // 5000)])
        moments = model.moments(rows.X, rows.counts)
        d = self.distance(model.encoder.standardise(rows.X))
        base = moments.latent_variance + moments.noise_variance
        base = base - grown(d, self.sill, self.range)
        miss = (rows.y - moments.mean).square()
        best, choice = math.inf, (1.0, 1.0)
        for by_sill in (0.25, 0.5, 1.0, 2.0):
            for by_range in (0.1, 0.3, 1.0, 3.0, 10.0):
                v = base + grown(d, by_sill * self.sill, by_range * self.range)
                score = float((0.5 * (miss / v + v.log())).clamp_max(0.5 * v.log() + 8.0).mean())
                if score < best:
                    best, choice = score, (by_sill, by_range)
        self.sill, self.range = self.sill * choice[0], self.range * choice[1]

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        for name in ("anchors", "columns"):  # their sizes come from the data
            if prefix + name in state_dict:
                setattr(self, name, torch.empty_like(state_dict[prefix + name]))
        super()._load_from_state_dict(state_dict, prefix, *args)


def grown(d: Float[Tensor, " N"], sill: Float[Tensor, ""], reach: Float[Tensor, ""]) -> Float[Tensor, " N"]:
    """sill (1 - exp(-d / reach)): the exponential variogram without nugget."""
    return sill * -torch.expm1(-d / reach)


def variogram(P: Float[Tensor, "n p"], y: Float[Tensor, " n"]) -> tuple[float, float]:
    """Sill without nugget, and range, of nugget + sill (1 - exp(-d / range)) fitted to pairs of rows.

    Least squares over 24 distance classes of a sample of 1,500 rows, the range on a grid. (1, median
    distance) where the rows tell nothing.
    """
    rows = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))[:SAMPLE].to(y.device)
    P, y = P[rows].double(), y[rows].double()
    i, j = torch.triu_indices(len(y), len(y), 1, device=y.device)
    d, half = (P[i] - P[j]).norm(dim=1), 0.5 * (y[i] - y[j]).square()
    d, half = d[d > 0], half[d > 0]
    if len(d) < 50 or float(half.mean()) <= 0:
        return 1.0, float(d.median()) if len(d) else 1.0
    edges = torch.quantile(
        d[:: max(1, len(d) // 100_000)], torch.linspace(0, 1, 25, dtype=d.dtype, device=d.device) ** 2
    )
    at = torch.bucketize(d, edges[1:-1])
    size = torch.bincount(at, minlength=24).clamp_min(1)
    lag = torch.bincount(at, weights=d, minlength=24) / size
    gamma = torch.bincount(at, weights=half, minlength=24) / size
    best, out = math.inf, (1.0, float(d.median()))
    for reach in float(d.max()) * torch.logspace(-2.5, 0, 30, dtype=torch.float64):
        A = torch.stack([torch.ones_like(lag), -torch.expm1(-lag / reach)], 1)
        fit = torch.linalg.lstsq(A.cpu(), gamma[:, None].cpu()).solution[:, 0].to(A)
        loss = float((A @ fit - gamma).square().sum())
        if float(fit.min()) > 0 and loss < best:
            best, out = loss, (float(fit[1]), float(reach))
    return out
