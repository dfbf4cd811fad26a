"""Triangular statistics against dense algebra, against each other, and against refits."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import geogp
from geogp.basis.statistics import Statistic, add_rows, empty, merge, merge_all, solve
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
