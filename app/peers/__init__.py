"""What a user would pick instead: other libraries' methods, measured on the same rows with the same scores.

A peer is fitted and asked like a method of ours, and answers with the same kind of distribution:

    fitted = app.peers.peer("lightgbm-quantiles").fit(X, y, counts=tests, validation=(Xv, yv, nv))
    fitted.predictive(X_new, counts_new).crps(y_new)

Columns of X: two are a position, three a position and a time in years, more are generic features, unless the last are said
to be covariates. Packages are imported when a peer is fitted; most need the `bench` extra.
"""

from app.peers.base import Fitted, MissingPackage, Peer, UnknownPeer, UnsuitedPeer

_ROWS = [
    Peer(
        "lightgbm-mean-variance",
        "boosted trees for the mean and, from cross-fitted residuals and the count, for the variance",
        "app.peers.trees:fit_mean_variance",
        "lightgbm",
    ),
    Peer(
        "lightgbm-mean-variance-counts",
        "the same with log n in the mean, rows weighted by their count, coordinates also rotated by 45 degrees",
        "app.peers.trees:fit_mean_variance_counts",
        "lightgbm",
    ),
    Peer(
        "lightgbm-quantiles",
        "boosted trees, one model for each of eleven quantiles",
        "app.peers.trees:fit_quantiles",
        "lightgbm",
    ),
    Peer(
        "lightgbm-quantiles-counts",
        "the same with log n and coordinates rotated by 45 degrees among the features",
        "app.peers.trees:fit_quantiles_counts",
        "lightgbm",
    ),
    Peer(
        "lightgbm-neighbours",
        "boosted trees for eleven quantiles that see what neighbours measured, out of fold by rows, blocks or past",
        "app.peers.trees:fit_neighbours",
        "lightgbm",
        needs_position=True,
    ),
    Peer(
        "catboost-quantiles",
        "CatBoost's trees for eleven quantiles in one model, log n and rotated coordinates among the features",
        "app.peers.forests:fit_catboost",
        "catboost",
    ),
    Peer(
        "quantile-forest-rfsi",
        "a quantile forest that sees what neighbours measured, out of fold by rows, blocks or past",
        "app.peers.forests:fit_neighbours",
        "quantile_forest",
        needs_position=True,
    ),
    Peer(
        "mapie-conformal",
        "boosted trees under MAPIE's split-conformal intervals with normalised residuals",
        "app.peers.conformal:fit",
        "mapie",
    ),
    Peer(
        "gpboost-vecchia",
        "GPBoost's Gaussian process with a Vecchia approximation, rows weighted by their count",
        "app.peers.vecchia:fit",
        "gpboost",
        needs_position=True,
        uses_validation=False,
    ),
    Peer(
        "gpboost-plane",
        "the same with a mean linear in the position",
        "app.peers.vecchia:fit_plane",
        "gpboost",
        needs_position=True,
        uses_validation=False,
    ),
    Peer(
        "gpboost-heteroscedastic",
        "GPBoost's Vecchia field whose mean and log noise variance are both linear in position, time and log n",
        "app.peers.vecchia:fit_heteroscedastic",
        "gpboost",
        needs_position=True,
        uses_validation=False,
    ),
    Peer(
        "gpytorch-svgp",
        "GPyTorch's sparse variational GP, Matern-3/2, a lengthscale a column",
        "app.peers.sparse:fit_svgp",
        uses_validation=False,
    ),
    Peer(
        "gpytorch-ppgp",
        "GPyTorch's sparse GP trained on the predictive likelihood",
        "app.peers.sparse:fit_ppgp",
        uses_validation=False,
    ),
    Peer(
        "knn",
        "mean and variance of the nearest neighbours in space and time",
        "app.peers.nearest:fit",
        uses_covariates=False,
    ),
    Peer(
        "knn-counts",
        "the same with rows weighted by their count and a variance that knows the new count",
        "app.peers.nearest:fit_counts",
        uses_covariates=False,
    ),
    Peer(
        "kriging-subsample",
        "PyKrige's ordinary kriging of 2,000 rows drawn at random (800 when there is a time)",
        "app.peers.kriging:fit",
        "pykrige",
        needs_position=True,
        uses_covariates=False,
    ),
]

#: name -> peer, in the order leaderboards show them.
PEERS: dict[str, Peer] = {row.name: row for row in _ROWS}


def peer(name: str) -> Peer:
    """The peer called `name`.

    Raises
    ------
    UnknownPeer

    Examples
    --------
    >>> peer("knn").package is None
    True
    """
    if name not in PEERS:
        raise UnknownPeer(f"there is no peer {name!r}; choose from {', '.join(PEERS)}.")
    return PEERS[name]


__all__ = ["PEERS", "Fitted", "MissingPackage", "Peer", "UnknownPeer", "UnsuitedPeer", "peer"]
