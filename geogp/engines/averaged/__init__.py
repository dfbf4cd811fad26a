"""Exact Gaussian processes of tables, averaged over what rows leave open of their kernel and noise."""

from geogp.engines.averaged.engine import AveragedEngine

__all__ = ["AveragedEngine"]
