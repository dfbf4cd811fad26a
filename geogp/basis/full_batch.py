"""A step on all rows: the gradient of an objective that is a function of sums over them, in pieces that stay in cache.

Of an objective F(S) of sums S over rows, dF = <F'(S), dS>: so S is taken first, and then each piece of the rows is
given its slope. That of G = Phi'W Phi, Gbar, is W Phi (Gbar + Gbar') by each row of Phi: one product where automatic
differentiation takes two. Where a matrix R that no row knows of stands between the rows and their features,
Phi = s R, it is made once for all pieces, and the slope by s is W s R (Gbar + Gbar') R', one product again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from geogp.basis.model import LowRankGP
from geogp.basis.objectives import OBJECTIVES, Design, Sums
from geogp.data import Data

#: Rows whose activations are kept from the sums to the slopes, beyond which they are computed twice; or, where there is no
#: network, so many numbers of their features.
KEPT_ROWS, KEPT = 16384, 2**24
#: Numbers in a piece of the rows, and its fewest rows: features and their slopes stay in a core's cache.
PIECE, FEWEST = 2**18, 512


@dataclass(frozen=True)
class Piece:
    """Some rows as an objective sees them, s (n, k) their features or what comes before R."""

    s: Tensor
    y: Tensor
    noise_variance: Tensor
    #: Beyond the basis; None where the base kernel says it, `base` its variance.
    residual_variance: Tensor | None
    base: Tensor | None


@dataclass(frozen=True)
class Slopes:
    """F'(S), and what of it goes back to s."""

    sums: Sums
    both: Tensor  # R (Gbar + Gbar') R'
    cross: Tensor  # R times the slope of Phi'W y


class Rows:
    """All rows of a model, by pieces, with the matrix R that their features share, if there is one."""

    def __init__(self, model: LowRankGP, data: Data, size: int | None = None):
        self.model, self.data = model, data
        residual, expansion = model.residual, model.expansion
        #: What a row's residual variance asks of its features is known from their sums, or nothing.
        self.apart = residual.needs_base_kernel or not residual.takes_phi
        root = expansion.root() if self.apart else None
        self.root, self.shared = root, None if root is None else root.detach()
        #: Features that take a factor of a matrix are not to take it for each piece.
        whole = data.y.device.type != "cpu" or (root is None and not self.apart)
        small = max(FEWEST, PIECE // expansion.rank)
        self.size = size or (KEPT_ROWS if whole else small)

    def parts(self) -> Iterator[Data]:
        return self.data.chunks(self.size)

    def piece(self, part: Data) -> Piece:
        """What the objective sees of some rows."""
        model = self.model
        Z, h = model.encoder.standardise(part.X), model.backbone(model.encoder(part.X))
        s = model.expansion(h) if self.root is None else model.expansion.before_root(h)
        base = residual = None
        if model.residual.needs_base_kernel:
            base = model.expansion.base_diagonal(h)
        else:
            residual = model.residual.variance(model.expansion, Z, h, s)
        y = part.y - model.constant_mean
        return Piece(s, y, model.noise(Z, part.counts), residual, base)

    def sums(self, piece: Piece, *, in_precision: bool = False) -> Sums:
        """Of one piece, without gradient; `gap` is that of the base kernel where there is one, see `completed`."""
        noise = piece.noise_variance.detach()
        beyond = piece.residual_variance if piece.base is None else piece.base
        assert beyond is not None
        if in_precision and piece.residual_variance is not None:
            noise = noise + piece.residual_variance.detach()
        phi = piece.s.detach() if self.shared is None else piece.s.detach() @ self.shared
        return Sums.without_gradient(Design(phi, piece.y.detach(), noise, beyond.detach()))

    def completed(self, sums: Sums) -> Sums:
        """With the gap that the basis leaves of the base kernel."""
        if not self.model.residual.needs_base_kernel:
            return sums
        return replace(sums, gap=sums.gap - sums.gram.diagonal().sum())

    def total(self, *, in_precision: bool = False) -> Sums:
        """Of all rows, without gradient."""
        total: Sums | None = None
        with torch.no_grad():
            for part in self.parts():
                own = self.sums(self.piece(part), in_precision=in_precision)
                total = own if total is None else total + own
        assert total is not None
        return self.completed(total)


def full_batch_backward(model: LowRankGP, objective: str, data: Data, chunk: int | None = None) -> Tensor:
    """Gradients of an objective over all rows, by pieces of `chunk` rows; exact, not an estimate.

    Notes
    -----
    With n rows and r features some 4 n r² operations, 6 n r² with a root, and beyond `KEPT_ROWS` rows the features once more.
    The memory is that of so many rows' activations.
    """
    rows = Rows(model, data, chunk)
    keeps = len(data) <= KEPT_ROWS or (
        not model.backbone.is_network and len(data) * model.expansion.rank <= KEPT
    )
    if len(data) > rows.size:
        # What a row's variance asks of all rows (the level of residual 'unit') is known before any piece comes.
        model.residual.hold(model, rows.parts())
    kept: list[Piece] = []
    total: Sums | None = None
    for part in rows.parts():
        with torch.set_grad_enabled(keeps):
            piece = rows.piece(part)
        kept += [piece] * keeps
        with torch.no_grad():
            own = rows.sums(piece)
        total = own if total is None else total + own
    assert total is not None
    leaves = Sums(*(t.requires_grad_(True) for t in total.tensors()))
    loss = OBJECTIVES[objective](rows.completed(leaves))
    given = torch.autograd.grad(loss, leaves.tensors(), allow_unused=True)
    slopes = Sums(*(torch.zeros_like(t) if g is None else g for g, t in zip(given, leaves.tensors())))
    with torch.no_grad():
        both, cross = slopes.gram + slopes.gram.T, slopes.cross
        if rows.root is not None:
            R = rows.root.detach().double()
            # Of R itself: s'W s R = R^-T Phi'W Phi, so no row is asked again.
            own_slope = torch.linalg.solve(
                R.T, total.gram @ both + total.cross[:, None] * slopes.cross[None, :]
            )
            both, cross = R @ both @ R.T, R @ slopes.cross
        towards = Slopes(slopes, both, cross)
    # From here on the sums are not needed; each piece gets its slope.
    for piece in kept if keeps else map(rows.piece, rows.parts()):
        back(piece, towards)
    if rows.root is not None and rows.root.requires_grad:
        rows.root.backward(own_slope.to(rows.root.dtype))
    model.residual.release(model)
    return loss.detach()


def back(piece: Piece, slopes: Slopes) -> None:
    """Hand a piece its slopes."""
    given = slopes.sums
    with torch.no_grad():
        s, y, noise = piece.s.double(), piece.y.double(), piece.noise_variance.double()
        weight = 1.0 / noise
        along = s @ slopes.cross
        ds = s @ slopes.both
        by_weight = 0.5 * torch.linalg.vecdot(s, ds) + y * along + given.energy * y.square()
        beyond = piece.residual_variance if piece.base is None else piece.base
        assert beyond is not None
        by_weight += given.gap * beyond.double()
        ds.addr_(y, slopes.cross).mul_(weight[:, None])
        wanted = [
            (piece.s, ds),
            (piece.y, weight * (along + 2.0 * given.energy * y)),
            (piece.noise_variance, weight * (given.log_noise - by_weight * weight)),
            (beyond, given.gap * weight),
        ]
        wanted = [(t, g.to(t.dtype)) for t, g in wanted if t.requires_grad]
    torch.autograd.backward([t for t, _ in wanted], [g for _, g in wanted])
