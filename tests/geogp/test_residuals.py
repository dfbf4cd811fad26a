"""The residuals one by one: the distance term, what the basis lacks of one level, what inducing points miss."""

import geogp  # noqa: F401  first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
from functools import reduce

import numpy as np
import pytest
import torch

from geogp.basis.expansions.linear import Linear
from geogp.basis.expansions.rbf import RBF
from geogp.basis.residuals import RESIDUALS, Residual, places
from geogp.basis.residuals.bumps import bumps
from geogp.basis.residuals.distance import Distance, nearest, variogram
from geogp.basis.residuals.places import Places
from geogp.basis.residuals.unit import Unit
from geogp.data import Data

# -- the distance term, piece by piece ------------------------------------------------------------------


def placed(P: torch.Tensor, sill: float = 0.7, reach: float = 0.5) -> Distance:
    residual = Distance(Linear(P.shape[1], 3)).eval()
    residual.place(P)
    residual.sill, residual.range = torch.tensor(sill).double(), torch.tensor(reach).double()
    return residual


def test_the_distance_term_is_its_formula_and_nothing_while_training():
    g = torch.Generator().manual_seed(3)
    P, Z = torch.randn(40, 2, generator=g).double(), torch.randn(30, 2, generator=g).double()
    residual, basis = placed(P), Linear(2, 3)
    d = torch.stack([(P - z).square().sum(1).sqrt().min() for z in Z])
    assert residual.distance(P).tolist() == placed(P.float()).distance(P.float()).tolist() == [0.0] * 40
    torch.testing.assert_close(residual.distance(Z), d)
    torch.testing.assert_close(residual.variance(basis, Z, Z, Z), 0.7 * (1 - torch.exp(-d / 0.5)))
    residual.power = torch.tensor(1.5).double()
    grown = 0.7 * (1 - torch.exp(-((d / 0.5) ** 1.5)))
    torch.testing.assert_close(residual.variance(basis, Z, Z, Z), grown)
    residual.columns = torch.tensor([0, 1])
    torch.testing.assert_close(torch.as_tensor(residual.root(Z).power(2).sum(axis=1)), grown)
    assert residual.train().variance(basis, Z, Z, Z).tolist() == [0.0] * 30
    assert residual.variance(basis, Z, Z, Z * torch.nan).tolist() == [0.0] * 30
    assert not residual.takes_phi  # so that a step need not make a row's features for its sake
    assert Distance(basis).eval().variance(basis, Z, Z, Z).tolist() == [0.0] * 30  # no place yet
    # On the columns of a position alone, where there is one.
    residual = placed(P).eval()
    residual.columns = torch.tensor([2, 0])
    wide = torch.cat([Z[:, 1:], torch.full((30, 1), 9.0), Z[:, :1]], 1).double()
    torch.testing.assert_close(residual.distance(wide), d)


@pytest.mark.parametrize("pairs", [1, 100, 2**26])
def test_a_gpu_finds_the_nearest_place_as_the_tree_does(monkeypatch, pairs):
    """By looking at all, so many pairs at once."""
    monkeypatch.setattr("geogp.basis.residuals.distance.PAIRS", pairs)
    g = torch.Generator().manual_seed(5)
    P, Z = torch.randn(40, 2, generator=g).double(), torch.randn(33, 2, generator=g).double()
    torch.testing.assert_close(nearest(Z, P), placed(P).distance(Z), rtol=1e-12, atol=1e-12)
    assert nearest(Z[:0], P).shape == (0,) and nearest(P, P).max() == 0.0


def gaps_of(P: np.ndarray, others: np.ndarray) -> np.ndarray:
    return np.linalg.norm(P[:, None] - others, axis=2).min(axis=1)


def test_places_are_those_that_differ_or_few_enough_cells(monkeypatch):
    """The finest grid with few enough; half a cell's diagonal covers what lies in it, and is taken off."""
    monkeypatch.setattr("geogp.basis.residuals.places.MOST", 50)
    rng = np.random.default_rng(0)
    few, many = rng.uniform(-3, 3, (50, 2)), rng.normal(0, 40, (700, 2))
    assert Places.of([np.vstack([few, few[:9]])]).points.tolist() == sorted(few.tolist())
    found = Places.of([many])

    def cells(level: int) -> set[tuple[int, ...]]:
        return {tuple(c) for c in np.floor(many * 2.0**level).astype(int).tolist()}

    level = next(k for k in range(9, -20, -1) if len(cells(k)) <= 50)
    assert found.level == level and len(cells(level + 1)) > 50
    middles = sorted(((np.array(c) + 0.5) * 2.0**-level).tolist() for c in cells(level))
    assert found.points.tolist() == middles
    assert found.radius == pytest.approx(2.0**-level / np.sqrt(2.0)) and Places.of([few]).radius == 0.0
    assert gaps_of(many, found.points).max() <= found.radius
    residual = placed(torch.from_numpy(many))
    assert residual.distance(torch.from_numpy(many)).tolist() == [0.0] * 700
    new = torch.from_numpy(rng.normal(0, 90, (300, 2)))
    told, true = residual.distance(new).numpy(), gaps_of(new.numpy(), many)
    assert (told <= true + 1e-9).all() and (told >= true - 2 * found.radius - 1e-9).all()


@pytest.mark.parametrize("seed", range(4))
def test_places_do_not_depend_on_how_the_rows_came(monkeypatch, seed):
    monkeypatch.setattr("geogp.basis.residuals.places.MOST", 40)
    monkeypatch.setattr("geogp.basis.residuals.places.GATHERED", 100)
    rng = np.random.default_rng(seed)
    P = rng.normal(0, 3, (600, 2)) * rng.uniform(0.001, 1, (600, 1))
    whole = Places.of([P])
    parts = np.split(rng.permutation(P), np.sort(rng.integers(1, 599, 6)))
    for found in (Places.of(parts), reduce(Places.joined, [Places.of([part]) for part in parts])):
        assert found.level == whole.level is not None and np.array_equal(found.points, whole.points)
    again = Places.from_tensors(whole.to_tensors())
    assert again.level == whole.level and np.array_equal(again.points, whole.points)
    # Of parts in cells of different sizes, the coarser ones': a finer grid would hold too little of the one.
    wide, narrow = (np.arange(41.0)[:, None] * step for step in (0.1, 0.01))
    both = Places.of([wide, narrow])
    for one, other in ((wide, narrow), (narrow, wide)):
        found = Places.of([one]).joined(Places.of([other]))
        assert found.level == both.level and np.array_equal(found.points, both.points)
    few = Places.of([P[:9]])
    same = Places.from_tensors(few.to_tensors())
    assert same.level is None and np.array_equal(same.points, few.points)
    assert Places.from_tensors({}) is None


def test_of_many_places_few_are_kept_and_of_parts_no_more_wait_than_are_thinned(monkeypatch):
    rng = np.random.default_rng(0)
    P = rng.uniform(0, 9, (70_000, 2))
    kept = Places.of([P])
    assert 0.25 * 2**16 <= len(kept.points) <= 2**16 and kept.level is not None
    honest, sizes = places._joined, []
    monkeypatch.setattr(places, "GATHERED", 100)
    monkeypatch.setattr(
        places, "_joined", lambda found, parts: sizes.append(sum(map(len, parts))) or honest(found, parts)
    )
    Places.of(iter(np.split(P[:600], 20)))
    assert sizes == [120] * 5 + [0]


def test_the_finest_cells_are_a_billionth_of_a_thousandth(monkeypatch):
    monkeypatch.setattr(places, "MOST", 4)
    P = np.array([[0.0], [0.25], [1.0], [2.0], [3.0]])
    assert Places.of([P * 2.0**-40]).level == 40
    assert Places.of([P * 2.0**-41]).level == 40  # in two of them
    assert Places.of([P]).level == 1  # four cells, no more than may be


def test_places_of_any_size_stay_where_they_are(monkeypatch):
    monkeypatch.setattr(places, "MOST", 4)
    for size in (1e-9, 1e3, 1e12):
        P = size * np.arange(1.0, 9.0)[:, None]
        found = Places.of([P])
        assert gaps_of(P, found.points).max() <= found.radius < 8 * size
    far = Places.of([np.array([[-1e300], [0.0], [1.0], [2.0], [3.0], [4.0], [1e300]])])
    assert np.isfinite(far.points).all() and far.points.max() > 2.0**20 and far.points.min() < -(2.0**20)


def test_bumps_know_places_of_any_size_apart():
    P = np.array([[0.0], [1e3], [1e3 + 9.0], [1e9], [1e300], [-1e300]])
    np.testing.assert_allclose((bumps(P, 1.0) @ bumps(P, 1.0).T).toarray(), np.eye(6), atol=1e-12)


# -- the process that it is a multiple of ---------------------------------------------------------------


def bump_by_bump(P: np.ndarray, length: float) -> np.ndarray:
    """Covariance, a place and a lattice point at a time."""
    h, radius = 0.625 * length, 1.25 * length
    low, high = np.floor(P.min(0) / h) - 3, np.ceil(P.max(0) / h) + 3
    grid = np.stack(np.meshgrid(*[np.arange(a, b) for a, b in zip(low, high)]), -1).reshape(-1, P.shape[1])
    B = np.array([[max(1 - ((p - h * g) ** 2).sum() / radius**2, 0) ** 2 for g in grid] for p in P])
    B /= np.linalg.norm(B, axis=1, keepdims=True)
    return B @ B.T


@pytest.mark.parametrize("p", [1, 2])
def test_bumps_are_a_process_of_variance_one(p):
    P = np.random.default_rng(p).uniform(-4, 4, (60, p))
    B = bumps(P, 0.9)
    np.testing.assert_allclose((B @ B.T).toarray(), bump_by_bump(P, 0.9), atol=1e-12)
    # Lengths and places may be of any size, and each row knows itself.
    for scale in (1e-9, 1e9):
        np.testing.assert_allclose((bumps(P * scale, 0.9 * scale) @ B.T).toarray().shape, (60, 60))
        np.testing.assert_allclose(bumps(scale * P, 0.9).power(2).sum(axis=1), np.ones(60))
    assert B.nnz <= 13 * 60 and bumps(P[:0], 0.9).shape == (0, 0)


@pytest.mark.parametrize("p", [1, 2])
def test_the_correlation_of_bumps_is_one_over_e_a_length_apart(p):
    rng = np.random.default_rng(p)
    P, way = rng.uniform(-90, 90, (2000, p)), rng.standard_normal((2000, p))
    way /= np.linalg.norm(way, axis=1, keepdims=True)
    for apart, least, most in ((0.1, 0.97, 1.0), (1.0, 0.32, 0.39), (2.5, 0.0, 1e-9)):
        B = bumps(np.vstack([P, P + apart * 7.0 * way]), 7.0)
        correlation = (B[:2000] * B[2000:]).sum(axis=1)
        assert least <= correlation.mean() <= most and correlation.std() < 0.03


@pytest.mark.parametrize("spatial", [(1, 0), (2,), None])
def test_the_root_is_of_the_covariance(spatial):
    """Its diagonal the variance, correlated as bumps twice the range long; without a position there is none."""
    rng = np.random.default_rng(3)
    Z = torch.from_numpy(rng.uniform(0, 3, (80, 3)))
    P = Z.numpy() if spatial is None else Z.numpy()[:, list(spatial)]
    residual = placed(torch.from_numpy(P[:9]))
    residual.columns = torch.tensor(list(spatial or ()), dtype=torch.long)
    variance = residual.variance(Linear(3, 3), Z, Z, Z).numpy()
    root = residual.root(Z)
    if spatial is None:
        assert root is None and Distance(Linear(3, 3)).root(Z) is None
        return
    scale = np.sqrt(variance)
    expected = scale[:, None] * bump_by_bump(P, 1.0) * scale
    np.testing.assert_allclose((root @ root.T).toarray(), expected, atol=1e-12)
    assert (variance[:9] == 0).all() and (variance[9:] > 0).any()


# -- what its sill and range are learned from -----------------------------------------------------------


def fitted_variogram(P: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """By numpy, a pair and a class at a time."""
    pairs = [(np.linalg.norm(P[i] - P[j]), (y[i] - y[j]) ** 2 / 2) for i in range(len(y)) for j in range(i)]
    d, half = np.array([p for p in pairs if p[0] > 0]).T
    edges = np.quantile(d, np.linspace(0, 1, 25) ** 2)[1:-1]
    of = [np.searchsorted(edges, d) == k for k in range(24)]
    lag, gamma = (np.array([v[k].mean() if k.any() else 0.0 for k in of]) for v in (d, half))
    best, out = np.inf, (1.0, float(np.median(d)))
    for reach in d.max() * np.logspace(-2.5, 0, 30):
        A = np.column_stack([np.ones(24), 1 - np.exp(-lag / reach)])
        fit = np.linalg.lstsq(A, gamma, rcond=None)[0]
        loss = ((A @ fit - gamma) ** 2).sum()
        if fit.min() > 0 and loss < best:
            best, out = loss, (fit[1], reach)
    return out


def test_the_variogram_is_the_least_squares_fit_of_its_classes():
    rng = np.random.default_rng(4)
    P = rng.uniform(0, 10, (120, 2))
    P[5] = P[9]  # a pair of one place is no pair
    K = np.exp(-np.linalg.norm(P[:, None] - P[None], axis=2) / 1.5) + 0.1 * np.eye(120)
    y = np.linalg.cholesky(K) @ rng.standard_normal(120)
    sill, reach = variogram(torch.from_numpy(P), torch.from_numpy(y))
    assert (sill, reach) == pytest.approx(fitted_variogram(P, y), rel=1e-6)
    # In other units it is the same.
    other = variogram(torch.from_numpy(1000 * P), torch.from_numpy(3 * y))
    assert other == pytest.approx((9 * sill, 1000 * reach), rel=1e-9)


def test_rows_that_tell_nothing_have_a_plain_variogram():
    P = torch.rand(12, 2, generator=torch.Generator().manual_seed(0)).double()
    y = torch.arange(12.0).double()
    d = torch.pdist(P)
    assert len(d) == 66 and variogram(P, 0 * y) == (1.0, float(d.median()))  # a constant
    assert variogram(P[:10], y[:10]) == (1.0, float(torch.pdist(P[:10]).median()))  # 45 pairs
    assert variogram(P, y) != (1.0, float(d.median()))
    assert variogram(P[:1].repeat(20, 1), y.repeat(2)[:20]) == (1.0, 1.0)  # one place
    # Near places that differ more than far ones: no sill above 0 fits.
    crowd, signs = torch.cat([P, 1e-6 * P]), torch.cat([0 * y, (-1.0) ** y])
    assert variogram(crowd, signs) == (1.0, float(torch.pdist(crowd).median()))
    # Of few pairs some classes have one.
    assert variogram(P, y) == pytest.approx(fitted_variogram(P.numpy(), y.numpy()), rel=1e-6)


class Scaling:
    """An encoder, and the model that holds it."""

    def __init__(self, spatial: tuple[int, ...] | None):
        self.encoder, self.spatial = self, spatial

    @staticmethod
    def standardise(X: torch.Tensor) -> torch.Tensor:
        return X


@pytest.mark.parametrize("spatial", [(1, 0), None])
def test_what_prediction_needs_is_taken_from_the_rows(spatial):
    """Places by the position, or by all columns where there is none; sill and range of the rows' variogram."""
    rng = np.random.default_rng(7)
    X = torch.from_numpy(rng.uniform(0, 3, (150, 3)))
    P = X if spatial is None else X[:, [1, 0]]
    K = torch.exp(-torch.cdist(P, P)) + 0.1 * torch.eye(150)
    y = torch.linalg.cholesky(K) @ torch.from_numpy(rng.standard_normal(150))
    residual = Distance(Linear(3, 3)).eval()
    residual.settle(Scaling(spatial), Data(X, y))
    assert residual.columns.tolist() == list(spatial or ())
    assert torch.equal(residual.anchors, torch.unique(P, dim=0)) and residual.distance(X).max() == 0.0
    sill, reach = variogram(P, y)
    assert residual.taught() == pytest.approx({"sill": sill, "range": reach, "power": 1.0}) and sill != 1.0
    moved = residual.grown_from(Places.of([P[:20].numpy()]))
    assert len(moved.anchors) == 20 and len(residual.anchors) == 150
    assert moved.taught() == residual.taught() and moved.distance(X).max() > 0.0


def test_what_was_taught_is_put_on_and_goes_through_a_file():
    one, other = placed(torch.rand(9, 2).double()), placed(torch.rand(4, 2).double(), 0.1, 9.0)
    other.take({})
    assert other.taught() == pytest.approx({"sill": 0.1, "range": 9.0, "power": 1.0})
    one.take({"sill": 0.4, "range": 2.0, "power": 1.5})
    other.take(one.taught())
    assert other.taught() == one.taught()
    one.columns = torch.tensor([1, 0])
    other.load_state_dict(one.state_dict())
    assert torch.equal(other.anchors, one.anchors) and other.columns.tolist() == [1, 0]
    assert set(one.state_dict()) == {"anchors", "columns", "radius", "range", "sill", "power"}
    assert all(torch.equal(v, other.state_dict()[name]) for name, v in one.state_dict().items())
    assert Distance(Linear(2, 3)).taught() == {"sill": 1.0, "range": 1.0, "power": 1.0}
    older = {name: v for name, v in one.state_dict().items() if name != "power"}
    other.load_state_dict(older)
    assert float(other.power) == 1.0 and "power" not in older
    assert one.learns_by_trial and one.reverts_to_prior and not one.scales_with_basis
    assert set(one.moved_by_rows) < set(one.state_dict()) and Unit(Linear(2, 3)).moved_by_rows == ()


# -- one level everywhere -------------------------------------------------------------------------------


class Scaled(torch.nn.Module):
    """phi(x) = a x: the row that sets the level, and its gradient, are plain."""

    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Parameter(torch.tensor([1.5, 0.5], dtype=torch.float64))

    def features(self, X: torch.Tensor) -> torch.Tensor:
        return X * self.a


def parts_of(X: torch.Tensor) -> list[Data]:
    return [Data(part, part[:, 0]) for part in X.split(4)]


def test_what_the_basis_lacks_of_the_level_is_never_negative():
    unit, basis = Unit(Linear(2, 2)), Linear(2, 2)
    phi = torch.tensor([[3.0, 4.0], [0.0, 1.0], [0.0, 0.0]], requires_grad=True)
    assert unit.train().variance(basis, phi, phi, phi).tolist() == [0.0, 24.0, 25.0]
    assert float(unit.level) == 25.0
    unit.eval().level.fill_(9.0)
    assert unit.variance(basis, phi, phi, phi).tolist() == [0.0, 8.0, 9.0]
    assert float(unit.level) == 9.0 and unit.in_precision


def test_the_level_is_that_of_all_rows_however_they_come():
    X = torch.randn(11, 2, generator=torch.Generator().manual_seed(0)).double()
    model, unit = Scaled(), Unit(Linear(2, 2)).double()
    most = float((X * model.a.detach()).square().sum(1).max())
    data = Data(X, X[:, 0])
    unit.settle(model, data)
    assert float(unit.level) == pytest.approx(most)
    whole = Data.chunks
    try:
        Data.chunks = lambda self, size=4: whole(self, 4)  # the largest in each of three
        unit.level.zero_()
        unit.settle(model, data)
    finally:
        Data.chunks = whole
    assert float(unit.level) == pytest.approx(most)


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_come_in_parts_have_the_gradient_of_all_at_once(seed):
    X = torch.randn(11, 2, generator=torch.Generator().manual_seed(seed)).double()
    weight = torch.randn(11, generator=torch.Generator().manual_seed(seed + 9)).double()
    basis = Linear(2, 2)
    together, apart = Scaled(), Scaled()
    unit = Unit(basis).double().train()
    phi = together.features(X)
    whole = unit.variance(basis, X, X, phi)
    (whole * weight).sum().backward()
    unit.hold(apart, parts_of(X))
    made = [unit.variance(basis, p.X, p.X, apart.features(p.X)).detach() for p in parts_of(X)]
    torch.testing.assert_close(torch.cat(made), whole.detach())
    for part, own in zip(parts_of(X), weight.split(4), strict=True):
        phi = apart.features(part.X)
        (unit.variance(basis, part.X, part.X, phi) * own).sum().backward()
    unit.release(apart)
    torch.testing.assert_close(apart.a.grad, together.a.grad)
    assert unit.held is None
    unit.release(apart)  # nothing is handed on twice
    unit.hold(apart, parts_of(X))
    unit.release(apart)  # nor what nobody asked for
    torch.testing.assert_close(apart.a.grad, together.a.grad)


# -- variances alone ------------------------------------------------------------------------------------


def test_what_inducing_points_miss_is_cut_at_nothing_and_none_is_none():
    class Base:
        @staticmethod
        def base_diagonal(h: torch.Tensor) -> torch.Tensor:
            return torch.full((len(h),), 2.0)

    phi = torch.tensor([[1.0, 0.5], [1.0, 1.0], [1.0, 1.1]])
    nystrom = RESIDUALS["nystrom"](Base())
    assert nystrom.variance(Base(), phi, phi, phi).tolist() == [0.75, 0.0, 0.0]
    assert RESIDUALS["none"](Base()).variance(Base(), phi, phi, phi).tolist() == [0.0] * 3
    assert nystrom.reverts_to_prior and nystrom.needs_base_kernel


# -- what each says of itself ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in RESIDUALS if not RESIDUALS[name].carried_by])
def test_a_residual_takes_the_basis_values_that_it_says_it_takes(name):
    """A step that makes no features for its sake hands on none worth reading."""
    basis = RBF(2, 3)
    residual = RESIDUALS[name](basis).eval()
    Z = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    told = [residual.variance(basis, Z, Z, phi) for phi in (torch.zeros(5, 3), torch.full((5, 3), torch.nan))]
    assert residual.takes_phi == (not torch.equal(*told)), told


def test_a_residual_says_no_more_of_itself_than_it_does():
    """Only one that is taught asks for rows left out, only one that moves names what moves; a bare one refuses."""
    for one in RESIDUALS.values():
        assert one.learns_by_trial == (one.take is not Residual.take) == (one.taught is not Residual.taught)
        assert bool(one.moved_by_rows) == (one.grown_from is not Residual.grown_from)
        assert bool(one.carried_by) == (one.variance is Residual.variance)
    assert {name for name, one in RESIDUALS.items() if one.reverts_to_prior} == {
        "nystrom",
        "distance",
        "local",
    }
    # The distance term alone was learned in the target's own units, from rows left out.
    assert {name for name, one in RESIDUALS.items() if not one.scales_with_basis} == {"distance"}
    assert {name for name, one in RESIDUALS.items() if one.in_precision} == {"unit"}
    bare, Z = Residual(RBF(2, 3)), torch.zeros(1, 2)
    assert not bare.reverts_to_prior and bare.takes_phi and bare.scales_with_basis
    with pytest.raises(NotImplementedError):
        bare.variance(RBF(2, 3), Z, Z, Z)
    with pytest.raises(NotImplementedError):
        bare.grown_from(Places.of([np.zeros((1, 2))]))
