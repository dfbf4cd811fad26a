"""What is modelled: from a published column to the scale that scores and models use, and back.

Speeds and latencies are modelled as base-10 logarithms: of kbit/s, of ms, of 1 + count.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geogp.errors import InvalidInput

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Target:
    """One thing to map.

    name : on the command line; column : in the observations table; unit : of the column and of the maps
    forward : column values -> score scale t (increasing); inverse : back
    log10 : whether t is a base-10 logarithm of the value (times a constant)
    """

    name: str
    column: str
    unit: str
    forward: Callable[[Array], Array]
    inverse: Callable[[Array], Array]
    log10: bool
    words: str

    def to_score(self, values: ArrayLike) -> Array:
        """t of column values; non-positive values of a logged target raise.

        Raises
        ------
        InvalidInput

        Examples
        --------
        >>> float(TARGETS["download"].to_score(100.0))
        5.0
        """
        v = np.asarray(values, dtype=np.float64)
        if self.log10 and self.name != "tests" and bool((v <= 0).any()):
            bad = v.ravel()[np.flatnonzero(v.ravel() <= 0)[0]]
            raise InvalidInput(
                f"target {self.name!r} needs positive values; got {bad:g}: drop such rows before fitting."
            )
        return self.forward(v)

    def from_score(self, t: ArrayLike) -> Array:
        """Values in `unit` of t."""
        return self.inverse(np.asarray(t, dtype=np.float64))


def _log10_kbps(v: Array) -> Array:
    return np.log10(v * 1000.0)


def _mbps(t: Array) -> Array:
    return 10.0 ** (t - 3.0)


def _power10(t: Array) -> Array:
    return 10.0**t


def _log10_count(v: Array) -> Array:
    return np.log10(1.0 + v)


def _count(t: Array) -> Array:
    return np.maximum(10.0**t - 1.0, 0.0)


def _same(v: Array) -> Array:
    return v


TARGETS: dict[str, Target] = {
    "download": Target("download", "download_mbps", "Mbit/s", _log10_kbps, _mbps, True, "download speed"),
    "upload": Target("upload", "upload_mbps", "Mbit/s", _log10_kbps, _mbps, True, "upload speed"),
    "latency": Target("latency", "latency_ms", "ms", np.log10, _power10, True, "latency"),
    "tests": Target("tests", "tests", "1", _log10_count, _count, True, "number of tests"),
    "value": Target("value", "value", "1", _same, _same, False, "value"),
}


def target(name: str) -> Target:
    """The target called `name`.

    Raises
    ------
    InvalidInput
    """
    if name not in TARGETS:
        raise InvalidInput(f"there is no target {name!r}; choose from {', '.join(TARGETS)}.")
    return TARGETS[name]
