"""Slopes that are written out, and a step on all rows piece by piece, against automatic differentiation."""

import copy

import pytest
import torch

from geogp.basis.full_batch import full_batch_backward
from geogp.basis.objectives import OBJECTIVES, Sums
from geogp.basis.objectives.objective import SOLVES
from geogp.engines.closed_form import rows_of
from geogp.linalg import cholesky, inverse_factor, squared_distances
from geogp.linalg.slopes import (
    gaussian,
    gram,
    inverse_cholesky,
    lower_triangle,
    products,
    quadratic,
    waves,
    whitened_gaussian,
)
from geogp.methods import method
from tests.geogp.test_closed_form import CLOSED, close, toy, untrained

#: A lattice needs six points an axis. Of more inducing points, near each other, the plain formula itself loses digits.
RANK = {"ski": 36}


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def spd(r: int) -> torch.Tensor:
    A = drawn(r, r)
    return A @ A.T + torch.eye(r).double()


FORMULAS = {
    "gaussian": (gaussian, lambda: (drawn(7, 3), drawn(5, 3, seed=1))),
    "gaussian of itself": (lambda A: gaussian(A, A), lambda: (drawn(6, 2),)),
    "waves": (waves, lambda: (drawn(4, 3),)),
    "products": (
        lambda table: products(table, torch.tensor([[0, 2, 1], [3, 0, 0], [1, 1, 2], [0, 0, 0]])),
        lambda: (drawn(4, 3, 5),),
    ),
    "whitened": (whitened_gaussian, lambda: (drawn(7, 3), drawn(5, 3, seed=1))),
    "quadratic": (
        lambda phi, L, m: quadratic(phi, L.tril(), m),
        lambda: (drawn(7, 4), drawn(4, 4, seed=1), drawn(4, seed=2)),
    ),
    "lower triangle": (lower_triangle, lambda: (drawn(4, 4), drawn(4, seed=1))),
    "inverse Cholesky factor": (lambda K: inverse_cholesky(0.5 * (K + K.T), jitter=0.1), lambda: (spd(5),)),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_slopes_are_those_of_finite_differences(name: str) -> None:
    formula, inputs = FORMULAS[name]
    assert torch.autograd.gradcheck(formula, [x.requires_grad_() for x in inputs()])


def test_the_inverse_factor_and_its_slope_are_those_of_the_factorisation() -> None:
    K = spd(20).requires_grad_()
    weights = drawn(20, 20, seed=2)
    C = torch.linalg.cholesky(K + 1e-3 * K.diagonal().mean() * torch.eye(20).double())
    plain = torch.linalg.solve_triangular(C, torch.eye(20).double(), upper=False)
    ours = inverse_cholesky(K, jitter=1e-3)
    close(ours.detach(), plain.detach(), 1e-12)
    (expected,) = torch.autograd.grad((plain * weights).sum(), K)
    (found,) = torch.autograd.grad((ours * weights).sum(), K)
    close(found, 0.5 * (expected + expected.T), 1e-10)


@pytest.mark.parametrize("r", [5, 200, 600])
def test_products_of_triangles_by_blocks_are_those_of_the_plain_formula(r: int) -> None:
    """Wide and narrow: the features of inducing points, what the weights make of them, and all slopes."""
    A, Z, L, m = drawn(30, 40), drawn(r, 40, seed=1), drawn(r, r, seed=2) / r, drawn(r, seed=3)
    leaves = [x.requires_grad_() for x in (A, Z, L, m)]

    def plain() -> tuple[torch.Tensor, ...]:
        C = cholesky(torch.exp(-0.5 * squared_distances(Z, Z)))
        phi = torch.exp(-0.5 * squared_distances(A, Z)) @ inverse_factor(C).T
        return phi, phi @ m, (phi @ L.tril()).square().sum(1), phi.square().sum(1)

    def ours() -> tuple[torch.Tensor, ...]:
        phi = whitened_gaussian(A, Z)
        return phi, *quadratic(phi, L.tril(), m)

    weights = [drawn(30, r, seed=5), *(drawn(30, seed=6 + k) for k in range(3))]
    found, expected = ours(), plain()
    for a, b in zip(found, expected):
        close(a.detach(), b.detach(), 1e-10)
    slopes = [
        torch.autograd.grad(sum((w * v).sum() for w, v in zip(weights, values)), leaves)
        for values in (found, expected)
    ]
    for a, b in zip(*slopes):
        close(a, b, 1e-10 * max(1.0, float(b.abs().max())))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (700, 40), (300, 530)])
def test_a_gram_matrix_is_the_product_however_the_rows_lie(
    shape: tuple[int, int], dtype: torch.dtype, threads: int
) -> None:
    W, before = drawn(*shape).to(dtype), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for A in (W, W[:, :3], W.T.contiguous().T, W[::2]):
            found = gram(A)
            assert found.dtype == dtype
            close(found.double(), A.double().T @ A.double(), 1e-11 if dtype == torch.float64 else 1e-3)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("chunk", [None, 7])
@pytest.mark.parametrize("residual", ["", "unit", "none"])
@pytest.mark.parametrize("name", [n for n in CLOSED if OBJECTIVES[method(n).objective].does == SOLVES])
def test_a_step_by_pieces_has_the_gradients_of_the_plain_formula(name, residual, chunk) -> None:
    data = toy(50)
    model, plain = (
        untrained(name, data, rank=RANK.get(name, 16), **({"residual": residual} if residual else {}))
        for _ in range(2)
    )
    objective = OBJECTIVES[method(name).objective]
    expected = objective(Sums.of(rows_of(plain, data)))
    expected.backward()
    found = full_batch_backward(model, method(name).objective, data, chunk=chunk)
    assert found.item() == pytest.approx(expected.item(), abs=1e-10)
    for p, q in zip(model.parameters(), plain.parameters()):
        assert (p.grad is None) == (q.grad is None)
        if p.grad is not None:
            close(p.grad, q.grad, 1e-10 * max(1.0, float(q.grad.abs().max())))


def test_features_that_are_asked_for_often_follow_the_parameters() -> None:
    """The factor that a prediction keeps is that of the parameters as they are."""
    data = toy(30)
    model = untrained("sv-rbf", data, rank=9).eval()
    h = model.encoder(data.X)

    def agree(expansion: torch.nn.Module, h: torch.Tensor, atol: float) -> None:
        expected = expansion(h).detach()  # with gradient: factorised anew
        with torch.no_grad():
            close(expansion(h), expected, atol)

    agree(model.expansion, h, 1e-10)
    with torch.no_grad():
        model.expansion.inducing_points.add_(0.1)
        model.expansion.log_lengthscale.sub_(0.3)
    agree(model.expansion, h, 1e-10)
    agree(copy.deepcopy(model.expansion).float(), h.float(), 1e-3)
    other = untrained("sv-rbf", data, rank=9)
    model.expansion.load_state_dict(other.expansion.state_dict())
    agree(model.expansion, h, 1e-10)
