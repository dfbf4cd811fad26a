"""The local kernel of batches, far apart, and elsewhere: beside its formula, which `test_local` writes out."""

import geogp  # noqa: F401  first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
import math
from dataclasses import replace

import pytest
import torch

from geogp.field.variation import Variation
from tests.geogp.test_local import kernel, points

K = kernel(("matern12", "matern52"), (0.4, 0.7, 0.9), time_axis=2)


@pytest.mark.parametrize("batch", [(2,), (4, 2)])
def test_of_batches_each_is_as_alone(batch):
    A, B = (points(n * math.prod(batch), 3, seed=n).reshape(*batch, n, 3) for n in (3, 5))
    got = K(A, B)
    assert got.shape == (*batch, 3, 5)
    each = zip(A.reshape(-1, 3, 3), B.reshape(-1, 5, 3))
    torch.testing.assert_close(got.reshape(-1, 3, 5), torch.stack([K(a, b) for a, b in each]))


@pytest.mark.parametrize("away", [11.0, 79.0, 81.0, 500.0])
def test_with_gradients_in_places_it_is_as_small_far_apart(away):
    k = kernel(("matern12",), (1.0, 1.0))
    A, B = torch.zeros(1, 2).double(), torch.tensor([[away, 0.0]]).double()
    taped = k(A.requires_grad_(), B).detach()
    torch.testing.assert_close(taped, k(A.detach(), B), rtol=1e-9, atol=0)


@pytest.mark.parametrize("varying", [False, True])
def test_elsewhere_it_is_the_same(varying):
    X = points(9, 3)
    bumps = Variation.flat(X[:, :2], 3)
    bumps = replace(bumps, variance=torch.linspace(-0.3, 0.4, 3).double())
    k = replace(K, variation=bumps if varying else None)
    torch.testing.assert_close(k.to("cpu")(X, X), k(X, X))
    assert k.to("meta").log_lengthscale.is_meta and k.to("meta").log_variance.is_meta
    assert not varying or k.to("meta").variation.centres.is_meta
