"""What the neighbours of a place say, as the smooth noise sees it."""

import math
from dataclasses import replace

import numpy as np
import torch

from geogp.field import FieldOptions, LocalField
from geogp.field.surroundings import HOLD, NEAREST, RANGES, SAID, SHARES, TIMES, Witnesses, smallest

QUICK = FieldOptions(neighbours=16, steps=15, n_targets=600, epochs=3, metric=False)


def test_testimony_is_what_plain_sums_give():
    rng = np.random.default_rng(0)
    n, k = 30, 12
    value, counts = (
        torch.from_numpy(rng.normal(size=(1, n))),
        torch.from_numpy(rng.integers(1, 9, (1, n)) * 1.0),
    )
    distance = torch.from_numpy(rng.uniform(0, 9, (1, 1, n)))
    distance[..., :3] = 0.0
    age, one = torch.from_numpy(rng.uniform(0, 2, (1, n))), torch.ones(1, n).double()
    rows = Witnesses(torch.zeros(1, n, 3).double(), value, counts, one, one, age, one > 0)
    # Twelve of thirty rows are heard; the others count as far away.
    heard = torch.zeros(1, 1, n, dtype=torch.bool)
    index = torch.from_numpy(np.append([0, 1, 2], rng.permutation(np.arange(3, n))[: k - 3]))
    heard[..., index] = True
    far = torch.where(heard, distance, torch.full_like(distance, 1000.0))
    nearest = smallest(far + 1e-3 * age[:, None], k)
    mean, known = torch.full((1, 1), 0.4, dtype=torch.float64), torch.full((1, 1), 0.7, dtype=torch.float64)
    got = rows.testimony(mean, known, far, heard.double(), nearest)[0, 0].numpy()
    assert len(got) == SAID and k <= NEAREST

    v, n_, d, a = (
        (value[0, index] - 0.4).numpy(),
        counts[0, index].numpy(),
        distance[0, 0, index].numpy(),
        age[0, index].numpy(),
    )
    w = 1.0 / (0.15 + 1.2 / n_)

    def three(w):
        m = (w * v).sum() / (w.sum() + HOLD)
        return m, math.log(w.sum() + HOLD), math.log(((w * (v - m) ** 2).sum() + HOLD) / (w.sum() + HOLD))

    want = [
        x for reach in RANGES for span in TIMES for x in three(w * np.exp(-d / reach) * np.exp(-a / span))
    ]
    own, lately = w * (d == 0), w * (d == 0) * np.exp(-a / TIMES[0])
    m, total, spread = three(own)
    want += [m, total, math.log(3.5), *three(lately)[:2], spread]
    want += (0.7 * np.quantile(v, SHARES)).tolist()
    # In float32, as the network that hears it.
    np.testing.assert_allclose(got, want, rtol=3e-6, atol=3e-6)


def test_far_from_all_data_testimony_is_the_same_everywhere():
    X, y = world()
    field = LocalField.fit(X, y, None, options=replace(QUICK, smooth=True))
    C = field.frame.coordinates(torch.tensor([[1e9, 3e8], [-2e9, 7e9]]).double())
    around = field.known.survey(C, field.known.neighbours_of(C), field.known.latest)
    torch.testing.assert_close(around.testimony[0], around.testimony[1], rtol=0, atol=1e-9)


def test_no_place_asked_about():
    X, y = world()
    field = LocalField.fit(X, y, None, options=replace(QUICK, smooth=True))
    assert len(field.moments(X[:0]).location) == 0


def test_rare_values_that_neighbours_share_change_the_noise():
    # Places measured again and again, a few of which are wild every time: the linear mean cannot tell wild from calm.
    rng = np.random.default_rng(3)
    place = rng.uniform(0, 30_000, (500, 2))
    wild = rng.random(500) < 0.15
    which = rng.integers(0, 500, 4000)
    X = torch.from_numpy(np.column_stack([place[which], rng.integers(0, 8, 4000) / 4.0]))
    y = torch.from_numpy(np.where(wild, 2.0, 0.1)[which] * rng.standard_normal(4000))
    new = torch.from_numpy(np.column_stack([place, np.full(500, 1.125)]))
    seen = LocalField.fit(X, y, None, time=2, options=replace(QUICK, smooth=True, epochs=20))
    sd = seen.moments(new).scale.numpy()
    assert sd[wild].mean() > 3 * sd[~wild].mean()


def test_a_field_saved_before_there_was_testimony_still_predicts():
    X, y = world()
    field = LocalField.fit(X, y, None, options=replace(QUICK, smooth=True, testimony=False))
    tensors, facts = field.state()
    del facts["options"]["testimony"]
    again = LocalField.from_state(tensors, facts)
    torch.testing.assert_close(again.moments(X[:9]).location, field.moments(X[:9]).location)


def world(n=1500):
    rng = np.random.default_rng(1)
    X = torch.from_numpy(rng.uniform(0, 20_000, (n, 2)))
    return X, torch.sin(X[:, 0] / 3000) + 0.3 * torch.from_numpy(rng.normal(size=n))
