"""How observations with heavy tails are weighed, against the posterior of a Gaussian process written out."""

import numpy as np
import pytest
import torch

from geogp.field.student import heavy_tailed, student_weights, variance_over_scale2
from tests.geogp.test_local import crowd, kernel


def written_out(K, noise, y, nu, steps):
    """Weights after so many steps from 1, each from the dense posterior of f under the weights before."""
    w = np.ones(len(y))
    for _ in range(steps):
        S = np.linalg.inv(K + np.diag(noise / w))
        f = K @ S @ y
        square = (y - f) ** 2 + np.diag(K - K @ S @ K)
        w = (nu + 1) / (nu + square / noise)
    return w


@pytest.mark.parametrize("smallest", [1e-2, 1e-4])
def test_three_steps_are_taken_in_the_precision_that_the_noise_allows(smallest):
    """In float32 from a thousandth of the prior variance on: the ratio of the two variances is what rounding grows by."""
    X, y, noise = crowd(12)
    y[4] += 3.0
    K = kernel()(X, X)
    noise = torch.linspace(1.0, 3.0, 12).double() * smallest
    tolerance = 1e-4 if smallest > 1e-3 else 1e-9
    after = {n: written_out(K.numpy(), noise.numpy(), y.numpy(), 4.0, n) for n in (3, 5)}
    assert not np.allclose(after[3], after[5], rtol=tolerance)
    got = student_weights(K[None], noise[None], y[None], 4.0)[0]
    np.testing.assert_allclose(got, after[3], rtol=tolerance)
    more = student_weights(K[None], noise[None], y[None], 4.0, steps=5)[0]
    np.testing.assert_allclose(more, after[5], rtol=tolerance)


def test_each_of_a_batch_has_the_precision_of_its_own():
    """Prior variance 1.3: noise at a thousandth of it counts as enough, any less does not."""
    X, y, _ = crowd(8)
    K, threshold = kernel()(X, X), 1e-3 * 1.3 * (1 + 1e-12)
    rows = [[2 * threshold] * 8, [threshold] * 8, [threshold] * 7 + [0.99 * threshold], [1e-5] * 8]
    noise = torch.tensor(rows).double()
    got = student_weights(K.expand(4, 8, 8), noise, y.expand(4, 8), 4.0)
    single = student_weights(K.float().expand(4, 8, 8), noise.float(), y.float().expand(4, 8), 4.0)
    exact = np.stack([written_out(K.numpy(), row.numpy(), y.numpy(), 4.0, 3) for row in noise])
    off = np.abs(got.numpy() / exact - 1.0).max(axis=1)
    assert (off[:2] > 1e-8).all() and (off[2:] < 1e-9).all()
    for i in range(4):
        alone = student_weights(K[None], noise[i][None], y[None], 4.0)[0]
        torch.testing.assert_close(got[i], alone, rtol=1e-4 if i < 2 else 1e-9, atol=0)
    torch.testing.assert_close(got[:2], single[:2].double(), rtol=1e-4, atol=0)
    assert got.dtype == torch.float64


def test_from_thirty_degrees_of_freedom_on_tails_are_not_heavy():
    assert heavy_tailed(29.9) and not heavy_tailed(30.0) and not heavy_tailed(None)


def test_the_variance_of_a_student_t_is_scipys():
    from scipy.stats import t

    assert variance_over_scale2(3.7) == pytest.approx(t(3.7).var()) and variance_over_scale2(None) == 1.0


def test_student_weights_are_the_fixed_point_of_the_variational_equations():
    X, y, noise = crowd(30)
    y[4] += 3.0
    K, nu = kernel()(X, X), 4.0
    w = student_weights(K[None], noise[None], y[None], nu, steps=60)[0].numpy()
    # The Gaussian posterior of f under these weights, written out, gives the weights back.
    S = np.linalg.inv(np.linalg.inv(K.numpy()) + np.diag(w / 0.05))
    f = S @ (w / 0.05 * y.numpy())
    square = (y.numpy() - f) ** 2 + np.diag(S)
    np.testing.assert_allclose(w, (nu + 1) / (nu + square / 0.05), rtol=1e-6)


def test_student_weights_ignore_the_wild_and_keep_the_rest():
    X, y, noise = crowd()
    wild = y.clone()
    wild[7] += 6.0
    K = kernel()(X, X)[None]
    calm, w = (student_weights(K, noise[None], v[None], 4.0)[0] for v in (y, wild))
    assert w[7] < 0.05 < 0.5 < calm[7]
    others = torch.arange(120) != 7
    assert (w[others] - calm[others]).abs().mean() < 0.02
    assert torch.allclose(student_weights(K, noise[None], wild[None], 1e9), torch.ones(1).double(), atol=1e-4)
