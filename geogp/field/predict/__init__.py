"""A fitted field asked about places: cells that share neighbours, what these say, the predictive distribution."""
