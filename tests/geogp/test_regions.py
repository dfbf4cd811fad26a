"""Fields of overlapping regions: each region's own answer but for the seam, and no seam."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse

import geogp
from geogp.engines import Hooks
from geogp.errors import ImpossibleCombination, InvalidInput
from geogp.field import FieldOptions, LocalField, choose, options
from geogp.field.regions import MergedField, fit_field, restored_field
from geogp.field.regions import fit as region_fit
from geogp.field.stages import Stages
from geogp.scores import binomial_band
from geogp.update import observed_times, recondition
from tests.geogp.test_cuts import NAMES, weights

QUICK = FieldOptions(neighbours=16, n_targets=150, steps=4, epochs=1, hidden=8, metric=False)
#: Rows of the world that a field is fitted to; as many again in `world` are new to it.
N = 500


def world(n=2 * N, seed=0, quarters=4):
    """Places on a square of 30 km with a wave over them, averages of 1 to 20 measurements."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(0, 30_000, (n, 2)), 2022 + rng.integers(0, quarters, n) / 4])
    counts = rng.integers(1, 20, n).astype(float)
    y = (
        np.sin(X[:, 0] / 4000)
        + np.cos(X[:, 1] / 6000)
        + rng.standard_normal(n) * np.sqrt(0.02 + 0.2 / counts)
    )
    return (torch.from_numpy(a) for a in (X, y, counts))


@pytest.fixture(scope="module", autouse=True)
def small_regions():
    """Regions of fewer rows than may be asked for: what they are merged of does not hang on their size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(options, "LEAST_OF_A_REGION", 100)
        patch.setattr(choose, "TOGETHER_BELOW", 0)  # nor on how well the kernel is learned
        yield


@pytest.fixture(scope="module")
def merged():
    """Three regions in time, with what was beside them."""
    X, y, n = world()
    field = fit_field(X[:N], y[:N], n[:N], time=2, options=replace(QUICK, region_rows=170))
    assert isinstance(field, MergedField) and len(field.fields) == 3
    return field, X, y, n


def alone(field, X):
    """Of each region the rows of X that it alone tells of; rows of several."""
    shares = field.cuts.shares(X.numpy())
    times = np.bincount(np.concatenate([rows for rows, _ in shares]), minlength=len(X))
    return [rows[times[rows] == 1] for rows, _ in shares], np.flatnonzero(times > 1)


# -- fields -----------------------------------------------------------------------------------------------


def test_where_one_region_weighs_all_it_answers_to_the_bit(merged):
    """Asked for the places that it has a say in: products of fewer places would be rounded in another order."""
    field, X, _, n = merged
    new, counts = X[N:], n[N:]
    m = field.moments(new, counts)
    mine, several = alone(field, new)
    assert min(map(len, mine)) > 40 and len(several) >= 40
    told = field.cuts.members(field.rows.X.numpy(), 16)[1]
    R = field.rows.at(told)
    again = LocalField.fit(R.X, R.y, R.counts, time=2, options=QUICK)
    asked = [torch.from_numpy(rows) for rows, _ in field.cuts.shares(new.numpy())]
    for k, region in [*enumerate(field.fields), (1, again)]:
        own = region.moments(new[asked[k]], counts[asked[k]])
        here = torch.isin(asked[k], torch.as_tensor(mine[k]))
        assert here.sum() == len(mine[k])
        for name in NAMES:
            assert torch.equal(getattr(m, name)[asked[k][here]], getattr(own, name)[here])


def test_on_the_seam_the_answer_lies_between_and_is_no_surer_than_the_surest(merged):
    field, X, _, n = merged
    new, counts = X[N:], n[N:]
    _, several = alone(field, new)
    m = field.moments(new[several], counts[several])
    each = [region.moments(new[several], counts[several]) for region in field.fields]
    asked = torch.from_numpy(weights(field.cuts, new[several].numpy()) > 0)
    means, latent = (torch.stack([getattr(e, what) for e in each]) for what in ("mean", "latent_variance"))
    assert (m.mean <= means.where(asked, -torch.inf).amax(0) + 1e-12).all()
    assert (m.mean >= means.where(asked, torch.inf).amin(0) - 1e-12).all()
    assert (m.latent_variance >= latent.where(asked, torch.inf).amin(0) * (1 - 1e-12)).all()
    assert (m.latent_variance <= m.prior_variance).all() and (m.noise_variance > 0).all()


def test_far_from_all_rows_the_surface_is_the_prior(merged):
    field, X, _, n = merged
    far = X[:8].clone()
    far[:, :2] += torch.tensor([[1e7, 0.0]] * 4 + [[-1e7, 1e7]] * 4).double()
    m = field.moments(far, n[:8])
    torch.testing.assert_close(m.latent_variance, m.prior_variance)
    assert torch.isfinite(m.mean).all()


def test_rows_do_not_interact(merged):
    field, X, _, n = merged
    whole = field.moments(X[N : N + 90], n[N : N + 90])
    parts = [field.moments(X[i : i + 7], n[i : i + 7]) for i in range(N, N + 84, 7)]
    backwards = field.moments(X[N : N + 90].flip(0), n[N : N + 90].flip(0))
    for name in NAMES:
        torch.testing.assert_close(
            torch.cat([getattr(p, name) for p in parts]), getattr(whole, name)[:84], rtol=1e-6, atol=1e-6
        )
        torch.testing.assert_close(
            getattr(backwards, name).flip(0), getattr(whole, name), rtol=1e-6, atol=1e-6
        )
    assert len(field.moments(X[:0]).location) == 0


def test_only_regions_that_weigh_anything_are_asked(merged, monkeypatch):
    field, X, *_ = merged
    mine, _ = alone(field, X)
    asked = []
    honest = LocalField.moments_by_count
    monkeypatch.setattr(
        LocalField, "moments_by_count", lambda self, *a: asked.append(self) or honest(self, *a)
    )
    field.moments(X[mine[2]])
    assert asked == [field.fields[2]]


def test_the_prior_goes_from_one_regions_to_the_next(merged):
    field, X, *_ = merged
    P = X[:200]
    K = field.prior_covariance(P, P)
    torch.testing.assert_close(K.diagonal(), field.prior_variance(P))
    torch.testing.assert_close(field.moments(P).prior_variance, field.prior_variance(P), rtol=1e-9, atol=0)
    assert torch.linalg.eigvalsh(K).min() > -1e-9
    mine, _ = alone(field, P)
    own = P[mine[0]]
    torch.testing.assert_close(field.prior_covariance(own, own), field.fields[0].prior_covariance(own, own))


# -- joint distributions ----------------------------------------------------------------------------------


def test_joint_errors_have_the_variances_of_the_moments_everywhere(merged):
    field, X, *_ = merged
    P = X[N : N + 150].clone()
    P[100:, 2] += 3.0  # ahead of the data, where the mean walks
    latent = field.moments(P).latent_variance
    S = field.posterior_covariance(P)
    torch.testing.assert_close(S.diagonal(), latent, rtol=1e-6, atol=0)
    assert torch.linalg.eigvalsh(S).min() > -1e-9
    joint = field.joint(P, latent)
    assert (joint.ahead[100:, 0] > 0).all() and not joint.ahead[:100].any() and not joint.ahead[:, 1].any()
    draws = joint.draw(20_000, torch.Generator().manual_seed(0))
    # Draws of the prior are Vecchia's: those of a region alone are as far from its variances.
    np.testing.assert_allclose(draws.var(axis=1), latent, rtol=0.1)
    assert np.abs(np.cov(draws) - S.numpy()).max() < 0.15 * float(latent.max())
    again = field.joint(P, latent).draw(3, torch.Generator().manual_seed(0))
    np.testing.assert_array_equal(again, field.joint(P, latent).draw(3, torch.Generator().manual_seed(0)))
    W = sparse.csr_array(np.random.default_rng(0).dirichlet(np.ones(150), 2))
    np.testing.assert_allclose(joint.covariance(W), W @ S.numpy() @ W.T, atol=1e-10)


def test_away_from_the_cuts_errors_go_together_as_the_regions(merged):
    field, X, *_ = merged
    mine, _ = alone(field, X[N:])
    P = X[N:][mine[0][:40]]
    torch.testing.assert_close(field.posterior_covariance(P), field.fields[0].posterior_covariance(P))
    later = P.clone()
    later[:, 2] += 0.5
    variance = torch.stack([field.moments(x).latent_variance for x in (P, later)])
    torch.testing.assert_close(
        field.correlation(P, later, variance), field.fields[0].correlation(P, later, variance)
    )


def test_the_mean_of_a_strip_along_the_seam_is_no_surer_than_elsewhere(merged):
    """Were the two regions' errors independent where both are asked, the variance would be half."""
    field, *_ = merged
    cut = field.cuts.root
    across = np.linspace(3_000, 27_000, 25)
    here = np.full(25, cut.at)
    P = torch.from_numpy(np.stack([here, across] if cut.axis == 0 else [across, here], 1))
    P = torch.cat([P, torch.full((25, 1), 2022.0).double()], 1)
    W = sparse.csr_array(np.full((1, 25), 1 / 25))

    def variance(f):
        return float(f.joint(P, f.moments(P).latent_variance).covariance(W)[0, 0])

    assert variance(field) > 0.8 * min(map(variance, field.fields))


# -- told other observations ------------------------------------------------------------------------------


def test_told_more_and_less_each_region_has_its_own(merged):
    field, X, y, n = merged
    more = field.observations(X[N:], y[N:], n[N:])
    whole = field.conditioned_on(field.seen.together([field.seen, more]))
    other = field.conditioned_on(field.seen.together([more, field.seen]))
    assert len(whole.seen) == 2 * N and len(field.seen) == N
    told = whole.cuts.members(whole.rows.X.numpy(), 1)
    assert [len(r.seen) for r in whole.fields] == [len(rows) for rows in told]
    P = X[::7]
    for name in NAMES:
        assert torch.equal(getattr(whole.moments(P), name), getattr(other.moments(P), name))
    # Forgetting goes back to what was, but for the order of sums.
    back = whole.conditioned_on(whole.seen.at(torch.isin(whole.seen.y, field.seen.y)))
    np.testing.assert_allclose(back.moments(P).mean, field.moments(P).mean, atol=1e-9)
    assert float(whole.moments(P).latent_variance.mean()) < float(field.moments(P).latent_variance.mean())


def test_a_region_left_without_rows_rests_on_the_nearest(merged):
    field, X, *_ = merged
    cut = field.cuts.root
    west = field.conditioned_on(field.seen.at(field.seen.X[:, cut.axis] < cut.at - cut.below))
    empty = west.fields[-1]
    assert len(empty.seen) == 16
    P = X[X[:, cut.axis] > cut.at + 6_000][:20]
    m = west.moments(P)
    assert (m.latent_variance > 2 * field.moments(P).latent_variance).all() and torch.isfinite(m.mean).all()


def test_one_region_of_a_single_time_cannot_be_told_of_others():
    X, y, n = world(500)
    X[:, 0] *= 2  # so that it is cut from west to east
    X[X[:, 0] < 45_000, 2] = 2022.0
    field = fit_field(X, y, n, time=2, options=replace(QUICK, region_rows=250))
    assert [region.knows_time for region in field.fields] == [False, True] and not field.knows_time
    np.testing.assert_array_equal(np.sort(field.observed_times()), np.sort(X[:, 2]))
    flat = fit_field(X[:, :2], y, n, options=replace(QUICK, region_rows=250))
    assert flat.observed_times() is None and not flat.knows_time
    assert torch.isfinite(flat.moments(X[:50, :2], n[:50]).mean).all()


# -- state and stages -------------------------------------------------------------------------------------


def test_state_goes_through_json_and_back(merged):
    field, X, _, n = merged
    tensors, facts = field.state()
    again = restored_field(tensors, json.loads(json.dumps(facts)))
    assert {name.split(".")[0] for name in tensors} == {"rows", "region0", "region1", "region2"}
    a, b = field.moments(X[:200], n[:200]), again.moments(X[:200], n[:200])
    for name in NAMES:
        assert torch.equal(getattr(a, name), getattr(b, name))
    with pytest.raises(ValueError, match="cells and its regions differ"):
        restored_field(tensors, {**facts, "regions": facts["regions"][:2]})


def test_fields_of_before_there_were_regions_open():
    X, y, _ = world(60)
    tensors, facts = LocalField.fit(X, y, None, time=2, options=QUICK).state()
    del facts["options"]["region_rows"]
    assert restored_field(tensors, facts).known.options.region_rows is None


def test_the_order_of_the_rows_does_not_matter(merged):
    field, X, y, n = merged
    p = torch.randperm(N, generator=torch.Generator().manual_seed(0))
    other = fit_field(X[:N][p], y[:N][p], n[:N][p], time=2, options=replace(QUICK, region_rows=170))
    assert torch.equal(other.moments(X[N:], n[N:]).mean, field.moments(X[N:], n[N:]).mean)


class Enough(Exception):
    """The time that was allowed is over."""


def test_a_stopped_fit_goes_on_without_the_regions_that_are_done(merged, monkeypatch):
    field, X, y, n = merged
    what = {"time": 2, "options": replace(QUICK, region_rows=170)}
    written: dict[str, torch.Tensor] = {}

    def stop(known):
        written.update(known)
        if any(name.startswith("region1.") for name in known):
            raise Enough

    told, done = [], []
    with pytest.raises(Enough):
        fit_field(
            X[:N], y[:N], n[:N], **what, stages=Stages(report=stop, progress=done.append, tell=told.append)
        )
    assert told == ["region 1 of 3", "region 2 of 3"] and done == sorted(done)
    fitted = []
    honest = region_fit.LocalField.fit
    monkeypatch.setattr(
        region_fit.LocalField, "fit", lambda *a, **k: fitted.append(len(k["stages"].known)) or honest(*a, **k)
    )
    again = fit_field(X[:N], y[:N], n[:N], **what, stages=Stages(written))
    assert len(fitted) == 2 and fitted[0] > 0 and fitted[1] == 0  # the second goes on, the third begins
    for name, value in field.state()[0].items():
        assert torch.equal(again.state()[0][name], value)


def test_validation_rows_go_to_the_region_that_weighs_most():
    X, y, n = world(2200)
    held = (X[1000:], y[1000:], n[1000:])
    field = fit_field(
        X[:1000], y[:1000], n[:1000], time=2, options=replace(QUICK, region_rows=500), validation=held
    )
    owner = weights(field.cuts, X[1000:].numpy()).argmax(0)
    heard = [sum(region.calibration.rows) for region in field.fields]
    assert heard == np.bincount(owner).tolist() and sum(heard) == 1200


# -- as a method ------------------------------------------------------------------------------------------


def estimator(method="geogp", **more):
    own = {"n_targets": 150, "neighbours": 16, "metric": False}
    given = {"steps": 4, "epochs": 1, "hidden": 8, "options": own, "spatial": (0, 1), "time": 2} | more
    return geogp.GPRegressor(method, target_transform="identity", **given)


def test_a_run_of_regions_is_saved_updated_and_asked_like_any(tmp_path):
    X, y, n = (v.numpy() for v in world(900))
    heard = []
    model = estimator(region_rows=300).fit(X[:700], y[:700], n[:700], hooks=Hooks(on_part=heard.append))
    assert heard == ["region 1 of 3", "region 2 of 3", "region 3 of 3"]
    geogp.save(tmp_path / "run", model)
    again = geogp.load(tmp_path / "run").model
    np.testing.assert_array_equal(again.predict(X[700:]), model.predict(X[700:]))
    keep = observed_times(again) > 2022.2
    told = recondition(again, X[700:], y[700:], n[700:], keep=keep)
    assert len(told.engine_.field.seen) == int(keep.sum()) + 200
    draws = told.sample_y(X[:20], n_samples=3, random_state=0)
    assert draws.shape == (20, 3) and np.isfinite(draws).all()
    slice_ = told.kernel_slice(X[:40], X[0])
    assert np.isfinite(slice_).all() and slice_[0] == slice_.max()


def test_a_basis_under_regions_is_one_for_all():
    X, y, n = (v.numpy() for v in world(600))
    own = {"steps": 4, "epochs": 1, "n_targets": 150, "neighbours": 16, "metric": False}
    small = {"rank": 16, "hidden": 16, "epochs": 2, "steps": None, "fourier_scales": (1.0,), "options": own}
    model = estimator("dbk-silu", residual="local", region_rows=300, **small).fit(X, y, n)
    assert len(model.engine_.field.fields) == 2 and model.engine_.base is not None
    again = geogp.GPRegressor.from_state(*model.state())
    np.testing.assert_array_equal(again.predict(X[:30]), model.predict(X[:30]))


@pytest.mark.parametrize("rows", [0, 99, 250.0, True, "many"])
def test_a_size_that_is_none_is_refused(rows):
    X, y, n = (v.numpy() for v in world(120))
    with pytest.raises(InvalidInput, match=r"region_rows is a whole number of rows, 100 or more"):
        estimator(region_rows=rows).fit(X, y, n)


@pytest.mark.parametrize(
    ("method", "given", "who"),
    [
        ("sgpr", {}, "sgpr"),
        ("dbk-silu", {}, "dbk-silu"),
        ("geogp", {"spatial": None, "time": None}, "gp-averaged"),
    ],
)
def test_what_has_no_local_field_has_no_regions(method, given, who):
    X, y, n = (v.numpy() for v in world(60))
    asked = {"steps": None, "epochs": None, "options": None, "region_rows": 2000} | given
    with pytest.raises(ImpossibleCombination, match=f"region_rows cuts the places.*method '{who}' has none"):
        estimator(method, **asked).fit(X, y, n)


def test_as_few_rows_as_a_region_has_are_one_field():
    X, y, n = world(200)
    off, on = (fit_field(X, y, n, time=2, options=replace(QUICK, region_rows=r)) for r in (None, 200))
    assert isinstance(on, LocalField)
    assert torch.equal(on.moments(X).mean, off.moments(X).mean)


# -- no seam ----------------------------------------------------------------------------------------------

TELLING = replace(QUICK, steps=60, n_targets=400, neighbours=24, smooth=False)


@pytest.fixture(scope="module")
def beside():
    """One field and two regions of a surface drawn from a stationary Gaussian process, and that surface."""
    rng = np.random.default_rng(5)
    wave = rng.standard_normal((2, 300)) / np.sqrt(rng.gamma(1.5, 1 / 1.5, 300)) / 9.0  # Matérn 3/2, length 9
    phase = rng.uniform(0, 2 * np.pi, 300)

    def truth(P):
        return torch.from_numpy(np.sqrt(2 / 300) * np.cos(P.numpy() @ wave + phase).sum(1))

    X = torch.from_numpy(rng.uniform(0, 80, (1800, 2)))
    y = truth(X) + 0.4 * torch.from_numpy(rng.standard_normal(len(X)))
    one = fit_field(X, y, None, options=TELLING)
    several = fit_field(X, y, None, options=replace(TELLING, region_rows=900))
    assert len(several.fields) == 2
    return one, several, truth


def test_regions_say_what_one_field_says(beside):
    one, several, truth = beside
    P = torch.from_numpy(np.random.default_rng(1).uniform(0, 80, (4000, 2)))
    a, b = one.moments(P), several.moments(P)
    _, seam = alone(several, P)
    inside = np.setdiff1d(np.arange(len(P)), seam)
    apart = (b.mean - a.mean) / a.latent_variance.sqrt()
    rms = {name: float(apart[rows].square().mean().sqrt()) for name, rows in (("seam", seam), ("in", inside))}
    assert rms["seam"] < 0.4 and rms["in"] < 0.4, rms
    f = truth(P)
    error = {
        name: float((b.mean - f)[rows].square().mean().sqrt())
        for name, rows in (("seam", seam), ("in", inside))
    }
    assert error["seam"] < 1.15 * error["in"]
    covered = ((f - b.mean).abs() <= 1.96 * b.latent_variance.sqrt()).double()
    # Errors of places within a length of each other go together: some fifty in all stand for 600 on the seam.
    low, high = binomial_band(60, 0.95)
    assert low <= covered[seam].mean() <= high and low <= covered[inside].mean() <= high
    wider = float((b.latent_variance / a.latent_variance)[seam].sqrt().mean())
    assert wider < 1.15  # a mixture is no surer than one field, and hardly less


def test_across_a_cut_the_map_has_no_step(beside):
    _, several, _ = beside
    cut = several.cuts.root
    largest = []
    for at in (cut.at, cut.at + 22.0, cut.at - 22.0):
        t = np.linspace(at - 8, at + 8, 4001)
        steps = []
        for across in (15.0, 33.0, 61.0):
            other = np.full(len(t), across)
            P = torch.from_numpy(np.stack([t, other] if cut.axis == 0 else [other, t], axis=1))
            m = several.moments(P)
            steps.append([float(v.diff().abs().max()) for v in (m.mean, m.latent_variance.sqrt())])
        largest.append(np.max(steps, axis=0))
    here, *elsewhere = largest
    assert (here <= 1.5 * np.max(elsewhere, axis=0)).all(), largest
