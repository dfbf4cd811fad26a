"""The benchmark of strata: who belongs to each, what is marked, and that a stopped one goes on."""

import json

import numpy as np
import pytest

from benchmarks import strata
from benchmarks.worlds import sample


def test_each_new_row_has_one_kind_of_place_and_one_bin_of_counts() -> None:
    drawn = sample("matern", 300, 3, counts=True, time=False)
    new = strata.joined(drawn.inside, drawn.corner)
    found = strata.strata_of(drawn, new)
    assert tuple(found) == strata.STRATA and len(new.y) == 1300
    np.testing.assert_array_equal(found["near data"] ^ found["in gaps"], found["inside"])
    np.testing.assert_array_equal(found["inside"], ~found["corner"])
    bins = [found[name] for name in ("1 test", "2 to 4", "5 to 19", "20 or more")]
    np.testing.assert_array_equal(np.sum(bins, axis=0), found["inside"])
    for member, (low, high) in zip(bins, [(1, 1), (2, 4), (5, 19), (20, np.inf)], strict=True):
        assert low <= new.counts[member].min() and new.counts[member].max() <= high
    gaps = np.linalg.norm(new.X[:, None] - drawn.train.X[None], axis=2).min(1)
    assert gaps[found["near data"]].max() < gaps[found["in gaps"]].min()


def row(inside: int, seed: int, n: int = 1000, method: str = "geogp", crps: float = 1.0) -> dict:
    told = {name: {"n": n, "inside": inside, "crps": crps} for name in strata.STRATA}
    return {"world": "matern", "method": method, "rows": 600, "seed": seed, "strata": told, "quick": False}


def test_what_misses_by_more_than_it_may_and_than_its_error_is_marked() -> None:
    def words(*inside: int, n: int = 1000) -> str:
        return strata.covered([row(k, seed, n) for seed, k in enumerate(inside)], "inside")

    assert words(950, 950) == "95.0 ± 0.5"  # of 2,000 rows, alike in both fits: the binomial error
    assert words(930, 930) == "**93.0 ± 0.6**" and words(970, 970) == "**97.0 ± 0.4**"
    assert words(936, 936) == "93.6 ± 0.5"
    assert words(860, 1000) == "93.0 ± 4.9"  # two fits that differ that much say little
    assert words(90, n=100) == ""


def test_crps_is_compared_on_the_samples_that_all_have_seen() -> None:
    mine = [row(950, seed, crps=1.0) for seed in (0, 1)]
    knn = [row(950, seed, method="knn", crps=c) for seed, c in ((0, 2.0), (1, 2.0), (2, 9.0))]
    counts = [row(950, seed, method="knn-counts", crps=1.25) for seed in (0, 1, 2)]
    assert strata.ratio(mine, [knn, counts], "inside") == "0.80"
    assert strata.ratio(mine, [knn, []], "inside") == ""


def test_a_run_is_taken_in_parts_and_goes_on(tmp_path, capsys, monkeypatch) -> None:
    out = tmp_path / "strata.json"
    asked = ["--only", "matern", "--rows", "60", "--steps", "2", "--out", str(out), "--methods"]
    assert strata.main([*asked, "sv-rbf", "--seeds", "1"]) == 0
    assert "not a result" in capsys.readouterr().out
    assert strata.main([*asked, "sv-rbf", "--seeds", "2"]) == 0
    printed = capsys.readouterr()
    assert printed.err.count("matern sv-rbf 60 1") == 1 and "sv-rbf 60 0" not in printed.err
    assert "| matern | sv-rbf     | 2    |" in printed.out
    rows = json.loads(out.read_text())["rows"]
    assert [(r["method"], r["seed"]) for r in rows] == [
        (m, s) for s in (0, 1) for m in ("knn", "knn-counts", "sv-rbf")
    ]
    monkeypatch.setattr(strata, "measure", lambda **_: 1 / 0)
    assert strata.main([*asked, "sv-rbf", "--seeds", "2"]) == 0  # nothing is measured again
    assert strata.main([*asked, "sgpr", "--report"]) == 0
    assert strata.main([*asked, "nope"]) == 2
    assert "there is no method 'nope'; choose from" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:  # it measured nothing, and said that this was well
        strata.main([*asked, "sv-rbf", "--seeds", "-1"])
    assert stopped.value.code == 2 and "--seeds says how many, 1 or more; got -1" in capsys.readouterr().err
