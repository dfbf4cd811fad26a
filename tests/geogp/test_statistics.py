"""Triangular statistics against dense algebra, against each other, and against refits."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import geogp
from geogp.basis.model import in_double
from geogp.basis.residuals.places import Places
from geogp.basis.statistics import (
    Statistic,
    add_rows,
    empty,
    merge,
    merge_all,
    solve,
    statistic_of,
    triangular,
)
from geogp.data import Data
from geogp.errors import NumericalFailure
from geogp.run import save
from geogp.update import refresh, summarise


def draw(n=40, r=6, seed=0):
    g = torch.Generator().manual_seed(seed)
    phi = torch.randn(n, r, generator=g, dtype=torch.float64)
    y = torch.randn(n, generator=g, dtype=torch.float64)
    noise = 0.1 + torch.rand(n, generator=g, dtype=torch.float64)
    return phi, y, noise


def from_rows(phi, y, noise, basis=""):
    return add_rows(empty(phi.shape[1], basis=basis), phi, y, noise)


def close(a, b, atol=1e-10):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


def same(a: Statistic, b: Statistic):
    close(a.factor, b.factor)
    assert a.n_rows == pytest.approx(b.n_rows)
    assert a.log_noise == pytest.approx(b.log_noise)
    assert a.energy == pytest.approx(b.energy)


@pytest.mark.parametrize("n", [1, 4, 40])
def test_solution_is_the_dense_posterior_and_evidence(n):
    phi, y, noise = draw(n)
    solution = solve(from_rows(phi, y, noise))
    A = torch.eye(6, dtype=torch.float64) + phi.T @ (phi / noise[:, None])
    L = solution.weights.scale_tril
    close(solution.weights.mean, torch.linalg.solve(A, phi.T @ (y / noise)))
    close(L @ L.T, A.inverse())
    assert L.triu(1).abs().max() == 0 and (L.diagonal() > 0).all()
    dense = torch.distributions.MultivariateNormal(
        torch.zeros(n, dtype=torch.float64), phi @ phi.T + torch.diag(noise)
    )
    assert solution.log_evidence == pytest.approx(float(dense.log_prob(y)), abs=1e-9)


def test_a_prior_other_than_the_standard_normal():
    phi, y, noise = draw(10, 3)
    first = solve(from_rows(phi[:4], y[:4], noise[:4]))
    then = solve(from_rows(phi[4:], y[4:], noise[4:]), prior=first.weights)
    both = solve(from_rows(phi, y, noise))
    close(then.weights.mean, both.weights.mean)
    close(then.weights.scale_tril, both.weights.scale_tril)
    assert first.log_evidence + then.log_evidence == pytest.approx(both.log_evidence, abs=1e-9)


def test_no_rows_leave_the_prior():
    solution = solve(empty(4))
    close(solution.weights.mean, torch.zeros(4, dtype=torch.float64))
    close(solution.weights.scale_tril, torch.eye(4, dtype=torch.float64))
    assert solution.log_evidence == pytest.approx(0.0)


@settings(deadline=None, max_examples=30)
@given(
    cuts=st.lists(st.integers(0, 40), min_size=0, max_size=5),
    order=st.randoms(use_true_random=False),
    seed=st.integers(0, 9),
)
def test_merged_in_any_order_equals_one_pass(cuts, order, seed):
    phi, y, noise = draw(seed=seed)
    edges = [0, *sorted(cuts), 40]
    parts = [
        from_rows(phi[a:b], y[a:b], noise[a:b]) if b > a else empty(6) for a, b in itertools.pairwise(edges)
    ]
    order.shuffle(parts)
    one = from_rows(phi, y, noise)
    same(merge_all(parts), one)
    left = parts[0]
    for part in parts[1:]:
        left = merge(left, part)
    same(left, one)


def test_chunks_do_not_show():
    phi, y, noise = draw()
    parts = empty(6)
    for i in range(0, 40, 7):
        parts = add_rows(parts, phi[i : i + 7], y[i : i + 7], noise[i : i + 7])
    same(parts, from_rows(phi, y, noise))


def test_a_count_of_two_moves_the_weights_as_the_row_given_twice():
    phi, y, noise = draw(5)
    halved = noise.clone()
    halved[2] /= 2.0
    twice = torch.tensor([0, 1, 2, 2, 3, 4])
    a, b = solve(from_rows(phi, y, halved)), solve(from_rows(phi[twice], y[twice], noise[twice]))
    close(a.weights.mean, b.weights.mean)
    close(a.weights.scale_tril, b.weights.scale_tril)


def test_tensors_round_trip():
    phi, y, noise = draw()
    statistic = from_rows(phi, y, noise, basis="0f3a")
    again = Statistic.from_tensors(statistic.to_tensors())
    assert torch.equal(again.factor, statistic.factor)
    assert (again.n_rows, again.log_noise, again.energy, again.basis) == (
        statistic.n_rows,
        statistic.log_noise,
        statistic.energy,
        "0f3a",
    )


def test_what_cannot_be_merged_is_refused():
    phi, y, noise = draw()
    with pytest.raises(geogp.InvalidInput, match="different bases"):
        merge(from_rows(phi, y, noise, basis="a"), from_rows(phi, y, noise, basis="b"))
    with pytest.raises(geogp.InvalidInput, match="at least one quarter"):
        merge_all([])
    with pytest.raises(geogp.NumericalFailure, match="noise variance"):
        from_rows(phi, y, -noise)
    with pytest.raises(geogp.NumericalFailure, match="not finite"):
        from_rows(phi * math.nan, y, noise)


def test_the_condition_number_is_not_squared():
    # Columns that differ by 1e-9: their Gram matrix is singular in float64, their QR factor is not.
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(50, 1, generator=g, dtype=torch.float64), torch.randn(50, 1, generator=g).double()
    phi = 1e9 * torch.cat([a, a + 1e-9 * b], 1)
    R = from_rows(phi, torch.zeros(50, dtype=torch.float64), torch.ones(50)).factor
    # The second pivot is the part of b across a.
    across = b - a * (a * b).sum() / a.square().sum()
    assert float(R[1, 1]) == pytest.approx(float(across.norm()), rel=1e-5)


# -- refreshing a fitted run ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (180, 2))
    counts = rng.integers(1, 9, 180)
    y = np.sin(X[:, 0]) + 0.3 * rng.standard_normal(180) / np.sqrt(counts)
    quarters = np.repeat(["2023Q1", "2023Q2", "2023Q3"], 60)
    return X, y, counts, quarters


@pytest.mark.parametrize("method", ["sgpr", "dbk-silu-exact", "sv-rbf", "dbk-rbf"])
def test_add_then_forget_equals_never_added_equals_from_scratch(world, method):
    X, y, counts, quarters = world
    model = geogp.GPRegressor(method, rank=12, hidden=8, epochs=3).fit(X[:120], y[:120], counts=counts[:120])
    parts = summarise(model, X, y, counts, groups=quarters)
    assert list(parts) == ["2023Q1", "2023Q2", "2023Q3"]
    two = refresh(model, [parts["2023Q1"], parts["2023Q2"]])
    three = refresh(two, parts.values())
    back = refresh(three, [parts["2023Q2"], parts["2023Q1"]])
    scratch = refresh(model, summarise(model, X[:120], y[:120], counts[:120]).values())

    for other in (back, scratch):
        close(other.engine_.model.solved.mean, two.engine_.model.solved.mean, 1e-9)
        np.testing.assert_allclose(other.predict(X), two.predict(X), rtol=0, atol=1e-9)
    assert np.abs(three.predict(X) - two.predict(X)).max() > 1e-4
    assert model.engine_.model is not two.engine_.model


def test_a_closed_form_fit_is_its_own_refresh(world):
    X, y, counts, _ = world
    model = geogp.GPRegressor("sgpr", rank=12, epochs=3).fit(X, y, counts=counts)
    again = refresh(model, summarise(model, X, y, counts).values())
    close(again.engine_.model.weights().mean, model.engine_.model.weights().mean, 1e-9)
    close(again.engine_.model.weights().scale_tril, model.engine_.model.weights().scale_tril, 1e-9)


def test_statistics_of_another_run_are_refused(world):
    X, y, _, _ = world
    one = geogp.GPRegressor("sgpr", rank=6, epochs=1).fit(X, y)
    two = geogp.GPRegressor("sgpr", rank=6, epochs=2).fit(X, y)
    with pytest.raises(geogp.InvalidInput, match="another run"):
        refresh(two, summarise(one, X, y).values())


@pytest.mark.parametrize("method", ["sgpr", "sv-rbf"])
def test_a_refreshed_run_and_its_statistics_survive_the_disk(world, tmp_path, method):
    X, y, counts, quarters = world
    model = geogp.GPRegressor(method, rank=12, epochs=3).fit(X[:120], y[:120], counts=counts[:120])
    parts = summarise(model, X[:120], y[:120], counts[:120], groups=quarters[:120])
    extra = {f"statistics/{quarter}": part.to_tensors() for quarter, part in parts.items()}
    run = save(tmp_path / "run", model, {"target": "value", "data": {}}, extra=extra)
    kept = {q: Statistic.from_tensors(run.tensors(f"statistics/{q}")) for q in parts}
    # The fingerprint is of the numbers, so a loaded run knows its own statistics.
    kept |= summarise(run.model, X[120:], y[120:], counts[120:], groups=quarters[120:])
    newer = refresh(run.model, kept.values())
    saved = save(tmp_path / "newer", newer, {"target": "value", "data": {}})
    np.testing.assert_array_equal(saved.model.predict(X), newer.predict(X))
    straight = refresh(model, summarise(model, X, y, counts).values())
    np.testing.assert_allclose(newer.predict(X), straight.predict(X), rtol=0, atol=1e-6)


def test_a_triangle_has_the_rows_products_and_no_negative_diagonal():
    g = torch.Generator().manual_seed(5)
    for n in (0, 2, 3, 9):
        rows = 0.1 * torch.randn(n, 3, generator=g, dtype=torch.float64)
        R = triangular(rows)
        close(R.T @ R, rows.T @ rows)
        assert R.shape == (3, 3) and (R.diagonal() >= 0).all() and R.tril(-1).abs().max() == 0


def test_sums_are_those_of_the_rows():
    phi, y, noise = draw(7, 3)
    found = add_rows(from_rows(phi[:4], y[:4], noise[:4]), phi[4:], y[4:], noise[4:])
    assert found.n_rows == 7
    assert found.log_noise == pytest.approx(float(noise.log().sum()))
    assert found.energy == pytest.approx(float((y.square() / noise).sum()))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_one_bad_number_among_good_ones_is_refused(bad):
    for which in range(3):
        parts = list(draw(5, 2))
        parts[which][(2, 0) if which == 0 else 2] = bad
        with pytest.raises(NumericalFailure, match="finite"):
            from_rows(*parts)
    for low in (0.0, -1.0):
        phi, y, noise = draw(5, 2)
        noise[3] = low
        with pytest.raises(NumericalFailure, match="not positive"):
            from_rows(phi, y, noise)


def fitted(residual):
    rng = np.random.default_rng(3)
    X, y = rng.uniform(0, 10_000, (90, 2)), rng.standard_normal(90) + 40.0
    sizes = {"rank": 6, "hidden": 8, "epochs": 2, "batch_size": 32, "target_transform": "identity"}
    return geogp.GPRegressor("dbk-rbf", residual=residual, **sizes).fit(X, y, rng.integers(1, 9, 90))


@pytest.mark.parametrize("residual", ["unit", "nystrom"])
@pytest.mark.parametrize("how", [{}, {"in_precision": True}, {"in_precision": False}, {"predictive": True}])
def test_rows_are_weighed_by_what_was_asked(residual, how):
    """Noise alone, with the residual's variance, or the whole predictive variance with its learned factors."""
    model = in_double(fitted(residual).engine_.model)
    model.factors = replace(model.factors, surface=1.7)
    g = torch.Generator().manual_seed(1)
    data = Data(
        torch.randn(30, 2, generator=g),
        torch.randn(30, generator=g),
        torch.randint(1, 9, (30,), generator=g).float(),
    )
    with torch.no_grad():
        Z, h, phi = model.represent(data.X)
        noise, extra = model.noise(Z, data.counts), model.residual.variance(model.expansion, Z, h, phi)
        learned = model.posterior.current().moments(phi)[1]
        if how.get("predictive"):
            weight = model.noise_variance(Z, data.counts, learned) + 1.7 * learned
            weight = weight + model.residual_variance(Z, h, phi)
        else:
            corrected = how.get("in_precision", model.residual.in_precision)
            weight = noise + extra if corrected else noise
    assert extra.min() > 0 and model.residual.in_precision == (residual == "unit")
    model.constant_mean.data.fill_(0.3)
    with torch.no_grad():
        expected = from_rows(phi, data.y.double() - 0.3, weight)
    same(statistic_of(model, data, **how), expected)


def test_places_of_rows_go_with_their_statistic():
    """Of a residual that grows from them: those of both parts where both know them, else of the one that does."""
    phi, y, noise = draw(n=6)
    plain = from_rows(phi, y, noise)
    one, other = (replace(plain, places=Places.of([np.array(P)])) for P in ([[0.0], [2.0]], [[2.0], [1.0]]))
    assert merge(one, other).places.points.tolist() == [[0.0], [1.0], [2.0]]
    for parts in ((one, plain), (plain, one)):
        assert merge(*parts).places.points.tolist() == [[0.0], [2.0]]
    assert merge(plain, plain).places is None


@pytest.mark.parametrize("residual", ["distance", "none"])
def test_a_statistic_of_rows_knows_their_places_where_the_residual_grows_from_them(residual):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 9, (80, 2))
    small = {"rank": 8, "hidden": 8, "epochs": 2, "random_state": 0, "target_transform": "identity"}
    model = geogp.GPRegressor("dbk-silu", spatial=(0, 1), residual=residual, **small).fit(X, X[:, 0])
    basis = model.engine_.model
    rows = Data(torch.from_numpy(X[:30]), torch.zeros(30), None)
    places = statistic_of(basis, rows).places
    if residual == "none":
        assert places is None
    else:
        expected = in_double(basis).encoder.standardise(rows.X).numpy()
        np.testing.assert_allclose(places.points, np.unique(expected, axis=0), rtol=0, atol=1e-12)
