"""Increasing maps from the target y to the working scale u on which the model is Gaussian or Student-t."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import boxcox1p, inv_boxcox1p

Array = NDArray[np.float64]


class Transform(Protocol):
    """u = forward(y), increasing; y = inverse(u); log du/dy."""

    def forward(self, y: Array) -> Array: ...

    def inverse(self, u: Array) -> Array: ...

    def log_derivative(self, y: Array) -> Array: ...

    def to_dict(self) -> dict: ...


@dataclass(frozen=True)
class Identity:
    """u = y.

    Examples
    --------
    >>> float(Identity().forward(np.array(2.0)))
    2.0
    """

    def forward(self, y: Array) -> Array:
        return y

    def inverse(self, u: Array) -> Array:
        return u

    def log_derivative(self, y: Array) -> Array:
        return np.zeros_like(y)

    def to_dict(self) -> dict:
        return {"name": "identity"}


@dataclass(frozen=True)
class YeoJohnson:
    """The power family for targets of either sign (Yeo and Johnson 2000), on (y - centre) / scale.

    power = 1 is the identity; below one it shortens the upper tail, above one the lower.

    Examples
    --------
    >>> t = YeoJohnson(power=0.5)
    >>> y = np.array([-2.0, 0.0, 3.0])
    >>> bool(np.allclose(t.inverse(t.forward(y)), y))
    True
    """

    power: float
    centre: float = 0.0
    scale: float = 1.0

    def forward(self, y: Array) -> Array:
        z = (np.asarray(y, float) - self.centre) / self.scale
        up = boxcox1p(np.maximum(z, 0.0), self.power)
        down = -boxcox1p(np.maximum(-z, 0.0), 2.0 - self.power)
        return np.where(z >= 0, up, down)

    def inverse(self, u: Array) -> Array:
        # A bounded branch (power < 0, or > 2 below zero) has no value beyond its end: the end itself.
        u = np.asarray(u, float)
        up = inv_boxcox1p(self._within(np.maximum(u, 0.0), self.power), self.power)
        down = -inv_boxcox1p(self._within(np.maximum(-u, 0.0), 2.0 - self.power), 2.0 - self.power)
        return self.centre + self.scale * np.where(u >= 0, up, down)

    @staticmethod
    def _within(u: Array, power: float) -> Array:
        return np.minimum(u, (1.0 - 1e-12) / -power) if power < 0 else u

    def log_derivative(self, y: Array) -> Array:
        z = (np.asarray(y, float) - self.centre) / self.scale
        return np.sign(z) * (self.power - 1.0) * np.log1p(np.abs(z)) - np.log(self.scale)

    def to_dict(self) -> dict:
        return {"name": "yeo-johnson", "power": self.power, "centre": self.centre, "scale": self.scale}


def from_dict(d: dict) -> Transform:
    """The transform that `to_dict` described."""
    fields = {k: v for k, v in d.items() if k != "name"}
    return {"identity": Identity, "yeo-johnson": YeoJohnson}[d["name"]](**fields)
