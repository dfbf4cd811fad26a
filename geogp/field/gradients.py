"""Derivatives written out where a tape of every step costs several times as much: of a conditional, and of a kernel."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from geogp.densities import MATERN_ORDER


class Solved(torch.autograd.Function):
    """Y'S⁻¹k, k'S⁻¹k and S⁻¹k of S = K + diag(noise), from the lower factor of S.

    With c = S⁻¹k and A = S⁻¹Y, for gradients m of the first (B, Q) and v of the second (B,):
    of Y c m', of k A m + 2 v c, of S −c (A m + v c)', not symmetric: S is. The weights c carry none.

    Notes
    -----
    O(B k²) beyond the factor, forwards and backwards; the tape of a Cholesky factor takes O(B k³) backwards.
    """

    @staticmethod
    def forward(ctx: Any, L: Tensor, K: Tensor, noise: Tensor, across: Tensor, columns: Tensor) -> Any:
        """The first way, and what the way back needs.

        Parameters
        ----------
        L : (B, k, k) the factor, without gradient
        K, noise : (B, k, k), (B, k) what it is the factor of
        across, columns : (B, k), (B, k, Q)
        """
        both = torch.cholesky_solve(torch.cat([across[..., None], columns], dim=-1), L)
        c, A = both[..., 0], both[..., 1:]
        ctx.save_for_backward(c, A)
        ctx.mark_non_differentiable(c)
        return (columns * c[..., None]).sum(-2), (across * c).sum(-1), c

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        c, A = ctx.saved_tensors
        m, v, _ = gradients
        leaning = (A * m[..., None, :]).sum(-1)
        own = v[..., None] * c
        away = leaning + own
        return (
            None,
            -c[..., :, None] * away[..., None, :],
            -c * away,
            leaning + 2.0 * own,
            c[..., None] * m[..., None, :],
        )


class KnownSlopes(torch.autograd.Function):
    """A number whose slopes by some tensors are known: what winds a tape back from where they stand.

    Notes
    -----
    `torch.autograd.backward` takes slopes, too, and imports a compiler and a computer algebra to look at them.

    Examples
    --------
    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> KnownSlopes.apply(torch.tensor(5.0), [torch.tensor([3.0, 4.0])], x.square()).backward()
    >>> x.grad
    tensor([ 6., 16.])
    """

    @staticmethod
    def forward(ctx: Any, number: Tensor, slopes: Sequence[Tensor], *of: Tensor) -> Any:
        """The number; its slopes (one for each of `of`, in its shape) are kept as they are."""
        ctx.slopes = slopes
        return number.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, None, *(gradients[0] * slope for slope in ctx.slopes)


class Stationary(torch.autograd.Function):
    """An additive Matérn kernel of given differences, differentiable in its logarithms and in what differences over space
    are divided by, entry by entry.

    With a = √2ν d: ∂K/∂log v_c = K_c; ∂K/∂log ℓ_cd = W_c · (√2ν difference / ℓ_cd)² over space with W_c = −M'(a) / a, and
    over time, with b = √2ν lag / ℓ_ct there, K_c b, or K_c b² / (1 + b) of a Matérn 3/2; ∂K/∂log h̄² = Σ_c W_c a² / 2.

    Notes
    -----
    Some seven passes over the entries a component, and two backwards.

    References
    ----------
    Rasmussen and Williams 2006, eq. 4.14, 4.17
    """

    @staticmethod
    def forward(
        ctx: Any,
        lengthscale: Tensor,
        variance: Tensor,
        squares: Tensor,
        lag: Tensor | None,
        smoothness: tuple[str, ...],
        farthest: float,
        stretch: Tensor | None = None,
        over_time: str = "matern12",
    ) -> Any:
        """The first way, and what the way back needs.

        Parameters
        ----------
        lengthscale, variance : (C, D), (C,) logarithms; the axes of space first, time last
        squares : (S, ...) squared differences along each axis of space
        lag : (...) times apart, or what broadcasts to it, or None
        smoothness : C names
        farthest : distances beyond are not told apart
        stretch : (...) h̄², by which squared differences are divided, or None
        over_time : the correlation over time, "matern12" or "matern32"
        """
        n, flat = len(squares), squares.reshape(len(squares), -1)
        flat = flat if stretch is None else flat / stretch.reshape(-1)
        twice = lengthscale.new_tensor([2.0 * MATERN_ORDER[name] for name in smoothness])
        inverse = torch.exp(-lengthscale)
        inverse[:, :n] *= twice[:, None].sqrt()
        inverse[:, n:] *= math.sqrt(2.0 * MATERN_ORDER[over_time])
        smooth = over_time == "matern32"
        # The way back needs a time apart for every entry; on the first way one for many serves.
        learned = any(ctx.needs_input_grad)
        times = lag if lag is None or not learned else lag.expand(squares.shape[1:]).reshape(-1)
        # A root's slope at zero is infinite: the bound makes it none there, and moves no distance that is not zero.
        # Beyond the farthest a correlation is nothing, and its exponential a denormal number: a hundred times as slow.
        tiny = torch.finfo(squares.dtype).tiny
        parts, slopes = [], []
        for c, name in enumerate(smoothness):
            a = (inverse[c, :n].square() @ flat).clamp_(tiny, float(twice[c]) * farthest**2).sqrt_()
            a = a if learned else a.reshape(squares.shape[1:])
            scale = variance[c] if times is None else variance[c] - times * inverse[c, -1]
            decay = torch.sub(scale, a).exp_()
            if smooth and times is not None:
                decay.mul_(1.0 + times * inverse[c, -1])
            if learned:
                slopes.append(_slope(a, decay, name))
            parts.append(_matern(a, decay, name))
        if learned:
            known = [v for v in (times, stretch) if v is not None]
            ctx.save_for_backward(inverse, flat, *parts, *slopes, *known)
            ctx.of = len(smoothness), times is not None, stretch is not None, smooth
        total = parts[0].clone() if learned else parts[0]
        for part in parts[1:]:
            total += part
        return total.reshape(squares.shape[1:])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        C, timed, stretched, smooth = ctx.of
        inverse, flat, *rest = ctx.saved_tensors
        G, n = gradients[0].reshape(-1), len(flat)
        lengthscale, variance = torch.zeros_like(inverse), inverse.new_zeros(C)
        away = torch.zeros_like(G) if stretched else None
        for c in range(C):
            slope = G * rest[C + c]
            variance[c] = torch.dot(G, rest[c])
            lengthscale[c, :n] = (flat @ slope) * inverse[c, :n].square()
            if timed:
                b = rest[2 * C] * inverse[c, -1]
                lengthscale[c, -1] = torch.dot(G * rest[c], b.square().div_(1.0 + b) if smooth else b)
            if away is not None:
                away.addcmul_(inverse[c, :n].square() @ flat, slope, value=0.5)
        if away is not None:
            away = (away / rest[-1].reshape(-1)).reshape(rest[-1].shape)
        return lengthscale, variance, None, None, None, None, away, None


def _matern(a: Tensor, decay: Tensor, smoothness: str) -> Tensor:
    """M(a) exp(a) decay; `a` is lost."""
    if smoothness == "matern12":
        return decay
    first = torch.addcmul(decay, decay, a)
    return first if smoothness == "matern32" else first.addcmul_(a.square_(), decay, value=1.0 / 3.0)


def _slope(a: Tensor, decay: Tensor, smoothness: str) -> Tensor:
    """−M'(a) / a · exp(a) decay."""
    if smoothness == "matern12":
        return decay / a
    return decay if smoothness == "matern32" else torch.addcmul(decay, decay, a).div_(3.0)
