"""Rasters of others that a fit or a map takes."""
