"""What the neighbours of a place say, as the smooth noise sees it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from geogp.field import FieldOptions, LocalField, choose

pytestmark = pytest.mark.usefixtures("kernels_in_parts")
QUICK = FieldOptions(neighbours=16, steps=15, n_targets=600, epochs=3, metric=False)


@pytest.fixture(scope="module")
def field():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose, "TOGETHER_BELOW", 0)
        return LocalField.fit(*world(), None, options=replace(QUICK, smooth=True))


def test_far_from_all_data_testimony_is_the_same_everywhere(field):
    C = field.frame.coordinates(torch.tensor([[1e9, 3e8], [-2e9, 7e9]]).double())
    around = field.known.survey(C, field.known.neighbours_of(C), field.known.latest)
    torch.testing.assert_close(around.testimony[0], around.testimony[1], rtol=0, atol=1e-9)


def test_no_place_asked_about(field):
    assert len(field.moments(world()[0][:0]).location) == 0


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


def world(n=1000):
    rng = np.random.default_rng(1)
    X = torch.from_numpy(rng.uniform(0, 20_000, (n, 2)))
    return X, torch.sin(X[:, 0] / 3000) + 0.3 * torch.from_numpy(rng.normal(size=n))
