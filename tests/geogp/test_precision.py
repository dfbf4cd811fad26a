"""Products whose factors are rounded: near the exact ones, only where it was asked for, and only while training."""

from pathlib import Path

import numpy as np
import pytest
import torch

import geogp
from geogp.errors import InvalidInput
from geogp.linalg.precision import PRECISIONS, asked, linear, products_in, rounded
from geogp.linalg.slopes import gaussian, quadratic, whitened_gaussian

#: Half a unit in the last of bfloat16's eight digits, for each of two factors; sums of many products stay below.
ROUNDING = 2.0**-8


def far(found: torch.Tensor, true: torch.Tensor) -> float:
    """Relative distance of two tensors."""
    return float((found.double() - true).norm() / true.norm())


def with_slopes(work, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """What `work` gives, and its slopes by the inputs where each number of it counts alike."""
    own = [v.clone().requires_grad_() for v in inputs]
    out = work(*own)
    out = torch.cat([v.flatten() for v in (out if isinstance(out, tuple) else (out,))])
    return [out.detach(), *torch.autograd.grad((out * torch.linspace(0.5, 1.5, len(out)).to(out)).sum(), own)]


@pytest.fixture
def drawn() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_linear_map_and_its_slopes(precision: str, drawn: torch.Generator) -> None:
    inputs = [torch.randn(*shape, generator=drawn) for shape in ((300, 200), (170, 200), (170,))]
    true = with_slopes(torch.nn.functional.linear, *(v.double() for v in inputs))
    with products_in(precision):
        found = with_slopes(linear, *inputs)
    for one, other in zip(found, true, strict=True):
        assert far(one, other) < (1e-6 if precision == "float32" else ROUNDING)


def test_what_is_not_to_be_rounded_is_torchs_own_product() -> None:
    """Whatever a processor makes of the other."""
    x, weight, bias = (torch.ones(*shape, requires_grad=True) for shape in ((2, 3), (4, 3), (4,)))
    plain = linear(x, weight, bias)
    with products_in("bfloat16"):
        other = linear(x, weight, bias)
    assert type(plain.grad_fn) is type(torch.nn.functional.linear(x, weight, bias).grad_fn)
    assert type(other.grad_fn) is not type(plain.grad_fn)


@pytest.mark.parametrize("alone", range(3))
def test_a_slope_by_one_input_alone(alone: int, drawn: torch.Generator) -> None:
    inputs = [torch.randn(*shape, generator=drawn) for shape in ((30, 20), (17, 20), (17,))]

    def with_others_fixed(value: torch.Tensor) -> torch.Tensor:
        return linear(*inputs[:alone], value, *inputs[alone + 1 :])

    with products_in("bfloat16"):
        _, *every = with_slopes(linear, *inputs)
        _, single = with_slopes(with_others_fixed, inputs[alone])
    assert torch.equal(single, every[alone])


def test_factors_are_rounded_where_the_processor_can(drawn: torch.Generator) -> None:
    inputs = [torch.randn(*shape, generator=drawn) for shape in ((300, 200), (170, 200), (170,))]
    with products_in("bfloat16"):
        found = linear(*inputs)
    # torch leaves float32 products to AVX-512 BF16 alone as they are: off by 2.5e-7 on such a processor.
    can = {"amx_bf16"} & set(Path("/proc/cpuinfo").read_text().split())
    assert not can or far(found, linear(*(v.double() for v in inputs))) > 1e-4


@pytest.mark.parametrize("rank", [40, 600])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_variance_of_the_weights_and_its_slopes(
    precision: str, rank: int, drawn: torch.Generator
) -> None:
    phi, m = torch.randn(300, rank, generator=drawn), torch.randn(rank, generator=drawn)
    L = torch.randn(rank, rank, generator=drawn).tril()
    true = with_slopes(quadratic, *(v.double() for v in (phi, L, m)))
    with products_in(precision):
        found = with_slopes(quadratic, phi, L, m)
    for one, other in zip(found, true, strict=True):
        assert far(one, other) < (1e-5 if precision == "float32" else ROUNDING)


def test_kernels_are_never_rounded(drawn: torch.Generator) -> None:
    A, Z = torch.randn(300, 8, generator=drawn), torch.randn(64, 8, generator=drawn)
    for work in (gaussian, whitened_gaussian):
        plain = with_slopes(work, A, Z)
        with products_in("bfloat16"):
            asked_for = with_slopes(work, A, Z)
        assert all(torch.equal(one, other) for one, other in zip(plain, asked_for, strict=True))


def test_the_process_is_left_as_it_was() -> None:
    before = "highest"
    torch.set_float32_matmul_precision(before)
    with pytest.raises(RuntimeError), products_in("bfloat16"), rounded(asked()):
        assert torch.get_float32_matmul_precision() == PRECISIONS["bfloat16"]
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert torch.get_float32_matmul_precision() == before
    assert asked() == "float32"


def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (1500, 2))
    return X, np.sin(X[:, 0]) * np.cos(X[:, 1]) + 0.1 * rng.standard_normal(1500)


@pytest.mark.filterwarnings("ignore::geogp.errors.NotDistanceAware")
@pytest.mark.parametrize("method", ["dbk-silu", "dbk-rbf"])
def test_a_fit_is_as_good(method: str) -> None:
    X, y = rows()
    scores = {}
    for precision in PRECISIONS:
        model = geogp.GPRegressor(method, epochs=25, rank=64, precision=precision).fit(X[:1000], y[:1000])
        mean, sd = model.predict(X[1000:], return_std=True)
        scores[precision] = float(np.mean(0.5 * ((y[1000:] - mean) / sd) ** 2 + np.log(sd)))
    assert abs(scores["bfloat16"] - scores["float32"]) < 0.1, scores


def test_an_unknown_precision_is_refused() -> None:
    X, y = rows()
    with pytest.raises(InvalidInput, match="precision must be 'float32' or 'bfloat16'; got 'float8'"):
        geogp.GPRegressor("dbk-silu", precision="float8").fit(X, y)
