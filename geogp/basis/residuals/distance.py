"""A residual that grows with the distance from the training inputs."""

import math
from collections.abc import Mapping
from copy import copy
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float
from scipy import sparse
from scipy.spatial import cKDTree
from torch import Tensor

from geogp.basis.expansions.base import Expansion
from geogp.basis.residuals.base import Representing, Residual
from geogp.basis.residuals.bumps import bumps
from geogp.basis.residuals.places import Places
from geogp.data import Data

#: Places farther out than so many sd of the positions are as far as that: float32 ends not much later.
FARTHEST = 1e30
#: Pairs of places that a GPU looks at at once.
PAIRS = 2**26
#: Rows of a training sample whose variogram gives range and sill where no trial does.
SAMPLE = 1500


class Distance(Residual):
    """r(x) = sqrt(a (1 - exp(-(d(x) / range)^power))) u(x), d(x) the distance to the nearest training input.

    u is a smooth process of variance one over positions, its correlation 1 / e at twice the range, as that of an exponential
    kernel conditioned on a place d away has the variance a (1 - exp(-d / range)); with a power of 1.5 the variance grows more
    slowly at first, as that of a smoother surface does. r is nothing on every training row, so the
    mean stays the basis'. d is measured on the position; without one on all standardised inputs, and u is then
    independent from row to row. Of more than 65,536 places cells of a grid stand for all, and half their diagonal is
    taken off.

    Training rows cannot tell these three numbers: they come from a trial that leaves places out (`geogp.engines.growth`), or, of
    few rows or without a position, with a power of 1 from the exponential variogram of the training targets.

    Notes
    -----
    Cost O(N log A) with A <= 65,536 anchors.

    Examples
    --------
    >>> from geogp.basis.expansions.linear import Linear
    >>> residual = Distance(Linear(1, 2)).eval()
    >>> residual.place(torch.zeros(1, 1))
    >>> x = torch.tensor([[0.0], [1.0], [9.0]])
    >>> residual.variance(Linear(1, 2), x, x, x).diff().gt(0).tolist()
    [True, True]
    """

    formula = "r(x) = sqrt(v (1 - exp(-(d(x) / ρ)^p))) u(x), u a smooth process of variance one"
    far_behind_network = (
        "larger than at the data by the residual's v, once the distance to the data is several times ρ; what the basis "
        "leaves open need not grow"
    )

    takes_phi = False
    reverts_to_prior = True
    explains_nothing_far = False
    moved_by_rows = ("anchors", "radius")
    scales_with_basis = False
    learns_by_trial = True
    anchors: Tensor
    columns: Tensor
    radius: Tensor
    range: Tensor
    sill: Tensor
    power: Tensor

    def __init__(self, expansion: Expansion):
        super().__init__(expansion)
        self.register_buffer("anchors", torch.zeros(0, 1))
        self.register_buffer("columns", torch.zeros(0, dtype=torch.long))
        self.register_buffer("radius", torch.zeros(()))
        self.register_buffer("range", torch.ones(()))
        self.register_buffer("sill", torch.ones(()))
        self.register_buffer("power", torch.ones(()))
        self._found: tuple[Tensor, cKDTree] | None = None

    def _positions(self, Z: Float[Tensor, "N D"]) -> Float[Tensor, "N p"]:
        P = Z[:, self.columns] if len(self.columns) else Z
        return P.detach().double().clamp(-FARTHEST, FARTHEST)

    def positions(self, Z: Float[Tensor, "N D"]) -> Float[np.ndarray, "N p"]:
        return np.ascontiguousarray(self._positions(Z).cpu().numpy())

    @property
    def _tree(self) -> cKDTree:
        if self._found is None or self._found[0] is not self.anchors:
            self._found = self.anchors, cKDTree(self.anchors.double().cpu().numpy())
        return self._found[1]

    def distance(self, Z: Float[Tensor, "N D"]) -> Float[Tensor, " N"]:
        """d(x) of standardised inputs Z (N, D): (N,). By a tree on the CPU; a GPU looks at all places."""
        if Z.device.type == "cpu":
            away = torch.as_tensor(self._tree.query(self.positions(Z))[0])
        else:
            away = nearest(self._positions(Z), self.anchors.double())
        return (away - self.radius.to(away)).clamp_min(0.0).to(Z)

    def variance(
        self,
        expansion: Expansion,
        Z: Float[Tensor, "N D"],
        h: Float[Tensor, "N H"],
        phi: Float[Tensor, "N r"],
    ) -> Float[Tensor, " N"]:
        if self.training or not len(self.anchors):  # on training rows d = 0
            return torch.zeros_like(phi[:, 0])
        return grown(self.distance(Z), self.sill, self.range, self.power)

    def root(self, Z: Float[Tensor, "N D"]) -> sparse.csr_array | None:
        if not len(self.anchors) or not len(self.columns):
            return None
        size = grown(
            self.distance(Z.double()), self.sill.double(), self.range.double(), self.power.double()
        ).sqrt()
        B = bumps(self.positions(Z), 2.0 * float(self.range))
        return sparse.csr_array(sparse.diags_array(size.cpu().numpy()) @ B)

    def place(self, P: Float[Tensor, "n p"]) -> None:
        """Grow from the places P (n, p)."""
        self._stand_at(Places.of([P.detach().double().cpu().numpy()]), P.device)

    def _stand_at(self, places: Places, device: torch.device) -> None:
        self.anchors = torch.as_tensor(places.points, device=device)
        self.radius = torch.tensor(places.radius, dtype=torch.float64, device=device)

    def grown_from(self, places: Places) -> Self:
        other = copy(self)
        other._buffers = dict(self._buffers)
        other._stand_at(places, self.anchors.device)
        return other

    def settle(self, model: Representing, data: Data) -> None:
        with torch.no_grad():
            Z = model.encoder.standardise(data.X)
            self.columns = torch.tensor(list(model.encoder.spatial or ()), dtype=torch.long, device=Z.device)
            parts = (self.positions(model.encoder.standardise(part.X)) for part in data.chunks())
            self._stand_at(Places.of(parts), Z.device)
            P = Z[:, self.columns] if len(self.columns) else Z
            sill, reach = variogram(P, data.y)
            self.sill, self.range, self.power = P.new_tensor(sill), P.new_tensor(reach), P.new_ones(())

    def taught(self) -> dict[str, float]:
        return {"sill": float(self.sill), "range": float(self.range), "power": float(self.power)}

    def take(self, taught: dict[str, float]) -> None:
        if taught:
            self.sill = torch.full_like(self.sill, taught["sill"])
            self.range = torch.full_like(self.range, taught["range"])
            self.power = torch.full_like(self.power, taught.get("power", 1.0))  # absent in older runs

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        for name in ("anchors", "columns"):  # their sizes come from the data
            if prefix + name in state_dict:
                setattr(self, name, torch.empty_like(state_dict[prefix + name]))
        if prefix + "sill" in state_dict and prefix + "power" not in state_dict:  # of an older run
            state_dict = {**state_dict, prefix + "power": torch.ones(())}
        super()._load_from_state_dict(state_dict, prefix, *args)


def nearest(P: Float[Tensor, "N p"], anchors: Float[Tensor, "A p"]) -> Float[Tensor, " N"]:
    """Distance (N,) of places P to the nearest of A others, by looking at all: O(N A), a bounded number at once.

    Examples
    --------
    >>> nearest(torch.tensor([[0.0, 3.0], [9.0, 0.0]]), torch.tensor([[0.0, 0.0], [9.0, 1.0]])).tolist()
    [3.0, 1.0]
    """
    out = []
    for part in P.split(max(1, PAIRS // max(len(anchors), 1))):
        squares = torch.zeros(len(part), len(anchors), dtype=P.dtype, device=P.device)
        for d in range(P.shape[1]):
            squares.add_((part[:, d, None] - anchors[:, d]).square_())
        out.append(squares.amin(dim=1).sqrt())
    return torch.cat(out) if out else P.new_zeros(0)


def grown(
    d: Float[Tensor, " N"], sill: Float[Tensor, ""], reach: Float[Tensor, ""], power: Float[Tensor, ""]
) -> Float[Tensor, " N"]:
    """sill (1 - exp(-(d / reach)^power)): the powered exponential variogram without nugget."""
    return sill * -torch.expm1(-(d / reach).pow(power))


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
