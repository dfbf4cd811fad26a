"""Merged fields put together by hand: two regions that each know their own rows, and what each adds to an answer."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse

from geogp.field import LocalField
from geogp.field.noise.smooth import new_smooth_noise
from geogp.field.predict.blend import blended
from geogp.field.predict.moments import FieldMoments
from geogp.field.predict.outlook import outlook
from geogp.field.regions import MergedField, Rows, fit_field, restored_field
from geogp.field.regions import merged_field as module
from geogp.field.regions.cuts import Cuts
from geogp.field.regions.joint import MergedJoint, Part
from tests.geogp.test_conditioned import known_of


class Errors:
    """Joint errors with a covariance that is given, and two walks beside."""

    pairs = 5.0

    def __init__(self, K, ahead):
        self.K, self.ahead, self.variance, self.prepared = K, ahead, np.diag(K), []

    def not_ahead(self):
        other = Errors(self.K, 0.0 * self.ahead)
        other.prepared = self.prepared
        return other

    def covariance(self, W):
        return W @ self.K @ W.T

    def prepare(self, workers):
        self.prepared.append(workers)

    def draw(self, n, generator):
        z = torch.randn(len(self.K), n, generator=generator, dtype=torch.float64).numpy()
        return np.linalg.cholesky(self.K) @ z


@pytest.fixture
def parts():
    rng = np.random.default_rng(0)
    roots = [rng.normal(size=(m, m)) for m in (4, 3)]
    joints = [Errors(R @ R.T + np.eye(len(R)), rng.uniform(0, 0.3, (len(R), 2))) for R in roots]
    rows, share = (
        [np.array([0, 1, 2, 4]), np.array([2, 3, 4])],
        [np.array([1, 1, 0.3, 0.6]), np.array([0.7, 1, 0.4])],
    )
    return [Part(*each) for each in zip(rows, share, joints)]


def by_hand(parts, variance):
    walk = np.zeros((5, 2))
    for p in parts:
        walk[p.rows] += p.share[:, None] * p.joint.ahead**2
    shares = []
    for p in parts:
        wanted = np.maximum(variance - walk.sum(1), 0)[p.rows] / np.diag(p.joint.K)
        shares.append(np.sqrt(p.share * wanted))
    K = np.sqrt(walk) @ np.sqrt(walk).T
    for p, s in zip(parts, shares):
        K[np.ix_(p.rows, p.rows)] += s[:, None] * p.joint.K * s
    return K, walk, shares


@pytest.mark.parametrize("variance", [[1.0, 2.0, 0.5, 0.7, 1.1], [1.0, 1e-6, 0.5, 0.7, 1.1]])
def test_errors_of_a_whole_are_the_regions_by_the_roots_of_their_weights(parts, variance):
    variance = np.array(variance)
    joint = MergedJoint.of(parts, variance)
    K, walk, _ = by_hand(parts, variance)
    np.testing.assert_allclose(joint.dense(), K, atol=1e-12)
    np.testing.assert_allclose(np.diag(K), np.maximum(variance, walk.sum(1)))
    W = np.random.default_rng(3).normal(size=(3, 5))
    np.testing.assert_allclose(joint.covariance(sparse.csr_array(W)), W @ K @ W.T, atol=1e-12)
    assert joint.pairs == 10.0
    joint.prepare("somebody")
    assert [p.joint.prepared for p in parts] == [["somebody"], ["somebody"]]
    MergedJoint.of(parts, variance).prepare()
    assert parts[0].joint.prepared == ["somebody", None]


def test_draws_are_those_of_each_region_and_of_the_walk(parts):
    variance = np.array([1.0, 2.0, 0.5, 0.7, 1.1])
    joint = MergedJoint.of(parts, variance)
    found = joint.draw(6, torch.Generator().manual_seed(1))
    _, walk, shares = by_hand(parts, variance)
    g = torch.Generator().manual_seed(1)
    wanted = np.sqrt(walk) @ torch.randn(2, 6, generator=g, dtype=torch.float64).numpy()
    for p, s in zip(parts, shares):
        wanted[p.rows] += s[:, None] * p.joint.draw(6, g)
    np.testing.assert_allclose(found, wanted)


# -- fields ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def merged():
    """Regions in two cells of one table, one of them half as rough again; and places of both."""
    known, X = known_of(400, neighbours=16)
    counts = known.seen.counts
    y = torch.sin(X[:, 0] / 9)
    cuts = Cuts.over(X.numpy(), (0, 1), 2)
    own = LocalField(known)
    rough = replace(known.gp.kernel, log_lengthscale=known.gp.kernel.log_lengthscale - 0.4)
    other = LocalField(replace(known, gp=replace(known.gp, kernel=rough), horizon=0.1))
    start = MergedField(Rows(X, y, counts), cuts, (own, other), 2)
    field = start.conditioned_on(start.rows)
    at = X[torch.randperm(400, generator=torch.Generator().manual_seed(0))[:60]].clone()
    at[:, :2] += 0.7
    at[:, 2] += 0.9
    return field, at


def shares(field, X):
    """(regions, N) weights."""
    out = np.zeros((2, len(X)))
    for k, (rows, w) in enumerate(field.cuts.shares(X.numpy())):
        out[k, rows] = w
    return torch.from_numpy(out)


def test_both_regions_are_asked_on_the_seam(merged):
    field, at = merged
    w = shares(field, at)
    torch.testing.assert_close(w.sum(0), torch.ones(60).double())
    assert ((w > 0).sum(0) == 2).any() and ((w > 0).sum(0) == 1).any()


def test_each_region_knows_its_rows_and_those_around(merged):
    field, _ = merged
    for own, mine in zip(field.fields, field.cuts.members(field.rows.X.numpy(), 16)):
        rows = field.rows.at(mine)
        told = own.conditioned_on(own.observations(rows.X, rows.y, rows.counts))
        assert torch.equal(own.seen.X, told.seen.X) and torch.equal(own.seen.value, told.seen.value)
        assert len(mine) < 400
    order = torch.randperm(400, generator=torch.Generator().manual_seed(3))
    again = field.conditioned_on(field.rows.at(order))
    for a, b in zip(again.fields, field.fields):
        assert torch.equal(a.seen.X, b.seen.X) and torch.equal(a.seen.value, b.seen.value)
    assert torch.equal(again.rows.X, field.rows.X) and field.seen is field.rows


def test_moments_are_the_regions_blended(merged):
    field, at = merged
    counts = [torch.full((60,), 2.0).double(), torch.full((60,), 9.0).double()]
    w = shares(field, at)
    found = field.moments_by_count(at, counts)
    for n, said in zip(counts, found):
        told, place, weight = [], [], []
        for k in (0, 1):
            rows = torch.nonzero(w[k])[:, 0]
            told.append(field.fields[k].moments(at[rows], n[rows]))
            place.append(rows)
            weight.append(w[k, rows])
        wanted = blended(FieldMoments.together(told), torch.cat(place), torch.cat(weight), 60)
        for a, b in zip(vars(said).values(), vars(wanted).values()):
            torch.testing.assert_close(a, b)
    alone = field.moments(at)
    torch.testing.assert_close(alone.location, field.moments_by_count(at, [None])[0].location)
    assert len(field.moments(at[:0]).location) == 0


def test_regions_with_a_second_peak_and_without_say_alike(merged):
    """One region's noise has a second peak; places that the other alone tells of have one of no share."""
    field, at = merged
    own, other = field.fields
    inputs = outlook(other.known, at, None).inputs
    noise = new_smooth_noise(inputs.shape[1], hidden=6, members=3, peak=True)
    noise.start_from(inputs, 0.1, 0.2, 8.0)
    two = replace(field, fields=(own, replace(other, noise=noise.eval())))
    m, w = two.moments(at), shares(two, at)
    assert (m.peak.share[w[1] == 0] == 0).all() and (m.peak.share[w[1] > 0] > 0).all()
    torch.testing.assert_close(m.peak.share, w[1] * two.fields[1].moments(at).peak.share)
    assert len(two.moments(at[:0]).peak.share) == 0 and field.moments(at).peak is None


def test_the_prior_is_the_weighted_one(merged):
    field, at = merged
    w = shares(field, at)
    each = torch.stack([f.prior_variance(at) for f in field.fields])
    torch.testing.assert_close(field.prior_variance(at), (w * each).sum(0))
    both = torch.stack([f.prior_covariance(at, at[:20]) for f in field.fields])
    root = w.sqrt()
    wanted = (root[:, :, None] * root[:, None, :20] * both).sum(0)
    torch.testing.assert_close(field.prior_covariance(at, at[:20]), wanted)


def test_errors_together_are_those_of_the_regions(merged):
    field, at = merged
    latent = field.moments(at).latent_variance
    w = shares(field, at)
    own = []
    for k in (0, 1):
        rows = torch.nonzero(w[k])[:, 0]
        own.append(Part(rows.numpy(), w[k, rows].numpy(), field.fields[k].joint(at[rows], latent[rows])))
    wanted = MergedJoint.of(own, latent.numpy()).dense()
    np.testing.assert_allclose(field.joint(at, latent).dense(), wanted)
    np.testing.assert_allclose(field.posterior_covariance(at), wanted)
    np.testing.assert_allclose(np.diag(wanted), latent)
    few = torch.full((60,), 3.0).double()
    np.testing.assert_allclose(
        field.posterior_covariance(at, few).diagonal(), field.moments(at, few).latent_variance
    )


def test_one_place_at_two_times_goes_together_as_the_regions_say(merged):
    field, at = merged
    later = at.clone()
    later[:, 2] += 0.5
    variance = torch.stack([field.moments(x).latent_variance for x in (at, later)])
    w = shares(field, at)
    each = torch.stack([f.correlation(at, later, variance) for f in field.fields])
    torch.testing.assert_close(field.correlation(at, later, variance), (w * each).sum(0))


def test_rows_are_told_with_counts_of_one_where_nobody_counts(merged):
    field, at = merged
    rows = field.observations(at.float(), at[:, 0].float(), None)
    assert rows.X.dtype == torch.float64 and rows.counts.tolist() == [1.0] * 60
    assert field.observations(at, at[:, 0], 3 * torch.ones(60)).counts.tolist() == [3.0] * 60


def test_times_are_those_of_the_rows(merged):
    field, _ = merged
    assert field.observed_times().tolist() == field.rows.X[:, 2].tolist() and field.knows_time
    assert field.space == (0, 1)
    assert replace(field, time=None).observed_times() is None
    one = field.fields[1]
    still = LocalField(replace(one.known, frame=replace(one.known.frame, time=None)))
    assert not replace(field, fields=(field.fields[0], still)).knows_time


def test_its_state_is_that_of_the_rows_the_cuts_and_each_region(merged):
    field, at = merged
    tensors, facts = field.state()
    assert {name.split(".")[0] for name in tensors} == {"rows", "region0", "region1"}
    again = restored_field(tensors, facts)
    assert isinstance(again, MergedField) and again.time == 2
    for a, b in zip(vars(again.moments(at)).values(), vars(field.moments(at)).values()):
        torch.testing.assert_close(a, b)
    for name in ("X", "y", "counts"):
        assert torch.equal(getattr(again.rows, name), getattr(field.rows, name))
    assert isinstance(restored_field(*field.fields[0].state()), LocalField)
    facts["regions"] = facts["regions"][:1]
    with pytest.raises(ValueError, match="cells and its regions differ"):
        restored_field(tensors, facts)


def test_validation_rows_go_where_a_region_weighs_most(merged):
    field, at = merged
    w = shares(field, at)
    assert module._dealt(field.cuts, None) == [None, None]
    for counts in (None, torch.arange(60.0)):
        dealt = module._dealt(field.cuts, (at, at[:, 0], counts))
        for k, (X, y, n) in enumerate(dealt):
            mine = w.argmax(0) == k
            assert torch.equal(X, at[mine]) and torch.equal(y, at[mine, 0])
            assert (n is None) if counts is None else torch.equal(n, counts[mine])


def test_each_region_is_fitted_to_its_rows_and_said(merged, monkeypatch):
    field, at = merged
    asked, told = [], []

    def fit(task, stages, name):
        asked.append((task, name))
        return field.fields[0]

    monkeypatch.setattr(module, "fit_region", fit)
    options = replace(field.fields[0].known.options, region_rows=2000)
    monkeypatch.setattr(type(options), "n_regions", lambda o, n: 2 if n == 400 else 1)
    rows = field.rows
    stages = module.Stages(tell=told.append)
    found = fit_field(
        rows.X,
        rows.y,
        rows.counts,
        time=2,
        options=options,
        stages=stages,
        validation=(at, at[:, 0], None),
        device="cpu",
    )
    assert told == ["region 1 of 2", "region 2 of 2"] and [name for _, name in asked] == [
        "region0",
        "region1",
    ]
    members = field.cuts.members(rows.X.numpy(), 16)
    for (task, _), mine, held in zip(asked, members, module._dealt(field.cuts, (at, at[:, 0], None))):
        assert (
            torch.equal(task.rows.X, rows.X[torch.from_numpy(mine)])
            and task.time == 2
            and task.space == (0, 1)
        )
        assert torch.equal(task.validation[0], held[0]) and task.options is options and task.device == "cpu"
    assert found.time == 2 and torch.equal(found.rows.X, rows.X)
    monkeypatch.setattr(LocalField, "fit", lambda *given, **how: "one field")
    few = rows.at(slice(0, 399))
    assert fit_field(few.X, few.y, few.counts, options=options) == "one field"
