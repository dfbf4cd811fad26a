"""Lengthscale and variance of the local kernel that vary over space."""

from geogp.field.variation.bumps import Variation as Variation
