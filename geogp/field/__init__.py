"""The local field: a Gaussian process conditioned on the nearest observations, with its trend, noise and regional level."""
