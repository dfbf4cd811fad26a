"""How the surface's errors at one place at two times go together, by the cells that predict both."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from geogp.field import neighbours
from geogp.field.conditioned import Conditioned
from geogp.field.predict.around import Asked, asked_of, blended
from geogp.field.solve import Neighbourhoods


def correlation(
    known: Conditioned,
    before: Float[Tensor, "N D"],
    after: Float[Tensor, "N D"],
    variance: Float[Tensor, "2 N"],
) -> Float[Tensor, " N"]:
    """Of the surface at coordinates `before` and `after`, which lie at the same places.

    Of r given what both times rest on, in cells as `around`; then of r and what is uncertain of the drift together, in
    the shares that they have of the latent variances before and after.

    Notes
    -----
    About what one prediction costs; memory does not grow with N beyond the result.
    """
    if not len(before):
        return torch.zeros(0, dtype=before.dtype)
    kernel, seen = known.on_device
    device = seen.X.device
    here, columns = torch.stack([before, after]).to(device), known.columns.to(device)
    times = np.concatenate([known.frame.near(C).numpy()[:, 2:] for C in (before, after)], axis=1)
    asked, places = asked_of(known, before, times)

    def ready(some: Asked) -> Callable[[slice, Tensor], Tensor]:
        near = Neighbourhoods.among_rows(kernel, seen.X, some.rows.to(device))
        half = near.whitener(seen, known.gp.tails)
        X, present = seen.X[near.rows], near.present[:, None, :].to(columns.dtype)
        leaning = half.mT @ (half @ near.of_neighbours(columns))

        def say(those: slice, who: Tensor) -> Tensor:
            at = here[:, who]
            cross = [kernel(C, X[those]) * present[those] for C in at]
            told = [c @ half[those].mT for c in cross]
            own = [(kernel.prior_at(C) - t.square().sum(-1)).clamp_min(1e-300) for C, t in zip(at, told)]
            prior = kernel(at[0].unsqueeze(-2), at[1].unsqueeze(-2))[..., 0, 0]
            r = (prior - (told[0] * told[1]).sum(-1)) / (own[0] * own[1]).sqrt()
            return torch.cat([r[..., None], *(c @ leaning[those] for c in cross)], dim=-1)

        return say

    k = 2 * min(known.options.neighbours, len(known.seen))
    found = blended(known, asked, places, len(before), k, with_rows=_of_both, ready=ready).cpu()
    r, *leanings = found.split([1, columns.shape[1], columns.shape[1]], dim=1)
    F = torch.stack([known.common_factor(C, x) for C, x in zip((before, after), leanings)])
    own = (variance - F.square().sum(-1)).clamp_min(0.0).sqrt()
    covariance = r[:, 0].clamp(-1.0, 1.0) * own[0] * own[1] + (F[0] * F[1]).sum(-1)
    return (covariance / (variance[0] * variance[1]).sqrt().clamp_min(1e-300)).clamp(-1.0, 1.0)


def _of_both(known: Conditioned, asked: Asked) -> Asked:
    """The same with the rows of each time, those of both once."""
    t, k = (asked.centre.shape[1] - 2) // 2, min(known.options.neighbours, len(known.seen))
    place, when = asked.centre[:, :2].numpy(), asked.centre[:, 2:].numpy()
    first, second = (
        neighbours.query(known.search, np.concatenate([place, part], axis=1), k)
        for part in (when[:, :t], when[:, t:])
    )
    rows = np.sort(np.concatenate([first, second], axis=1), axis=1)
    rows[:, 1:][rows[:, 1:] == rows[:, :-1]] = neighbours.MISSING
    index = torch.from_numpy(rows)
    return replace(asked, rows=index, dealt=index >= 0)
