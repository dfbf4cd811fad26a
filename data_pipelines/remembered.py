"""Answers about tiles that are asked for again: a tile recurs from quarter to quarter."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]


class Remembered:
    """What a function of tiles' codes says, each tile asked about once; some 20 bytes a tile.

    Examples
    --------
    >>> asked = []
    >>> double = Remembered(lambda codes: asked.append(len(codes)) or 2 * codes)
    >>> double(np.array([3, 1, 3])), double(np.array([1, 5])), asked
    (array([6, 2, 6]), array([ 2, 10]), [2, 1])
    """

    def __init__(self, ask: Callable[[Codes], NDArray[Any]]):
        self._ask = ask
        self._codes = np.zeros(0, np.int64)
        self._answers: NDArray[Any] | None = None

    def __call__(self, codes: Codes) -> NDArray[Any]:
        """The answers for codes (N,), which may repeat: (N, ..)."""
        distinct, inverse = np.unique(codes, return_inverse=True)
        at = np.searchsorted(self._codes, distinct)
        known = at < len(self._codes)
        known[known] = self._codes[at[known]] == distinct[known]
        if self._answers is None or not known.all():
            new = np.asarray(self._ask(distinct[~known]))
            places = at[~known]
            self._codes = np.insert(self._codes, places, distinct[~known])
            self._answers = new if self._answers is None else np.insert(self._answers, places, new, axis=0)
            at = np.searchsorted(self._codes, distinct)
        return self._answers[at][inverse]
