"""The coverage benchmark: its worlds are what they say, perfect intervals come out perfect, runs go on."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

import geogp
from benchmarks import coverage, page
from benchmarks.worlds import CONSTANT_COUNT, LENGTH_M, S2, TAU2, WORLDS, matern, sample
from geogp.data import Moments
from geogp.predictive import Predictive


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(("counts", "time"), coverage.STRATA)
def test_a_sample_is_its_truth_and_noise_and_leaves_the_corner_out(world, counts, time):
    drawn = sample(world, 400, 3, counts=counts, time=time)
    for rows, n in ((drawn.train, 400), (drawn.inside, 1000), (drawn.corner, 300)):
        assert rows.X.shape == (n, 3 if time else 2) and (rows.counts is not None) == counts
        z = (rows.y - rows.surface) / rows.noise_sd
        # mean and sd of n standard normals, five standard errors
        assert abs(z.mean()) < 5 / np.sqrt(n) and abs(z.std() - 1) < 5 / np.sqrt(2 * n)
    again = sample(world, 400, 3, counts=counts, time=time)
    np.testing.assert_array_equal(drawn.train.y, again.train.y)
    assert not np.array_equal(drawn.train.y, sample(world, 400, 4, counts=counts, time=time).train.y)
    # One straight line has the corner on one side and all other rows on the other: A (w, b) <= -1 has a solution.
    P = np.concatenate([r.X[:, :2] for r in (drawn.corner, drawn.train, drawn.inside)]) / 50_000
    sign = np.where(np.arange(len(P)) < 300, -1.0, 1.0)[:, None]
    line = linprog(
        np.zeros(3),
        sign * np.column_stack([P, np.ones(len(P))]),
        -1e-4 * np.ones(len(P)),
        bounds=(None, None),
    )
    assert line.status == 0


def test_the_matern_world_has_its_variance_and_correlation():
    products, squares = [], []
    for seed in range(12):
        truth = matern(seed)
        P = np.random.default_rng(seed).uniform(0, 50_000, (300, 2))
        years = np.full(300, 2022.0)
        f, g = truth.surface(P, years), truth.surface(P + [LENGTH_M, 0.0], years)
        products.append((f * g).mean())
        squares.append((f * f).mean())
    root3 = np.sqrt(3.0)
    # Some 40 patches of independent surface a seed: standard error 1.4 / sqrt(12 * 40) = .065 of the variance.
    assert np.mean(squares) == pytest.approx(1.0, abs=0.2)
    assert np.mean(products) == pytest.approx((1 + root3) * np.exp(-root3), abs=0.2)
    assert truth.noise_sd(P, np.full(300, 2.0))[0] == pytest.approx(np.sqrt(TAU2 + S2 / 2))


@dataclass
class Perfect:
    """A stand-in that knows the truth up to an error of known sd."""

    error_sd: float
    surface: np.ndarray
    noise_sd: np.ndarray
    target_sd_: float = 2.0

    def predictive(self, X, counts, *, latent=False):
        sd = np.full(len(X), self.error_sd)
        return Predictive(self.surface, sd if latent else np.hypot(sd, self.noise_sd))

    def moments(self, X, counts):
        noise = torch.as_tensor((self.noise_sd / self.target_sd_) ** 2)
        return Moments(noise, noise, noise, noise)


def test_perfect_intervals_hold_what_they_say():
    rows = sample("matern", 50, 0, counts=True, time=False).inside
    off = rows.surface + 0.3 * np.random.default_rng(0).standard_normal(1000)
    found = coverage.judged(Perfect(0.3, off, rows.noise_sd), rows)
    for kind in ("surface", "new"):
        for level in coverage.LEVELS:
            band = 4 * np.sqrt(level * (1 - level) / 1000)
            assert found[kind][str(level)] == pytest.approx(level, abs=band)
    assert found["noise_correlation"] == pytest.approx(1.0) and found["noise_ratio"] == pytest.approx(1.0)
    flat = sample("matern", 50, 0, counts=False, time=False).inside
    assert flat.noise_sd[0] == np.sqrt(TAU2 + S2 / CONSTANT_COUNT)
    assert coverage.judged(Perfect(0.3, flat.surface, flat.noise_sd), flat)["noise_correlation"] is None


def test_a_run_is_taken_in_parts_and_goes_on(tmp_path, capsys, monkeypatch):
    out = tmp_path / "coverage.json"
    asked = ["--only", "matern", "--methods", "sv-rbf", "--rows", "60", "--seeds", "0", "--steps", "2"]
    assert coverage.main([*asked, "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert "4 fits in" in printed.err and "| matern | 60   | sv-rbf | 4 " in printed.out
    assert "not a result" in printed.out
    assert coverage.main([*asked, "--out", str(out)]) == 0
    assert "0 fits in" in capsys.readouterr().err
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 4 and {(r["counts"], r["time"]) for r in rows} == set(coverage.STRATA)
    assert coverage.main(["--methods", "nope"]) == 2
    assert "there is no method 'nope'; choose from" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        coverage.main(["--rows", "5e2"])
    assert stopped.value.code == 2 and "got '5e2'" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        coverage.main(["--seeds", f"0,{2**70}"])
    assert stopped.value.code == 2 and "each seed must be a whole number from 0" in capsys.readouterr().err

    def fail(**key):
        raise geogp.NumericalFailure("no factor")

    monkeypatch.setattr(coverage, "measure", lambda *a, **k: fail())
    assert coverage.main([*asked, "--again", "--out", str(out)]) == 1  # what is there stays, the others go on
    assert "NumericalFailure: no factor" in capsys.readouterr().err
    assert len(json.loads(out.read_text())["rows"]) == 4
    taken = []
    monkeypatch.setattr(
        coverage, "measure", lambda *a, **key: taken.append(tuple(key.values())[:-1]) or fail()
    )
    assert coverage.main(["--methods", "sgpr", "--rows", "60", "--out", str(tmp_path / "turns.json")]) == 1
    for world in WORLDS:  # every kind of rows comes from both worlds, every seed sees both
        mine = [key for key in taken if key[0] == world]
        assert len(mine) == 10 and {key[3:5] for key in mine} == set(coverage.STRATA)
        assert {key[5] for key in mine} == set(coverage.SEEDS)
    # One page holds both benchmarks and the notes.
    monkeypatch.setattr(page, "COVERAGE", out)
    page.write({"rows": []}, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert (
        text.index("# Measured accuracy") < text.index("## Coverage of known truths") < text.index("tables\n")
    )


def test_what_is_not_honest_is_marked_and_an_absent_stratum_is_empty():
    judged = {
        "surface": {"0.5": 0.4, "0.8": 0.7, "0.95": 0.89},
        "new": {"0.5": 0.5, "0.8": 0.8, "0.95": 0.95},
        "noise_correlation": None,
        "noise_ratio": 1.1,
    }
    key = {"world": "matern", "rows": 500, "counts": True, "time": False, "seed": 0}
    row = {**key, "method": "sgpr", "inside": judged, "corner": judged, "seconds": 3.0, "quick": False}
    text = "\n".join(coverage.report([row]))
    assert "40 / 70 / **89**" in text and "50 / 80 / 95" in text and "not a result" not in text
    last = [cell.strip() for cell in text.splitlines()[-1].split("|")]
    assert last[4:8] == ["", "**89**, **89**, 95, 95", "", ""]
    assert coverage.report([]) == []
    assert set(coverage.METHODS) <= set(geogp.METHODS)
