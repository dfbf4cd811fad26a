"""The field's mean: a line over time (`trend`), a plane over space and the covariates (`drift`), waves of a year (`season`)."""
