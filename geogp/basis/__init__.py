"""The deep basis: inputs -> encoder -> backbone -> expansion, its weights, residual, noise, objectives and training."""
