"""The scales that targets are modelled on: one curve for all, and what bends it further for new observations."""

from geogp.transforms.curves import (
    Affine,
    Identity,
    Log10,
    Straightened,
    Transform,
    YeoJohnson,
    from_dict,
    quartiles,
    quartiles_from,
    spread,
    straightened,
    transform_for,
    unit_of,
)
from geogp.transforms.warp import Warp, Warped

__all__ = [
    "Affine",
    "Identity",
    "Log10",
    "Straightened",
    "Transform",
    "Warp",
    "Warped",
    "YeoJohnson",
    "from_dict",
    "quartiles",
    "quartiles_from",
    "spread",
    "straightened",
    "transform_for",
    "unit_of",
]
