"""Every peer in the table: it learns a toy field, answers like ours, and says so when it cannot run."""

import numpy as np
import pytest

from app.peers import PEERS, MissingPackage, Peer, UnknownPeer, UnsuitedPeer, peer
from geogp.predictive import Predictive

#: Rows, and of a peer whose search is slow: quantiles of trees need the more.
N, FEWER = 160, {"gpboost-heteroscedastic": 80}

# Third parties' own: GPyTorch scripts functions when it is imported, PyKrige and MAPIE call numpy's old names.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
]


def rows_for(one: Peer) -> int:
    return FEWER.get(one.name, N)


def field(columns: int, seed: int = 0, n: int = N) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places in metres, years, or features; a smooth field; noise that shrinks with the count."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10_000, (n, columns))
    if columns == 3:
        X[:, 2] = 2019 + rng.integers(0, 20, n) / 4
    counts = rng.integers(1, 30, n).astype(float)
    clean = 3.0 + np.sin(X[:, 0] / 1500) + 0.5 * np.cos(X[:, 1] / 2000)
    return X, clean + 0.3 * rng.standard_normal(n) / np.sqrt(counts), counts


@pytest.fixture(params=list(PEERS))
def one(request) -> Peer:
    chosen = PEERS[request.param]
    if not chosen.installed:
        pytest.skip(f"{chosen.package} is not installed (extra `bench`)")
    return chosen


@pytest.mark.parametrize("columns", [2, 3])
def test_a_peer_beats_the_mean_and_covers(one: Peer, columns: int):
    (X, y, counts), (Xv, yv, nv), (Xt, yt, nt) = (field(columns, seed, rows_for(one)) for seed in range(3))
    fitted = one.fit(X, y, counts, (Xv, yv, nv), effort=0.03)
    p = fitted.predictive(Xt, nt)
    assert isinstance(p, Predictive) and len(p) == len(yt)
    lower, upper = p.interval(0.95)
    assert (lower < upper).all() and np.isfinite(p.log_density(yt)).all()
    assert np.abs(yt - p.median()).mean() < np.abs(yt - np.median(y)).mean()
    assert 0.7 <= ((yt >= lower) & (yt <= upper)).mean() <= 1.0


def test_a_peer_does_not_mind_units_and_works_without_counts(one: Peer):
    X, y, _ = field(2, n=rows_for(one))
    p = one.fit(X, y, effort=0.03).predictive(X[:7])
    q = one.fit(X, 100.0 + 10.0 * y, effort=0.03).predictive(X[:7])
    np.testing.assert_allclose(q.median(), 100.0 + 10.0 * p.median(), rtol=2e-3)


def test_generic_features_are_taken_or_refused_by_name(one: Peer):
    X, y, _ = field(5)
    if one.needs_position:
        with pytest.raises(UnsuitedPeer, match=one.name):
            one.fit(X, y)
    else:
        assert len(one.fit(X, y, effort=0.05).predictive(X[:3])) == 3


def test_covariates_are_taken_or_known_to_be_left(one: Peer):
    """A column by which half of the values move: who takes it errs less, who does not errs as without it."""
    (X, y, _), (Xt, yt, _) = (field(2, seed, rows_for(one)) for seed in (0, 2))
    rng = np.random.default_rng(5)
    a, b = (2.0 * rng.integers(0, 2, len(y)) for _ in range(2))
    with_column = one.fit(np.column_stack([X, a]), y + a, effort=0.05, covariates=1)
    p = with_column.predictive(np.column_stack([Xt, b]))
    without = one.fit(X, y + a, effort=0.05).predictive(Xt)
    error, blind = (np.abs(yt + b - q.median()).mean() for q in (p, without))
    assert with_column.ignored != one.uses_covariates
    if one.uses_covariates:
        assert error < 0.8 * blind
    else:
        np.testing.assert_allclose(p.median(), without.median())


def test_covariates_beside_a_place_and_a_time(one: Peer):
    X, y, counts = field(3, n=rows_for(one))
    p = one.fit(np.column_stack([X, y]), y, counts, effort=0.03, covariates=1).predictive(
        np.column_stack([X[:9], y[:9]]), counts[:9]
    )
    assert np.isfinite(p.log_density(y[:9])).all()
    with pytest.raises(UnsuitedPeer, match="1 columns"):
        one.fit(X[:, :2], y, covariates=1)


def test_a_missing_package_names_the_extra():
    absent = Peer("nothing", "", "app.peers.nearest:fit", "a_package_nobody_has")
    with pytest.raises(MissingPackage, match=r"geogp\[bench\]"):
        absent.fit(np.zeros((4, 2)), np.zeros(4))


def test_an_unknown_peer_lists_those_there_are():
    with pytest.raises(UnknownPeer, match="knn-counts"):
        peer("krige")


def test_count_aware_peers_are_surer_of_averages_of_many():
    X, y, counts = field(2)
    fitted = peer("knn-counts").fit(X, y, counts)
    assert (fitted.predictive(X[:20], 50.0).sd() < fitted.predictive(X[:20], 1.0).sd()).all()
