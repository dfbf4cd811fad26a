"""The metric that is learned: what it undoes, when it is learned, and that units are nothing to it."""

import numpy as np
import pytest
import torch

import geogp
from geogp.field.frame import ISOTROPIC
from geogp.field.likelihood import metric
from geogp.field.likelihood.metric import learned_metric


def lump(n: int = 900):
    """As smooth in all directions."""
    rng = np.random.default_rng(0)
    P = rng.uniform(0, 40, (n, 2))
    return P, np.sin(np.hypot(*(P - 20.0).T) / 4.0) + 0.3 * rng.standard_normal(n)


def waves(n: int):
    """Far rougher along the first axis."""
    g = torch.Generator().manual_seed(0)
    P = torch.rand(n, 2, generator=g).double()
    noise = torch.randn(n, generator=g).double()
    return P, torch.sin(40 * P[:, 0]) + torch.sin(4 * P[:, 1]) + 0.05 * noise


@pytest.mark.parametrize("turn", [np.eye(2), np.diag([0.5, 1.0]), [[0.6, 0.8], [-0.8, 0.6]]])
def test_the_metric_undoes_what_is_done_to_the_axes(turn):
    rng = np.random.default_rng(0)
    P = rng.uniform(0, 40.0, (900, 2))
    rough = np.array([[2.0, 0.0], [0.0, 0.5]])
    distance = np.linalg.norm((P[:, None] - P[None]) @ rough, axis=-1)
    y = np.linalg.cholesky(np.exp(-distance / 8.0) + 1e-8 * np.eye(900)) @ rng.standard_normal(900)
    S = np.array(turn)
    M = np.reshape(learned_metric(torch.from_numpy(P @ S.T), torch.from_numpy(y)), (2, 2))
    shape = (M @ S).T @ (M @ S)
    shape /= np.sqrt(np.linalg.det(shape))
    wanted = rough.T @ rough
    np.testing.assert_allclose(
        np.log(np.linalg.eigvalsh(shape)), np.log(np.linalg.eigvalsh(wanted)), atol=0.6
    )
    assert abs(shape[0, 1]) < 0.5 and shape[0, 0] > 2 * shape[1, 1]


def test_few_rows_or_an_isotropic_field_keep_the_metric_of_the_map():
    P, y = lump()
    assert learned_metric(torch.from_numpy(P), torch.from_numpy(y)) == ISOTROPIC
    assert learned_metric(torch.from_numpy(P[:49]), torch.from_numpy(y[:49])) == ISOTROPIC
    for n in (50, 100, 300, 499):
        assert learned_metric(torch.from_numpy(P[:n]), torch.from_numpy(y[:n])) == ISOTROPIC


def test_units_are_nothing_to_it():
    P, y = waves(600)
    one = learned_metric(P, y)
    assert one[0] > 1.5 * one[3]
    for other in (learned_metric(1e3 * P, y), learned_metric(P, 1e-3 * y), learned_metric(P, y + 50.0)):
        assert other == pytest.approx(one, rel=1e-6)


def test_it_is_learned_from_50_rows_on_and_of_many_of_the_first_draw():
    P, y = waves(500)
    found = learned_metric(P, y)
    assert found != ISOTROPIC and found == learned_metric(P, y, seed=0) != learned_metric(P, y, seed=1)
    y = torch.sin(12 * P[:, 0])
    assert learned_metric(P[:50], y[:50]) != ISOTROPIC == learned_metric(P[:49], y[:49])


def turned(n, seed, ratio=5.0):
    """Lengths that differ so many times, the longer one along the diagonal."""
    rng = np.random.default_rng(seed)
    P = rng.uniform(0, 100.0, (n, 2))
    root = np.diag([ratio**0.5, ratio**-0.5]) @ np.array([[1.0, -1.0], [1.0, 1.0]]) / np.sqrt(2.0)
    d = np.linalg.norm((P[:, None] - P[None]) @ root.T, axis=-1) / 20.0
    K = 100.0 * (1 + 3**0.5 * d) * np.exp(-(3**0.5) * d)
    f = np.linalg.cholesky(K + 1e-6 * np.eye(n)) @ rng.standard_normal(n)
    return P, f + 3.0 * rng.standard_normal(n), f, K


@pytest.mark.parametrize("n", [100, 200, 400])
def test_few_rows_tell_of_axes_that_are_turned(n):
    P, y, _, _ = turned(n, 1)
    M = np.reshape(learned_metric(torch.from_numpy(P), torch.from_numpy(y)), (2, 2))
    (short, long), axes = np.linalg.eigh(M)
    assert 3.0 < long / short < 9.0
    across = axes[:, 1] @ [1.0, -1.0] / np.sqrt(2.0)  # the direction in which the field is rough
    assert abs(across) > np.cos(np.radians(12.0))


def test_a_fit_of_few_rows_is_nearly_as_good_as_one_that_knows_the_axes():
    error, best = 0.0, 0.0
    for seed in range(3):
        P, y, f, K = turned(400, seed)
        seen, new = np.arange(400) < 200, np.arange(400) >= 200
        model = geogp.GPRegressor(random_state=0).fit(P[seen], y[seen])
        error += np.mean((model.predict(P[new]) - f[new]) ** 2)
        A = K[seen][:, seen] + 9.0 * np.eye(200)
        best += np.mean((K[new][:, seen] @ np.linalg.solve(A, y[seen]) - f[new]) ** 2)
    assert error < 1.2 * best


@pytest.mark.parametrize(("gain", "learned"), [(19.5, False), (20.0, True), (20.5, True)])
def test_it_must_gain_twenty_nats(monkeypatch, gain, learned):
    monkeypatch.setattr(metric._Fit, "log_likelihood", lambda fit, P: gain if fit.bends else 0.0)
    assert (learned_metric(*waves(500)) != ISOTROPIC) == learned


@pytest.mark.parametrize(("length", "learned"), [(2.9, False), (3.1, True)])
def test_of_few_rows_it_is_of_more_than_the_nearest_places(monkeypatch, length, learned):
    monkeypatch.setattr(metric._Fit, "log_likelihood", lambda fit, P: 30.0 if fit.bends else 0.0)

    def improve(fit, P):
        fit.numbers.data[0], fit.shape.data[0] = np.log(length), 0.5 * fit.bends

    monkeypatch.setattr(metric._Fit, "improve", improve)
    assert (learned_metric(*waves(200)) != ISOTROPIC) == learned


@pytest.mark.parametrize(("gain", "learned"), [(4.9, False), (5.0, True)])
def test_of_few_rows_it_must_gain_five(monkeypatch, gain, learned):
    monkeypatch.setattr(metric._Fit, "log_likelihood", lambda fit, P: gain if fit.bends else 0.0)
    assert (learned_metric(*waves(200)) != ISOTROPIC) == learned


@pytest.mark.parametrize(("nats", "bends"), [(1.5, False), (2.5, True)])
def test_a_ratio_of_axes_must_gain_two_nats_a_unit(monkeypatch, nats, bends):
    P, y = waves(500)
    monkeypatch.setattr(
        metric._Fit,
        "_density",
        lambda fit, P, rows, before: (nats / len(P) * fit.shape[0]).expand(len(rows)),
    )
    fit = metric._Fit(y, 0, bends=True)
    for _ in range(4):
        fit.improve(P)
    assert bool(fit.shape[0] > 1.0) == bends


def test_what_bends_and_what_does_not_are_improved_as_far(monkeypatch):
    calls = []
    improve = metric._Fit.improve
    monkeypatch.setattr(metric._Fit, "improve", lambda fit, P: (calls.append(fit.bends), improve(fit, P)))
    learned_metric(*waves(500))
    # What bends goes on from where the other one is after its first round.
    assert calls == [False, True, True, False]


def test_shapes_are_exponentials_of_what_has_no_trace():
    fit = metric._Fit(torch.zeros(9).double(), 0, bends=True)
    fit.shape.data = torch.tensor([0.4, -0.9]).double()
    want = torch.matrix_exp(torch.tensor([[0.4, -0.9], [-0.9, -0.4]]).double())
    torch.testing.assert_close(fit.metric().detach(), want)


def field(n: int, seed: int):
    """As smooth in all directions over a square, with noise."""
    rng = np.random.default_rng(seed)
    waves, phase = rng.normal(size=(200, 2)) / 8.0, rng.uniform(0, 6.28, 200)
    P = rng.uniform(0, 50, (n, 2))
    return P, 0.1 * np.cos(P @ waves.T + phase).sum(1) + 0.1 * rng.standard_normal(n)


@pytest.mark.parametrize("axis", [0, 1])
def test_an_axis_in_another_unit_is_brought_into_the_unit_of_the_other(axis):
    """Kilometres along one axis and metres along the other, of 500 rows and of 300."""
    units = np.where(np.arange(2) == axis, 1e3, 1.0)
    for n, seed in ((500, 0), (300, 2)):
        P, y = field(n, seed)
        M = np.reshape(learned_metric(torch.from_numpy(P * units), torch.from_numpy(y)), (2, 2)) * units
        long, short = np.linalg.svd(M)[1]
        assert long / short < 4.0


def test_a_strip_of_land_keeps_the_metric_of_the_map():
    """Spread far along one axis alone, in one unit: that is no reason."""
    rng = np.random.default_rng(1)
    P = rng.uniform(0, 1, (600, 2)) * [50.0, 0.2]
    waves, phase = rng.normal(size=(200, 2)) / 0.3, rng.uniform(0, 6.28, 200)
    y = 0.1 * np.cos(P @ waves.T + phase).sum(1) + 0.3 * rng.standard_normal(600)
    assert learned_metric(torch.from_numpy(P), torch.from_numpy(y)) == ISOTROPIC


@pytest.mark.parametrize(("gain", "learned"), [(3.9, False), (4.1, True)])
def test_of_slender_places_four_nats_are_enough(monkeypatch, gain, learned):
    monkeypatch.setattr(metric._Fit, "log_likelihood", lambda fit, P: gain if fit.bends else 0.0)
    P, y = waves(60)
    for wide, rows, expected in ((40.0, 60, learned), (40.0, 49, False), (20.0, 60, False)):
        stretched = P[:rows] * torch.tensor([wide, 1.0])
        assert (learned_metric(stretched, y[:rows]) != ISOTROPIC) == expected
