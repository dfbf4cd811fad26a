"""`geogp evaluate` and `geogp compare`: the JSON that scripts hold on to, and numbers checked by another way."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from app.workflow.rows import read_rows
from app.workflow.scoring import pooled
from app.workflow.steps.compare import Comparison
from app.workflow.steps.evaluate import Evaluation
from data_pipelines.splits import PARTS
from geogp import storage
from geogp.predictive import Predictive
from geogp.run import load
from geogp.scores import score, score_strata

ROW = {
    "method", "target", "split", "n_train", "n_test", "fit_seconds", "peak_rss_mb", "target_mean", "target_sd",
    "scores", "scores_mbps", "strata",
}  # fmt: skip
SCORES = {
    "nll",
    "crps",
    "mae",
    "rmse",
    "interval_score95",
    "coverage50",
    "coverage80",
    "coverage95",
    "width95",
}


@pytest.fixture(scope="module")
def document(run):
    from app.workflow import evaluate

    return evaluate(run).document


def test_the_document_has_the_promised_shape(cli, run):
    result = cli("evaluate", run, "--json")
    assert result.code == 0 and result.err == ""
    document = json.loads(result.out)
    assert document["schema"] == 1 and set(document) >= ROW
    assert set(document["scores"]) == SCORES and set(document["scores_mbps"]) == {"mae", "crps"}
    assert set(document["strata"]) == {"urban", "rural", "near", "far"}
    for stratum in document["strata"].values():
        assert stratum["judged"] == (stratum["n"] >= 500)
        if stratum["n"]:
            assert set(stratum) >= SCORES and len(stratum["coverage95_band"]) == 2
    assert load(run).facts["scores"] == document


def test_the_certificate_says_what_was_promised_and_kept(cli, run, table):
    """Recounted with quantiles of the normal; in the document, in the run, and as a table of 80 columns."""
    document = json.loads(cli("evaluate", run, "--json").out)
    certificate = document["certificate"]
    assert storage.read_document(run, "certificate.json") == certificate
    assert (certificate["split"], certificate["part"], certificate["n"]) == (
        "random",
        "test",
        document["n_test"],
    )
    assert certificate["levels"] == [0.5, 0.8, 0.95]
    groups = certificate["groups"]
    assert {"all", "urban", "rural", "near", "far"} < set(groups)
    assert sum(g["n"] for name, g in groups.items() if name.startswith("tests")) == certificate["n"]
    loaded, rows = load(run), read_rows(table, "download")
    test = loaded.tensors("split")["part"].numpy() == 2
    assert groups["tests 2-4"]["n"] == int(((rows.counts >= 2) & (rows.counts <= 4) & test).sum())
    mean, sd = loaded.model.predict(rows.X[test], return_std=True, counts=rows.counts[test])
    miss = np.abs(rows.t[test] - mean) / sd
    for name, mask in (("all", np.ones(len(miss), bool)), ("urban", rows.urban[test])):
        for k, level in enumerate((0.5, 0.8, 0.95)):
            share = (miss[mask] <= norm.ppf(0.5 + level / 2)).mean()
            assert groups[name]["achieved"][k] == pytest.approx(share, abs=1e-12)
            low, high = groups[name]["band"][k]
            assert low <= level <= high
            assert groups[name]["within"][k] is None and not groups[name]["judged"]
    lines = cli("evaluate", run).out.splitlines()
    assert max(map(len, lines)) <= 80 and any("Calibration certificate" in line for line in lines)


def test_validation_rows_certify_nothing_for_good(cli, run, tmp_path):
    """They may have calibrated the run: shown, not stored."""
    import shutil

    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    before = (copy / "certificate.json").read_text() if (copy / "certificate.json").exists() else ""
    document = json.loads(cli("evaluate", copy, "--part", "val", "--json").out)
    assert document["certificate"]["part"] == "val"
    assert ((copy / "certificate.json").read_text() if before else "") == before


def test_groups_outside_their_band_are_marked():
    from app.workflow.certifying import certify, short, table, words
    from geogp.predictive import Predictive

    rng = np.random.default_rng(0)
    t = rng.standard_normal(2000)
    document = certify(
        Predictive(np.zeros(2000), np.full(2000, 0.7)),
        t,
        {"few": np.arange(2000) < 20},
        split="block",
        part="test",
        far_m=1,
    )
    _, header, rows, notes = table(document)
    assert len(header) == len(rows[0]) == 8 and rows[0][2].endswith("*") and rows[1][1] == "(20)"
    assert any(note.startswith("*") for note in notes) and any("too few to judge" in note for note in notes)
    said = words(document)
    assert "block" in said and "2,000 held-out rows" in said and "few" in said and "of 20" in said
    assert set(short(document)) == {"split", "part", "n", "levels", "groups"}


def test_the_table_is_data_on_stdout(cli, run):
    result = cli("evaluate", run)
    assert result.code == 0 and result.err == ""
    for word in (
        "NLL",
        "CRPS",
        "coverage95",
        "urban",
        "rural",
        "near",
        "far",
        "too few",
        "tests 2-4",
        "chance",
    ):
        assert word in result.out


def test_scores_follow_their_definitions(document, run, table):
    """Recomputed from means and sds with scipy alone, on z."""
    loaded, rows = load(run), read_rows(table, "download")
    test = loaded.tensors("split")["part"].numpy() == 2
    train = loaded.tensors("split")["part"].numpy() == 0
    t = np.log10(rows.table.column("download_mbps").to_numpy() * 1000)
    mean, sd = t[train].mean(), t[train].std()
    assert document["target_mean"] == pytest.approx(mean) and document["target_sd"] == pytest.approx(sd)
    tests = rows.table.column("tests").to_numpy()[test].astype(float)
    location, scale = loaded.model.predict(rows.X[test], return_std=True, counts=tests)
    z, m, s = (t[test] - mean) / sd, (location - mean) / sd, scale / sd
    u = (z - m) / s
    crps = s * (u * (2 * norm.cdf(u) - 1) + 2 * norm.pdf(u) - 1 / np.sqrt(np.pi))
    expected = {
        "nll": -norm.logpdf(z, m, s).mean(),
        "crps": crps.mean(),
        "mae": np.abs(z - m).mean(),
        "rmse": np.sqrt(((z - m) ** 2).mean()),
        "coverage95": (np.abs(u) <= norm.ppf(0.975)).mean(),
        "width95": (2 * norm.ppf(0.975) * s).mean(),
    }
    for name, value in expected.items():
        assert document["scores"][name] == pytest.approx(value, rel=1e-6), name
    speed = rows.table.column("download_mbps").to_numpy()[test]
    assert document["scores_mbps"]["mae"] == pytest.approx(
        np.abs(10 ** (location - 3) - speed).mean(), rel=1e-9
    )


def test_strata_are_what_they_say(document, run, table):
    loaded, rows = load(run), read_rows(table, "download")
    part = loaded.tensors("split")["part"].numpy()
    test, train = rows.X[part == 2, :2], rows.X[part == 0, :2]
    nearest = np.sqrt(((test[:, None] - train[None]) ** 2).sum(-1)).min(1)
    assert document["strata"]["far"]["n"] == int((nearest > 1000).sum())
    assert document["strata"]["near"]["n"] == int((nearest <= 1000).sum())
    assert document["strata"]["urban"]["n"] == int(rows.urban[part == 2].sum())
    assert document["n_test"] == len(test)


def test_crps_in_mbit_per_s_agrees_with_sampling():
    """2 E|X - y| - E|X - X'| by a million draws, for a log-normal."""
    from geogp.predictive import Predictive

    rng = np.random.default_rng(0)
    P = Predictive(np.array([4.9]), np.array([0.3]))
    draws = 10 ** (rng.normal(4.9, 0.3, 1_000_000) - 3)
    y = np.array([5.1])
    expected = np.abs(draws - 10**2.1).mean() - 0.5 * np.abs(draws - draws[::-1]).mean()
    assert P.crps_of(lambda t: 10 ** (t - 3), y)[0] == pytest.approx(expected, rel=5e-3)


def test_without_labels_the_strata_are_absent(cli, table, world_folder, world, tmp_path):
    out = tmp_path / "obs.parquet"
    line = ("ingest", "--root", world_folder, "--states", world.states_file(world_folder), "--region", "HY")
    assert cli(*line, "--quarters", "2022Q1..2023Q4", "-o", out).code == 0
    fit = ("fit", out, "--method", "dbk-silu", "--rank", 8, "--hidden", 8, "--epochs", 2, "--split", "block")
    assert cli(*fit, "-o", tmp_path / "run").code == 0
    document = json.loads(cli("evaluate", tmp_path / "run", "--json").out)
    assert set(document["strata"]) == {"near", "far"}
    assert document["strata"]["far"]["n"] > 0


def test_nothing_held_out_is_a_sentence(cli, table, tmp_path):
    fit = (
        "fit",
        table,
        "--method",
        "dbk-silu",
        "--rank",
        8,
        "--hidden",
        8,
        "--epochs",
        2,
        "-o",
        tmp_path / "run",
    )
    assert cli(*fit).code == 0
    result = cli("evaluate", tmp_path / "run")
    assert result.code == 3 and "none" in result.err and "--split" in result.err


def test_moved_or_changed_observations(cli, run, table, tmp_path, monkeypatch):
    import shutil

    copy = tmp_path / "copy.parquet"
    shutil.copy(table, copy)
    assert json.loads(cli("evaluate", run, "--data", copy, "--json").out)["n_test"] > 0
    copy.write_bytes(copy.read_bytes() + b" ")
    changed = cli("evaluate", run, "--data", copy)
    assert changed.code == 3 and "SHA-256" in changed.err
    gone = cli("evaluate", run, "--data", tmp_path / "nowhere.parquet")
    assert gone.code == 3 and "nowhere.parquet" in gone.err


def test_a_spoilt_run_is_refused(cli, run, tmp_path):
    import shutil

    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    weights = copy / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    result = cli("evaluate", copy)
    assert result.code == 3 and "weights.safetensors" in result.err
    assert cli("evaluate", tmp_path / "nowhere").code == 3


def test_compare_ranks_methods_on_one_split(cli, table, tmp_path, compared_here):
    line = ("compare", table, "--methods", "dbk-silu,sv-rbf", "--split", "random", "--set", "epochs=4")
    result = cli(*line, "--set", "rank=32", "--set", "hidden=16", "--json", "-o", tmp_path / "runs")
    assert result.code == 0, result.err
    document = json.loads(result.out)
    assert document["schema"] == 1 and {r["method"] for r in document["rows"]} == {"dbk-silu", "sv-rbf"}
    for row in document["rows"]:
        assert set(row) >= ROW and row["fit_seconds"] > 0 and row["peak_rss_mb"] > 100
    nll = [row["scores"]["nll"] for row in document["rows"]]
    assert nll == sorted(nll)
    assert len({row["n_test"] for row in document["rows"]}) == 1
    assert {p.name for p in (tmp_path / "runs").iterdir()} == {"dbk-silu", "sv-rbf", "compare.json"}
    assert json.loads((tmp_path / "runs" / "compare.json").read_text())["rows"] == document["rows"]
    again = cli(*line, "-o", tmp_path / "runs")
    assert again.code == 3 and "--overwrite" in again.err


@pytest.mark.parametrize(
    ("options", "status", "fragment"),
    [
        (("--methods", "dbk-silu", "--split", "none"), 3, "holds nothing out"),
        (("--methods", "dbk-silly", "--split", "random"), 2, "dbk-silly"),
        (("--methods", "dbk-silu", "--split", "weekly"), 3, "weekly"),
    ],
)
def test_compare_refuses_with_a_sentence(options, status, fragment, cli, table):
    result = cli("compare", table, *options)
    assert result.code == status and fragment in result.err and len(result.err.strip().splitlines()) == 1


def test_compare_in_folds_scores_every_row_once(cli, table, tmp_path, compared_here):
    line = (
        "compare",
        table,
        "--methods",
        "sv-rbf",
        "--split",
        "kfold2",
        "--set",
        "epochs=1",
        "--set",
        "rank=8",
    )
    result = cli(*line, "--json", "-o", tmp_path / "runs")
    assert result.code == 0, result.err
    (row,) = json.loads(result.out)["rows"]
    runs = [load(tmp_path / "runs" / "sv-rbf" / f"fold{i}of2") for i in (1, 2)]
    tested = [run.tensors("split")["part"].numpy() == PARTS.index("test") for run in runs]
    assert (tested[0] ^ tested[1]).all() and row["folds"] == 2 and row["split"] == "kfold2"
    scores = [run.scores for run in runs]
    assert row["n_test"] == sum(s["n_test"] for s in scores)
    crps = np.average([s["scores"]["crps"] for s in scores], weights=[s["n_test"] for s in scores])
    assert row["scores"]["crps"] == pytest.approx(crps)


def test_scores_of_folds_pool_to_those_of_all_rows():
    rng = np.random.default_rng(0)
    y, sd = rng.normal(size=90), rng.uniform(0.5, 2.0, 90)
    law, scale = Predictive(np.zeros(90), sd), {"target_mean": 0.1, "target_sd": 1.5}
    groups = {"near": sd < 1.5, "far": sd >= 1.5}

    def document(rows):
        part = law.rows(rows)
        about = dict.fromkeys(("schema", "method", "target", "part", "refit", "spread", "center"), "")
        scores = score(part, y[rows], **scale, bounds=(-3, 3))
        strata = score_strata(part, y[rows], {k: m[rows] for k, m in groups.items()}, **scale, bounds=(-3, 3))
        more = {
            "n_train": 9,
            "fit_seconds": 1.0,
            "peak_rss_mb": 5.0,
            "scores_native": {**scores, "unit": "ms"},
        }
        return {**about, **more, **scale, "n_test": len(rows), "scores": scores, "strata": strata}

    whole, parts = document(np.arange(90)), [document(np.arange(20)), document(np.arange(20, 90))]
    found = pooled(parts, "kfold2")
    assert found["scores"] == pytest.approx(whole["scores"]) and found["fit_seconds"] == 2.0
    for name in groups:
        band = found["strata"][name].pop("coverage95_band")
        assert band == whole["strata"][name].pop("coverage95_band")
        assert found["strata"][name] == pytest.approx(whole["strata"][name])
    assert pooled([whole], "random") is whole


def test_few_rows_are_said_to_be_few():
    def caution(n, split):
        return Comparison("download", split, (Evaluation(Path(), {"n_test": n}),)).caution()

    assert "Compared on 16 rows" in caution(16, "random") and "--split kfold" in caution(16, "random")
    assert "--split kfold" not in caution(100, "kfold") and caution(400, "random") == ""
