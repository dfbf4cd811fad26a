"""The local field: a Gaussian process conditioned on the nearest observations, with trend, noise and regional surface."""

from geogp.field.joint import FieldJoint
from geogp.field.kernel import LocalKernel
from geogp.field.local_field import LocalField
from geogp.field.local_gp import LocalGP
from geogp.field.observations import Observations
from geogp.field.options import FieldOptions
from geogp.field.predict.moments import FieldMoments

__all__ = [
    "FieldJoint",
    "FieldMoments",
    "FieldOptions",
    "LocalField",
    "LocalGP",
    "LocalKernel",
    "Observations",
]
