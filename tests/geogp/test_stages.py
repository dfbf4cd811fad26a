"""A field's fit in stages: what is computed once is not computed again, and the result is the same."""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from geogp.engines import Hooks
from geogp.estimator import GPRegressor
from geogp.field import FieldOptions, LocalField, choose
from geogp.field.stages import Stages
from geogp.linalg.threads import deterministic

OPTIONS = FieldOptions(steps=4, n_targets=200, epochs=1, neighbours=16, hidden=8, metric=False)


class Enough(Exception):
    """The time that was allowed is over."""


def world(n=1000, seed=0):
    rng = np.random.default_rng(seed)
    P = rng.uniform(0, 30.0, (n, 2))
    y = np.sin(P[:, 0] / 3.0) + np.cos(P[:, 1] / 5.0) + 0.2 * rng.standard_normal(n)
    return torch.from_numpy(P), torch.from_numpy((y - y.mean()) / y.std())


def test_a_fit_that_was_stopped_goes_on_to_the_same_result(monkeypatch):
    X, y = world()
    fitted = []
    honest = choose.fit_local_gp
    monkeypatch.setattr(choose, "fit_local_gp", lambda *a, **k: fitted.append(1) or honest(*a, **k))
    whole = LocalField.fit(X, y, None, options=OPTIONS)
    n_whole = len(fitted)
    written: dict[str, torch.Tensor] = {}

    def stop(known):
        written.update(known)
        if "first/numbers" in known:
            raise Enough

    with pytest.raises(Enough):
        LocalField.fit(X, y, None, options=OPTIONS, stages=Stages(report=stop))
    fitted.clear()
    again = LocalField.fit(X, y, None, options=OPTIONS, stages=Stages(written))
    # The first candidate was there; one that is fitted beside it may have been, too.
    there = {name.split("/")[0] for name in written}
    assert "first" in there and len(fitted) == n_whole - len(there)
    for name, value in whole.state()[0].items():
        torch.testing.assert_close(again.state()[0][name], value, rtol=0, atol=0)


def number(value, computed):
    """What computes a stage of that number, and writes down that it did."""
    return lambda: computed.append(value) or {"value": torch.tensor(float(value))}


def test_stages_side_by_side_are_all_kept_whatever_is_computed_when():
    """What is known is read by one while another adds to it."""
    kept = Stages({f"old {i}/value": torch.zeros(()) for i in range(3000)})

    def one(k):
        return kept.once(f"new {k}", lambda: {"value": torch.tensor(float(k))})["value"]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert [float(v) for v in pool.map(one, range(200))] == list(range(200))
    finally:
        sys.setswitchinterval(interval)
    assert kept.done == 3200


def test_a_stage_of_stages_keeps_each_of_them_under_its_name():
    reports, done, computed = [], [], []

    def two(inner):
        one, other = (inner.once(name, number(i, computed)) for i, name in enumerate("ab", 1))
        return {"sum": one["value"] + other["value"]}

    whole = Stages(report=lambda known: reports.append(dict(known)), progress=done.append)
    whole.once("first", number(0, computed))
    assert whole.of_stages("both", two)["sum"] == 3.0
    names = ["first/value", "both.a/value", "both.b/value", "both/sum"]
    assert [set(report) for report in reports] == [set(names[:k]) for k in (1, 2, 3, 4)]
    assert done == [1, 2, 3, 4] and whole.done == 4 and computed == [0, 1, 2]
    # An earlier attempt that came to the second of the two goes on there, and one that is done has nothing to do.
    for known, again in ((reports[1], [2]), (reports[3], [])):
        computed.clear()
        done.clear()
        later = Stages(known, progress=done.append)
        later.once("first", number(0, computed))
        assert later.of_stages("both", two)["sum"] == 3.0
        assert computed == again and set(later.known) == set(names)
        assert done == [3, 4][: 2 * len(again)]


def test_pieces_are_taken_one_by_one_with_a_moment_before_each():
    ticks, heard = [], []
    stages = Stages(report=lambda known: ticks.append(1), tell=heard.append)
    assert [(piece, len(ticks)) for piece in stages.between("xy")] == [("x", 1), ("y", 2)]
    stages.tell("the next")
    assert heard == ["the next"]
    Stages().tell("nobody")
    Stages().tick()


def test_within_a_stage_there_is_a_moment_to_stop():
    X, y = world(500)
    ticks = []

    def stop(known):
        ticks.append(len(known))
        if len(ticks) == 3:
            raise Enough

    with pytest.raises(Enough):
        LocalField.fit(X, y, None, options=OPTIONS, stages=Stages(report=stop))
    assert ticks == [0, 0, 0]


@pytest.mark.parametrize("where", ["geogp.field.left_out._left_out", "geogp.field.noise.fit._held_out"])
def test_each_set_of_rows_left_out_is_a_moment_to_stop(monkeypatch, kernels_in_parts, where):
    """Of many rows a set takes a second, and there are dozens of them before and after the kernel."""
    module, name = where.rsplit(".", 1)
    honest, made = getattr(sys.modules[module], name), []
    monkeypatch.setattr(where, lambda *a, **k: made.append(1) or honest(*a, **k))
    X, y = world()
    LocalField.fit(X, y, None, options=OPTIONS)
    sets = len(made)
    made.clear()

    def stop(known):
        if made:
            raise Enough

    with deterministic(), pytest.raises(Enough):  # in one thread, so that no set is begun before its turn
        LocalField.fit(X, y, None, options=OPTIONS, stages=Stages(report=stop))
    assert len(made) == 1 < sets


def test_the_estimators_hooks_hear_of_the_fields_stages():
    X, y = world(500)
    epochs, states = [], []
    hooks = Hooks(on_epoch=lambda done, *_: epochs.append(done), checkpoint=states.append)
    GPRegressor("local-gp", options={"steps": 5, "n_targets": 200, "metric": False}).fit(
        X.numpy(), y.numpy(), hooks=hooks
    )
    assert epochs == sorted(epochs) and epochs[-1] >= 1
    assert any("first/log_lengthscale" in s["model"] for s in states)


@pytest.mark.parametrize("n", [300, 700])
@pytest.mark.parametrize(
    "asked", [None, (("matern32", 8.0, 1.0),), (("matern52", 8.0, 1.0), ("matern12", 40.0, 1.0))]
)
def test_a_kernel_that_was_asked_for_keeps_its_smoothness(n, asked):
    X, y = world(n)
    fitted = LocalField.fit(X, y, None, options=replace(OPTIONS, components=asked))
    kinds = fitted.gp.kernel.smoothness
    if asked:
        assert kinds == tuple(kind for kind, _, _ in asked)
    else:
        assert len(set(kinds)) == 1 and set(kinds) <= {"matern12", "matern32", "matern52"}
