"""A smooth function between the nodes of a lattice: close to the function, the same whatever else is asked."""

import numpy as np
import pytest
import torch

from geogp.field.predict.lattice import interpolated
from geogp.field.regional import Region, fit_regional


def waves(P):
    return torch.sin(P[:, 0]) * torch.cos(0.5 * P[:, 1]), P[:, 0] ** 2


def places(n=400, spread=9.0, seed=0):
    return spread * torch.randn(n, 2, generator=torch.Generator().manual_seed(seed)).double()


def test_the_error_falls_with_the_fourth_power_of_the_pitch():
    P = places()
    off = [
        float((interpolated(waves, P, pitch)[0] - waves(P)[0]).square().mean().sqrt()) for pitch in (0.4, 0.2)
    ]
    assert off[0] < 1e-3
    assert off[0] / off[1] == pytest.approx(16.0, rel=0.1)


def test_what_else_is_asked_does_not_matter():
    P = places()
    whole = interpolated(waves, P, 0.3)
    for part in (slice(0, 1), slice(7, 90), slice(None, None, -1)):
        for all_of_it, some in zip(
            whole, interpolated(waves, P[part] if part.step is None else P.flip(0), 0.3)
        ):
            expected = all_of_it[part] if part.step is None else all_of_it.flip(0)
            torch.testing.assert_close(some, expected, rtol=0, atol=1e-12)


def test_the_function_is_asked_at_few_nodes():
    asked = []

    def counted(P):
        asked.append(len(P))
        return waves(P)

    interpolated(counted, places(20_000, spread=1.0), 0.5)
    assert asked[0] < 600
    interpolated(counted, places(3, spread=1e4), 0.5)
    assert asked[1] <= 48
    assert [len(part) for part in interpolated(counted, places(0), 0.5)] == [0, 0]


def test_the_regional_surface_between_nodes_is_the_regional_surface():
    rng = np.random.default_rng(0)
    P = torch.from_numpy(rng.uniform(0, 300, (400, 2)))
    y = torch.sin(P[:, 0] / 40) + 0.3 * torch.from_numpy(rng.normal(size=400))
    noise = torch.full_like(y, 0.1)
    g = fit_regional(Region.of(P, 100.0), torch.arange(400), y, noise, place_variance=0.3, prior_variance=0.7)
    # Among the data, at their edge, far away, and where a double has no room for a lattice of the world.
    new = torch.cat([torch.from_numpy(rng.uniform(-400, 700, (3000, 2))), P[:9], P[:2] + 1e15])
    (mean, variance), (near, about) = g(new), g.between_nodes(new)
    assert float((near - mean).abs().max()) < 1e-3 * float(mean.std())
    assert float((about.log() - variance.log()).abs().max()) < 0.05
    assert float(about.min()) > 0.0
    assert float(near[-2:].abs().max()) < 1e-12
    torch.testing.assert_close(about[-2:], torch.full((2,), 0.7).double())
