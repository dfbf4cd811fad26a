"""Where a kernel starts: the spread and the lengthscale that a sample suggests."""

import torch
from torch import Tensor

from geogp.linalg import squared_distances

#: Rows of a sample whose distances tell the lengthscale.
SAMPLE = 512


def spread_of(h: Tensor) -> Tensor:
    """(H,) standard deviation of each axis of h (n, H); 1 where there is next to none."""
    spread = h.std(0, unbiased=False)
    return torch.where(spread > 1e-6, spread, torch.ones_like(spread))


def median_lengthscale(h: Tensor, places: Tensor | None = None) -> Tensor:
    """(H,) spread of each axis of h (n, H) times the median distance between standardised places (M, H).

    Without places between the first `SAMPLE` rows.
    """
    spread = spread_of(h)
    some = (h[:SAMPLE] if places is None else places) / spread
    distance = squared_distances(some, some).sqrt()
    positive = distance[distance > 1e-6]
    return spread * (positive.median().clamp_min(1e-3) if positive.numel() else 1.0)
