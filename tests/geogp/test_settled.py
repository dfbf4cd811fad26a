"""When a search for what makes all rows likely ends."""

from types import SimpleNamespace

import pytest
import torch
from scipy.optimize import OptimizeResult

from geogp.field import LocalKernel, choose
from geogp.field.choose import SURELY, Trials
from geogp.field.likelihood import together
from geogp.field.local_gp import LocalGP


def passes(reached, *, wanted=0.0, start=10.0):
    """After how many it ends; None where the last of them does not end it."""
    after = together._until_settled([start], wanted)
    for done, loss in enumerate(reached, start=1):
        try:
            after(OptimizeResult(fun=loss))
        except StopIteration:
            return done
    return None


def test_a_search_ends_where_two_passes_gain_next_to_nothing():
    assert passes([9.0, 8.0, 7.9, 7.899, 7.898, 7.897]) == 5
    assert passes([9.0 - 0.1 * i for i in range(12)]) is None


def test_it_ends_where_the_first_passes_promise_too_little():
    steady = [9.0 - 0.1 * i for i in range(12)]  # 1.7 nats after eight
    assert passes(steady, wanted=6.0) is None
    assert passes(steady, wanted=8.0) == together.GIVEN_UP_AFTER


def test_a_fit_ends_so(monkeypatch):
    """Sooner, where it was going; sooner still where nothing could be enough."""
    X = torch.rand(60, 2, generator=torch.Generator().manual_seed(0)).double()
    y = (6.0 * X[:, 0]).sin() + 0.1 * torch.randn(60, generator=torch.Generator().manual_seed(1)).double()
    kernel = LocalKernel(torch.zeros(1, 2), torch.zeros(1), ("matern32",))
    gp = LocalGP(kernel, 0.1, 0.1, None, torch.zeros(0), ())

    def searched(**how):
        steps = []
        told = {"per_count": False, "tick": lambda: steps.append(1), **how}
        _, nats = together.fit_all_together(gp, X, y, torch.ones(60).double(), **told)
        return len(steps), nats

    often, nats = searched()
    vain, _ = searched(wanted=1e6)
    monkeypatch.setattr(together, "SETTLED", 0.0)
    whole, most = searched()
    assert vain < often < whole and nats > most - 0.05


@pytest.mark.parametrize(("of", "nats"), [("crowded", SURELY), ("noisier", 20.0)])
def test_what_varies_over_space_must_promise_what_it_must_gain(monkeypatch, of, nats):
    asked = []
    monkeypatch.setattr(
        Trials, "_likelier", lambda trials, gp, **how: (asked.append(how["wanted"]), (gp, 0.0))[1]
    )
    rows = torch.rand(500, 2, generator=torch.Generator().manual_seed(0)).double() ** 4  # dense in a corner
    one, none = torch.ones(500).double(), []
    t = Trials.of(
        rows, rows[:, 0], one, none, choose.FieldOptions(), per_count=False, stages=choose.Stages(), near=rows
    )
    gp = LocalGP(
        LocalKernel(torch.zeros(1, 2), torch.zeros(1), ("matern32",)), 0.1, 0.1, None, torch.zeros(0), ()
    )
    getattr(t, of)(SimpleNamespace(gp=gp))
    assert asked == [nats]  # 500 places have 20 centres
