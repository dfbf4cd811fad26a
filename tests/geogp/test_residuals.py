"""The residuals one by one: the distance term, what the basis lacks of one level, what inducing points miss."""

import geogp  # noqa: F401  first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
import numpy as np
import pytest
import torch

from geogp.basis.expansions.linear import Linear
from geogp.basis.residuals import RESIDUALS
from geogp.basis.residuals.distance import Distance, variogram
from geogp.basis.residuals.unit import Unit
from geogp.data import Data, Moments

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
    assert residual.train().variance(basis, Z, Z, Z).tolist() == [0.0] * 30
    assert residual.variance(basis, Z, Z, Z * torch.nan).tolist() == [0.0] * 30
    assert not residual.takes_phi  # so that a step need not make a row's features for its sake
    assert Distance(basis).eval().variance(basis, Z, Z, Z).tolist() == [0.0] * 30  # no place yet
    # On the columns of a position alone, where there is one.
    residual = placed(P).eval()
    residual.columns = torch.tensor([2, 0])
    wide = torch.cat([Z[:, 1:], torch.full((30, 1), 9.0), Z[:, :1]], 1).double()
    torch.testing.assert_close(residual.distance(wide), d)


@pytest.mark.parametrize("n", [7, 8, 9, 60])
def test_each_anchor_is_the_place_farthest_from_those_before(monkeypatch, n):
    """Repeated places count once; what the anchors leave uncovered is taken off."""
    monkeypatch.setattr("geogp.basis.residuals.distance.ANCHORS", 8)
    P = torch.rand(n, 2, generator=torch.Generator().manual_seed(n)).double()
    residual = placed(torch.cat([P, P[:3]]))
    places, anchors = torch.unique(P, dim=0), residual.anchors
    assert len(anchors) == min(n, 8)
    if n <= 8:
        assert torch.equal(anchors, places) and float(residual.radius) == 0.0
        return
    for k in range(1, 8):
        gaps = torch.cdist(places, anchors[:k]).min(1).values
        assert torch.equal(anchors[k], places[gaps.argmax()])
    radius = torch.cdist(places, anchors).min(1).values.max()
    torch.testing.assert_close(residual.radius, radius)
    torch.testing.assert_close(
        residual.distance(places + 5.0),
        (torch.cdist(places + 5.0, anchors).min(1).values - radius).clamp_min(0),
    )


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


class Around:
    """A model of mean .4 whose variance is that of noise and of its distance term."""

    def __init__(self, residual: Distance, noise: float):
        self.residual, self.noise, self.encoder = residual, noise, self

    def standardise(self, X: torch.Tensor) -> torch.Tensor:
        return X

    def moments(self, X: torch.Tensor, counts: torch.Tensor | None = None) -> Moments:
        grown = self.residual.variance(Linear(2, 3), X, X, X)
        zero = torch.zeros_like(grown)
        return Moments(zero + 0.4, grown + 0.1, zero + self.noise, zero + 1.0)


@pytest.mark.parametrize("by_sill", [0.25, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("by_range", [0.1, 0.3, 1.0, 3.0, 10.0])
def test_the_factors_are_those_that_score_held_out_rows_best(by_sill, by_range):
    """Of rows made with each of them. A row's share of the score is bounded, and rows at an anchor have no say."""
    rng = np.random.default_rng(int(100 * by_sill + 10 * by_range))
    anchors = torch.zeros(1, 2).double()
    residual = placed(anchors, sill=1.3, reach=0.4)
    d = np.exp(rng.uniform(np.log(0.003), np.log(9.0), 600))
    P = np.concatenate([np.column_stack([d, 0 * d]), np.zeros((50, 2))])
    variance = 0.3 + by_sill * 1.3 * (1 - np.exp(-d / (by_range * 0.4)))
    y = np.concatenate([0.4 + np.sqrt(0.5 * variance) * rng.standard_t(3.0, 600), np.full(50, 50.0)])
    y[0] = 1e4
    residual.tune(Around(residual, 0.2), Data(torch.from_numpy(P), torch.from_numpy(y)))
    scores = {}
    for s in (0.25, 0.5, 1.0, 2.0):
        for r in (0.1, 0.3, 1.0, 3.0, 10.0):
            v = 0.3 + s * 1.3 * (1 - np.exp(-d / (r * 0.4)))
            scores[s, r] = (np.minimum(0.5 * (y[:600] - 0.4) ** 2 / v, 8.0) + 0.5 * np.log(v)).mean()
    best = min(scores, key=scores.__getitem__)
    assert residual.taught() == pytest.approx({"sill": 1.3 * best[0], "range": 0.4 * best[1]})


@pytest.mark.parametrize(("n", "learned"), [(99, False), (100, True)])
def test_too_few_rows_away_from_data_decide_nothing(n, learned):
    residual = placed(torch.zeros(1, 2).double(), sill=1.3, reach=0.4)
    P = torch.ones(n, 2).double() * torch.linspace(0.5, 5, n)[:, None]
    residual.tune(
        Around(residual, 0.2), Data(torch.cat([P, torch.zeros(40, 2)]), 0.41 * torch.ones(n + 40).double())
    )
    assert residual.taught() == pytest.approx(
        {"sill": 1.3 * (0.25 if learned else 1.0), "range": 0.4 * (10.0 if learned else 1.0)}
    )


def test_of_many_rows_every_so_many_are_scored():
    """Above 10,000 each second one, of those away from data."""
    residual = placed(torch.zeros(1, 2).double(), sill=1.3, reach=0.4)
    y = 0.41 * torch.ones(12_000).double()
    y[1::2] = 100.0
    P = torch.ones(12_000, 2).double() * torch.linspace(0.5, 5, 12_000)[:, None]
    residual.tune(Around(residual, 0.2), Data(P, y))
    assert residual.taught()["sill"] == pytest.approx(1.3 * 0.25)


@pytest.mark.parametrize("spatial", [(1, 0), None])
def test_what_prediction_needs_is_taken_from_the_rows(spatial):
    """Anchors on the position, or on all columns where there is none; sill and range of the rows' variogram."""
    rng = np.random.default_rng(7)
    X = torch.from_numpy(rng.uniform(0, 3, (150, 3)))
    P = X if spatial is None else X[:, [1, 0]]
    K = torch.exp(-torch.cdist(P, P)) + 0.1 * torch.eye(150)
    y = torch.linalg.cholesky(K) @ torch.from_numpy(rng.standard_normal(150))
    residual = Distance(Linear(3, 3)).eval()
    model = Around(residual, 0.2)
    model.spatial = spatial
    residual.settle(model, Data(X, y))
    assert residual.columns.tolist() == list(spatial or ())
    assert torch.equal(residual.anchors, torch.unique(P, dim=0)) and residual.distance(X).max() == 0.0
    sill, reach = variogram(P, y)
    assert residual.taught() == pytest.approx({"sill": sill, "range": reach}) and sill != 1.0
    held = Data(X + 5.0, 3.0 + y)
    residual.settle(model, Data(X, y), held)
    tuned = residual.taught()
    residual.settle(model, Data(X, y))
    residual.tune(model, held)
    assert residual.taught() == pytest.approx(tuned) and tuned != pytest.approx(
        {"sill": sill, "range": reach}
    )


def test_what_was_taught_is_put_on_and_goes_through_a_file():
    one, other = placed(torch.rand(9, 2).double()), placed(torch.rand(4, 2).double(), 0.1, 9.0)
    other.take({})
    assert other.taught() == pytest.approx({"sill": 0.1, "range": 9.0})
    other.take(one.taught())
    assert other.taught() == one.taught()
    one.columns = torch.tensor([1, 0])
    other.load_state_dict(one.state_dict())
    assert torch.equal(other.anchors, one.anchors) and other.columns.tolist() == [1, 0]
    assert set(one.state_dict()) == {"anchors", "columns", "radius", "range", "sill"}
    assert all(torch.equal(v, other.state_dict()[name]) for name, v in one.state_dict().items())
    assert Distance(Linear(2, 3)).taught() == {"sill": 1.0, "range": 1.0}
    assert one.moves_with_rows and one.reverts_to_prior and not one.scales_with_basis


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
