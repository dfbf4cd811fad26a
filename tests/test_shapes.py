"""The shapes in signatures are checked while the tests run, and only then."""

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from geogp.scores import interval_score
from tests.shapes import checked


@checked
def product(
    a: Float[Tensor, "*batch n k"], b: Float[Tensor, " k"] | None, power: float
) -> Float[Tensor, "*batch n"]:
    return (a.sum(-1) if b is None else a @ b) ** power


@checked
@dataclass(frozen=True)
class Rows:
    X: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, " n"] | None = None


def test_the_packages_are_checked() -> None:
    """Numpy would broadcast the one bound to all rows."""
    y = np.zeros(3)
    with pytest.raises(TypeCheckError, match="upper"):
        interval_score(y, y, np.ones(1), 0.95)
    assert (interval_score(y, y, y + 1, 0.95) == 1).all()


def test_nothing_is_checked_outside_the_tests() -> None:
    code = "import sys, geogp.scores; print([m for m in ('beartype', 'tests.shapes') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_optional_arrays_batches_and_plain_numbers() -> None:
    a, b = torch.ones(5, 4, 3), torch.ones(3)
    assert product(a, b, 2).shape == (5, 4)  # an int where a float is said is no matter of shapes
    assert product(a[0], None, 2.0).shape == (4,)


@pytest.mark.parametrize("b", [torch.ones(4), torch.ones(3, 1), torch.ones(3, dtype=torch.int64), np.ones(3)])
def test_another_length_rank_kind_or_library_is_refused(b) -> None:
    with pytest.raises(TypeCheckError):
        product(torch.ones(4, 3), b, 1.0)


@checked
def cut(a: Float[np.ndarray, " n"], kept: list[int]) -> Float[np.ndarray, " n"]:
    return a[: kept[0]]


def test_kinds_that_passed_are_no_excuse_for_others() -> None:
    """The second call of a kind is not checked again; another kind of argument, or of result, is."""
    whole = np.zeros(3)
    for _ in range(2):
        assert len(cut(whole, [3])) == 3
        with pytest.raises(TypeCheckError):
            cut(whole, [2])  # the same kinds go in, another comes out
        with pytest.raises(TypeCheckError):
            cut(whole.astype(np.int64), [3])
        with pytest.raises(TypeCheckError):
            cut(a=whole[None], kept=[3])
        assert len(Rows(np.zeros((3, 2)), whole).y) == 3
        with pytest.raises(TypeCheckError):
            Rows(np.zeros((2, 2)), whole)


def test_fields_are_checked() -> None:
    assert Rows(np.zeros((3, 2))).y is None
    with pytest.raises(TypeCheckError):
        Rows(np.zeros((3, 2)), np.zeros(2))


def test_a_signature_without_shapes_is_handed_back() -> None:
    def plain(x: float, names: list[str]) -> np.ndarray:
        return np.full(len(names), x)

    assert checked(plain) is plain
