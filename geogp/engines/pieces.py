"""Places predicted a piece at a time: bounded memory, and the same numbers whatever the number of threads."""

from collections.abc import Callable

import torch

from geogp.data import Moments
from geogp.linalg.threads import MOST, side_by_side

#: Threads at most where each operation takes milliseconds.
MOST_WIDE = 64


def in_pieces(
    told: Callable[[slice], Moments], n: int, size: int, device: torch.device, *, wide: bool
) -> Moments:
    """What `told` says of n places, `size` at a time; of none, what it says of an empty slice.

    On a CPU a core takes a piece: matrix products that are shared among threads add in another order than those of one,
    so a map would depend on the machine in its last bits.

    Parameters
    ----------
    wide : whether operations take so long that more than `MOST` threads are worth their while
    """
    pieces = [slice(i, i + size) for i in range(0, max(n, 1), size)]
    if device.type == "cpu":
        return Moments.joined(list(side_by_side(told, pieces, most=MOST_WIDE if wide else MOST)))
    with torch.no_grad():
        return Moments.joined([told(part) for part in pieces])
