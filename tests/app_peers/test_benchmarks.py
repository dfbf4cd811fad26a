"""The benchmark harness: its held-out rule, its tables, its command line. Nothing here is timed."""

import re

import numpy as np
import pytest

import geogp
from benchmarks import (
    accuracy,
    cases,
    clouds,
    maps,
    page,
    sizes,
    slices,
    small,
    speed,
    tables,
    targets,
    timings,
)
from benchmarks.cases import CASES, Problem
from benchmarks.measure import known
from data_pipelines import synthetic
from geogp.predictive import Predictive


def grid(width: int = 60, height: int = 40) -> np.ndarray:
    x, y = np.meshgrid(np.arange(width) * 900.0, np.arange(height) * 900.0)
    return np.column_stack([x.ravel(), y.ravel()])


def test_clouds_move_by_a_seeded_rule_and_keep_their_shape():
    X = grid()
    cloudy = (np.hypot(X[:, 0] - 9e3, X[:, 1] - 9e3) < 8e3) | (X[:, 0] > 45_000)
    seen, hidden = X[~cloudy], X[cloudy]
    held = clouds.moved_mask(seen, hidden, seed=0)
    assert clouds.SHARE[0] <= held.mean() <= clouds.SHARE[1]
    np.testing.assert_array_equal(held, clouds.moved_mask(seen, hidden, seed=0))
    assert (held != clouds.moved_mask(seen, hidden, seed=3)).any()
    order = np.random.default_rng(0).permutation(len(seen))
    np.testing.assert_array_equal(held[order], clouds.moved_mask(seen[order], hidden, seed=0))


def test_strips_and_the_warmest_region_lie_beyond_the_rest():
    rows, columns = np.meshgrid(np.arange(40.0), np.arange(60.0))
    X = 1000.0 * np.column_stack([rows.ravel(), columns.ravel()])
    nothing = np.zeros((0, 2))
    east = clouds.strip_mask(X, nothing, axis=0, side=1, width=10)
    assert east.mean() == 0.25 and X[east, 0].min() > X[~east, 0].max()
    south = clouds.strip_mask(X, nothing, axis=1, side=0, width=15)
    assert south.mean() == 0.25 and X[south, 1].max() < X[~south, 1].min()
    rng = np.random.default_rng(0)
    y = -np.hypot(X[:, 0] - 30_000, X[:, 1] - 10_000) / 1000 + 0.5 * rng.standard_normal(len(X))
    warm = clouds.warmest_mask(X, nothing, y, blur=2.0)
    assert 0.15 < warm.mean() <= 0.22
    assert y[warm].mean() > y[~warm].mean() + 10


def test_mirrored_clouds_hide_what_lies_opposite():
    X = grid()
    cloudy = (X[:, 0] < 9_000) & (X[:, 1] < 5_000)
    middle = (X.min(0) + X.max(0)) / 2
    for name, signs in (("east-west", (-1, 1)), ("north-south", (1, -1)), ("rotated", (-1, -1))):
        opposite = middle + (X - middle) * signs
        expected = ((opposite[:, 0] < 9_000) & (opposite[:, 1] < 5_000))[~cloudy]
        assert expected.any()
        np.testing.assert_array_equal(clouds.MASKS[name](X[~cloudy], X[cloudy]), expected)


def test_published_scores_of_a_perfect_gaussian():
    rng = np.random.default_rng(0)
    y = rng.normal(size=20_000)
    s = clouds.published_scores(Predictive(np.zeros(len(y)), np.ones(len(y))), y)
    assert s["mae"] == pytest.approx(np.sqrt(2 / np.pi), abs=0.02)
    assert s["crps"] == pytest.approx(1 / np.sqrt(np.pi), abs=0.02)
    assert s["cvg"] == pytest.approx(0.95, abs=0.006)


def row(case: str, method: str, ours: bool, nll: float, crps: float, coverage: float = 0.95) -> dict:
    scores = {"nll": nll, "crps": crps, "mae": 0.5, "rmse": 0.8, "coverage95": coverage, "width95": 3.0}
    return {
        "case": case, "method": method, "ours": ours, "quick": False, "n_train": 10, "n_validation": 0, "n_test": 5,
        "fit_seconds": 20.0, "predict_seconds": 1.0, "cpu_seconds": 30.0, "peak_rss_mb": 400.0, "scores": scores,
        "strata": {"far": {"n": 900, "judged": True, "coverage95": 0.91}, "near": {"n": 9, "judged": False, "coverage95": 0.1}},
        "published": {"mae": 0.6, "rmse": 0.83, "crps": crps, "int": 3.5, "cvg": coverage},
    }  # fmt: skip


def test_the_report_says_what_holds_and_who_is_ahead():
    case = "hawaii-fixed-download-block"
    rows = [row(case, "geogp", True, 0.99, 0.46), row(case, "lightgbm-quantiles-counts", False, 0.95, 0.47)]
    text = "\n".join(tables.report(rows))
    assert "**geogp**" in text and "far 91.0%" in text and "near" not in text.split("far 91.0%")[1][:20]
    assert "geogp nll 0.99, target <= 1.04: holds" in text
    assert "geogp crps 0.46, target <= 0.445: FALLS SHORT" in text
    assert "geogp nll 0.040 BEHIND the best peer, lightgbm-quantiles-counts" in text
    assert "geogp crps 0.010 ahead of the best peer" in text


def test_a_section_says_at_a_glance_who_is_ahead_and_what_no_choice_was_made_on():
    case = "guam-fixed-download-block"
    rows = [
        row(case, "geogp", True, 0.91, 0.46),
        row(case, "knn-counts", False, 0.95, 0.47),
        row(case, "lightgbm-quantiles-counts", False, 0.97, 0.44),
        row("heaton-satellite-rotated", "geogp", True, 0.1, 0.72),
        row("heaton-satellite-rotated", "gpboost-vecchia", False, 0.1, 0.75),
        row("no-such-case", "geogp", True, 0.1, 0.72),
    ]
    lines = tables.report(rows)
    assert [line for line in lines if line.startswith("## ")] == [
        "## Regions nobody tuned on", "## Fields with gaps"
    ]  # fmt: skip
    assert any("No choice was made on these tables" in line for line in lines)
    glance = next(line for line in lines if line.startswith("| Guam, fixed network, download, block split"))
    cells = [cell.strip() for cell in glance.split("|")[1:-1]]
    assert cells[1:] == [
        "5", "0.910", "0.950 knn-counts", "0.460", "0.440 lightgbm-quantiles-counts", "95.0%", "far 91.0%"
    ]  # fmt: skip
    # Ahead in NLL alone is not ahead; a field with gaps is no split.
    assert [line for line in lines if "is ahead of every peer" in line] == [
        "geogp is ahead of every peer in both scores on 0 of 1 block splits. In NLL it is on 1, in CRPS on 0 of 1."
    ]
    won = tables.report([row("guam-fixed-download-forward", "geogp", True, 0.9, 0.4), *rows[:3],
                         row("guam-fixed-download-forward", "knn-counts", False, 1.0, 0.5)])  # fmt: skip
    both = "geogp is ahead of every peer in both scores on 0 of 1 block splits, 1 of 1 forward splits."
    assert f"{both} In NLL it is on 2, in CRPS on 1 of 2." in won
    turned = [line for line in lines if line.startswith("| satellite, clouds turned by 180 degrees")]
    assert [line.split("|")[3].strip() for line in turned] == ["**geogp**", "gpboost-vecchia"]


def test_of_some_sections_one_row_a_table_is_shown():
    case = "guam-mobile-download-block"
    lines = tables.report([row(case, "geogp", True, 0.91, 0.46), row(case, "knn-counts", False, 0.95, 0.47)])
    assert "## Their other quantities" in lines and not [line for line in lines if line.startswith("### ")]
    assert any(line.startswith("| Guam, mobile network, download, block split") for line in lines)


def test_the_same_rows_of_other_regions_are_held_out_every_time(tmp_path, monkeypatch):
    world = synthetic.write_world(tmp_path / "ookla-open-data", size="small")
    monkeypatch.setenv("GEOGP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cases, "QUARTERS", f"{world.quarters[0]}..{world.quarters[-1]}")
    monkeypatch.setitem(cases.ELSEWHERE, "guam", ("Halcyon", (-145.0, 32.0, -140.0, 36.0)))
    first, again = (CASES["guam-fixed-download-block"].load(tmp_path) for _ in range(2))
    assert first.time == 2 and set(first.strata) == {"near", "far"} and len(first.test[1]) > 10
    for one, other in zip(
        (first.train, first.validation, first.test), (again.train, again.validation, again.test)
    ):
        np.testing.assert_array_equal(one[0], other[0])
    with pytest.raises(cases.Absent, match="type=fixed is not in the data folder"):
        CASES["guam-fixed-download-block"].load(tmp_path / "nowhere")


def test_uci_rows_are_averaged_over_splits():
    rows = [row(f"uci-pol-{k}", "dbk-rbf", True, -3.5 + 0.1 * k, 0.014) for k in range(3)]
    text = "\n".join(tables.report(rows))
    assert "-3.4000" in text and "dbk-rbf nll -3.4, target <= -3.3: holds" in text and "DBK paper" in text


def test_published_results_stand_beside_ours():
    text = "\n".join(tables.report([row("heaton-satellite", "geogp", True, 0.1, 0.7)]))
    assert "SPDE (published)" in text and "seconds 21, target <= 60: holds" in text


def test_every_target_belongs_to_a_case_and_every_peer_is_known():
    assert set(targets.TARGETS) <= set(CASES) and {case.section for case in CASES.values()} == set(
        cases.SECTIONS
    )
    assert {name.rpartition("-")[0] for name in CASES if name.startswith("uci-")} == set(targets.UCI_TARGETS)
    assert known("geogp") and known("knn") and not known("nobody")


def part_of_readme(heading: str) -> str:
    text = (page.FOLDER.parent / "README.md").read_text(encoding="utf-8")
    return text.split(f"## {heading}")[1].split("## ")[0]


def test_the_readmes_figures_are_those_that_were_printed():
    """Each cell of its table, from the kept results; and the command beside it names cases that there are."""
    text = part_of_readme("How good it is")
    names = {
        "`geogp`": "geogp",
        "LightGBM that sees what the neighbours measured": "lightgbm-neighbours",
        "LightGBM, quantiles, counts as a feature": "lightgbm-quantiles-counts",
        "LightGBM, mean and variance, counts as a feature": "lightgbm-mean-variance-counts",
        "GPBoost, Vecchia": "gpboost-vecchia",
        "nearest neighbours, noise by count": "knn-counts",
    }
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| |")]
    assert len(rows) == len(names)
    held = {(r["case"], r["method"]): r["scores"] for r in page.read(page.RESULTS)["rows"]}
    for words, method in names.items():
        line = next(line for line in text.splitlines() if line.startswith(f"| {words} |"))
        for said, split in zip(line.split("|")[2:5], ("random", "block", "forward")):
            s = held[f"hawaii-fixed-download-{split}", method]
            nll, crps = (f"{s[k]:.3f}".removeprefix("0") for k in ("nll", "crps"))
            assert said.strip() == f"{nll} / {crps}, {100 * s['coverage95']:.1f}%"
    asked = re.search(r"benchmarks\.accuracy --only (\S+)", text)
    assert asked and sum(asked[1] in case for case in CASES) == 3
    assert (
        "`splits/hawaii_fixed.parquet`" in text
    )  # the rows are those of this file, not of the built-in rule


def test_the_readme_counts_the_regions_other_quantities_as_they_were_printed():
    rows = page.read(page.RESULTS)["rows"]
    lines = tables.report(rows)
    lines = lines[lines.index("## Their other quantities") :]
    tally = next(line for line in lines if line.startswith("geogp is ahead of every peer"))
    random, n, block, _, forward, _, nll, crps, cases_in_all = re.findall(r"\d+", tally)
    mine = [r for r in rows if CASES[r["case"]].section == "Their other quantities"]
    held = {r["case"]: r for r in mine if r["method"] == "geogp"}
    lost = max(held[r["case"]]["scores"]["crps"] - r["scores"]["crps"] for r in mine)
    sizes = [r["n_test"] for r in held.values()]
    said = (
        f"On {cases_in_all} more, those regions' uploads, latencies and mobile networks ({min(sizes)} to {max(sizes):,} rows held out, "
        f"nothing was tried on them), it is ahead in NLL on {nll} and in CRPS on {crps}: on {random} of {n} random splits, "
        f"{forward} of {n} forward, {block} of {n} by blocks, where one peer or another gains up to {lost:.3f}.".replace(
            "0.", "."
        )
    )
    assert said in " ".join(part_of_readme("How good it is").split())


def test_the_readmes_speeds_are_those_that_were_printed():
    text = part_of_readme("How fast it is")
    kept = (page.FOLDER / "SPEED.md").read_text(encoding="utf-8")
    cells = {cell.strip() for line in kept.splitlines() if line.startswith("|") for cell in line.split("|")}
    told = [line.split("|")[1:4] for line in text.splitlines() if line.startswith("| ")][1:]
    figures = [f for row in told for cell in row[1:] for f in re.findall(r"[\d.,]*\d", cell)]
    assert len(told) == 11 and len(figures) == 30 and set(figures) <= cells
    rows = {f for work, _, _ in told for f in re.findall(r"\d[\d,]*(?= rows)", work)}
    assert rows == {"100,000", "1,000,000", "10,000,000", "16,000", "7,000,000"} and rows <= cells


def test_each_section_of_the_speed_benchmark_has_its_function():
    assert set(speed.SECTIONS) == set(timings.SECTIONS)


def test_thinning_keeps_rows_together():
    X = np.arange(300.0).reshape(100, 3)
    part = (X, X[:, 0], X[:, 0] + 1.0)
    small = Problem(part, part, part, {"some": X[:, 0] > 100}).thinned(20, 10)
    assert len(small.train[1]) == 20 and len(small.test[1]) == 10
    np.testing.assert_array_equal(small.strata["some"], small.test[1] > 100)
    np.testing.assert_array_equal(small.train[0][:, 0] + 1.0, small.train[2])


def test_without_data_there_is_one_clear_line(monkeypatch, capsys):
    monkeypatch.delenv("GEOGP_DATA", raising=False)
    assert accuracy.main(["--only", "hawaii"]) == 0
    assert "GEOGP_DATA" in capsys.readouterr().err


def test_cases_whose_data_are_absent_are_skipped_by_name(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("GEOGP_DATA", str(tmp_path))
    assert accuracy.main(["--only", "uci-pol-0", "--methods", "knn", "--out", str(tmp_path / "r.json")]) == 0
    assert "uci/pol.parquet is not in the data folder" in capsys.readouterr().err


def test_cases_and_methods_are_listed(capsys):
    assert accuracy.main(["--list"]) == 0
    assert "heaton-satellite: geogp" in capsys.readouterr().out


def test_slices_look_at_an_urban_a_rural_and_a_wild_place():
    rng = np.random.default_rng(0)
    town = rng.uniform(0, 5_000, (200, 2))
    land = rng.uniform([20_000, 0], [40_000, 40_000], (200, 2))
    X = np.column_stack([np.vstack([town, land]), np.full(400, 2023.0)])
    urban = np.arange(400) < 200
    counts = np.where(np.arange(400) == 17, 500.0, 3.0)
    places = slices.places_of(X, counts, urban)
    assert (places["urban"] == X[17]).all()
    assert any((places["rural"] == x).all() for x in X[200:])
    distance = np.linalg.norm(X[:, :2] - places["wild"][:2], axis=1).min()
    assert abs(distance - slices.WILD_M) < 500
    model = geogp.GPRegressor("sv-rbf", spatial=(0, 1), time=2, epochs=2, rank=16).fit(X, X[:, 0])
    c = slices.correlation(model, places["rural"])
    middle = slices.PIXELS // 2
    assert c[middle, middle] == pytest.approx(1.0, abs=1e-4) and (np.abs(c) <= 1 + 1e-4).all()


def test_each_section_of_the_map_benchmark_asks_for_work_there_is():
    for section in maps.SECTIONS.values():
        for quick in (False, True):
            for _, name, *arguments in section(1e4, quick):
                assert name in maps.WORK and arguments
    header, rows = maps._table(
        [{"section": "a", "what": "x", "n": 12345, "mse": 0.12345}, {"what": "y", "n": 2}]
    )
    assert header == ["what", "n", "mse"] and rows == [["x", "12,345", "0.123"], ["y", "2", ""]]


def test_a_promise_is_held_against_a_known_surface(tmp_path, monkeypatch):
    """Few rows: what is said of the map's variance is of the size of its error, and a place suggested is none at random."""
    monkeypatch.setattr(maps, "PLACES", 150)
    row = maps.kept_promises(tmp_path, "matern", 0, 120, 8)
    assert row["variance_said"] / row["mse_before"] == pytest.approx(1.0, abs=0.6)
    assert 0.0 < row["promised"] < 1.0 and row["achieved"] != row["at_random"]


def test_small_surveys_are_told_fold_by_fold(tmp_path, monkeypatch, capsys):
    """Of a made-up survey by the methods themselves: nobody sees the fold that is judged, and the best stand in bold."""
    rng = np.random.default_rng(0)
    (tmp_path / "small").mkdir()
    x, y, z = rng.uniform(0, 1e3, 60), rng.uniform(0, 1e3, 60), rng.normal(size=60)
    value = 10 + np.sin(x / 200) + 2 * z + 0.1 * rng.normal(size=60)
    value[7] = np.nan
    rows = "\n".join(f"{a},{b},{c},{d}" for a, b, c, d in zip(x, y, z, value))
    (tmp_path / "small" / "s.csv").write_text(f"x,y,z,v\n{rows}\n".replace("nan", ""))
    monkeypatch.setenv("GEOGP_DATA", str(tmp_path))
    monkeypatch.setattr(
        small,
        "SURVEYS",
        {
            "plain": small.Survey("Plain", "s.csv", ("x", "y"), "v"),
            "known": small.Survey("Known", "s.csv", ("x", "y"), "v", ("z",)),
            "away": small.Survey("Away", "none.csv", ("x", "y"), "v"),
        },
    )
    monkeypatch.setattr(small, "FOLDS", 3)
    seen = []

    def spied(X, y, new):
        seen.append(set(map(tuple, X)) & set(map(tuple, new)))
        return small.scikit_learn(X, y, new)

    monkeypatch.setattr(small, "METHODS", {"geogp": small.ours, "scikit-learn GP": spied})
    assert small.main(["--out", str(tmp_path / "out.json")]) == 0
    printed = capsys.readouterr()
    assert "away: not in the data folder" in printed.err and not any(seen) and len(seen) == 6
    rows = {(row["case"], row["method"]): row for row in page.read(tmp_path / "out.json")["rows"]}
    assert len(rows) == 4 and {row["rows"] for row in rows.values()} == {59}
    for method in small.METHODS:
        assert rows["known", method]["mae"] < 0.5 * rows["plain", method]["mae"]
        assert 0.8 <= rows["plain", method]["coverage"] <= 1.0
    best = min(rows["known", method]["mae"] for method in small.METHODS)
    assert f"**{best:.4g}**" in printed.out
    assert small.main(["--only", "nowhere"]) == 2


def _measured(ms: float, rate: float) -> dict:
    rows = [
        {
            "what": "dbk-silu",
            "h": 64,
            "r": 128,
            "ms a step": ms,
            "pixels/s": rate,
            "GFLOP": ms,
            "peak GFLOP/s": rate,
        }
    ]
    machine = {"processor": "one", "cores": 2, "threads": "1"}
    return {"machine": machine, "device": "cpu", "sections": {"training": {"rows": rows, "peak_rss_mb": 1.0}}}


def test_what_is_slower_than_an_earlier_run_by_more_than_a_tenth_is_named():
    before = _measured(10.0, 1000.0)
    assert speed.slower(before, _measured(10.9, 920.0)) == []
    assert speed.slower(before, _measured(5.0, 5000.0)) == []
    said = speed.slower(before, _measured(12.0, 800.0))
    assert said == [
        "training: dbk-silu, h 64, r 128: ms a step 10 then, 12 now",
        "training: dbk-silu, h 64, r 128: pixels/s 1,000 then, 800 now",
    ]


def test_a_run_of_another_machine_says_so_and_a_row_that_is_new_is_no_news():
    now = _measured(10.0, 1000.0)
    now["machine"]["processor"] = "another"
    now["sections"]["fields"] = now["sections"]["training"]
    assert speed.slower(_measured(10.0, 1000.0), now) == ["Not like for like: another processor."]


def test_fits_of_several_sizes_are_measured_in_processes_of_their_own(capfd):
    X, y, counts = sizes.country(800)
    assert X.shape == (800, 3) and len(y) == len(counts) == 800
    assert len(np.unique(X[:, :2], axis=0)) == 100 and len(np.unique(X[:, 2])) == sizes.QUARTERS
    assert sizes.main(["--rows", "0,40"]) == 1
    told = capfd.readouterr()
    assert [line.split("|")[1].strip() for line in told.out.splitlines() if "--" not in line] == [
        "rows",
        "40",
    ]
    assert "0 rows: " in told.err
