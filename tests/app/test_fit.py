"""`geogp fit`: what the run holds, what is refused, and that a kill costs nothing but time."""

import json
import multiprocessing
import os
import shutil
import signal
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.cli import main
from app.workflow.rows import read_rows
from data_pipelines import geoparquet
from data_pipelines.observations import read
from data_pipelines.splits import PARTS, make_split
from geogp import storage
from geogp.basis.capacity import Capacity
from geogp.engines import asked as planning
from geogp.run import load
from tests.faults.limiting import one_thread

TINY = ("--rank", "32", "--hidden", "32", "--epochs", "20")
LONG = ("--method", "dbk-silu", "--split", "random", "--rank", "16", "--hidden", "16", "--epochs", "90")


def test_the_run_says_what_was_done(run, table):
    loaded = load(run)
    facts = loaded.facts
    assert (facts["method"], facts["target"], facts["split"], facts["seed"]) == (
        "dbk-silu",
        "download",
        "random",
        0,
    )
    assert facts["data"]["sha256"] == storage.sha256(table) and facts["data"]["path"] == str(table)
    assert facts["data"]["last_quarter"] == "2023Q4" and "LAMBERT" in facts["data"]["crs"].upper()
    assert facts["data"]["boundary"]["type"] in ("Polygon", "MultiPolygon")
    assert facts["arguments"]["model"] == {"rank": 32, "hidden": 32, "epochs": 20}
    assert facts["fit_seconds"] > 0 and facts["peak_rss_mb"] > 100
    assert {"python", "torch", "geogp"} <= set(facts["versions"])
    rows = read_rows(table, "download")
    part = make_split(rows.table, "random", 0)
    stored = loaded.tensors("split")["part"].numpy()
    assert stored.dtype == np.int8 and [PARTS[i] for i in stored] == part.tolist()
    train = rows.usable & (part == "train")
    assert facts["rows"]["fitted"] == facts["rows"]["train"] == int(train.sum())
    # validation and test rows are never conditioned on: scaling and support come from train rows alone
    assert loaded.model.target_mean_ == pytest.approx(rows.t[train].mean(), abs=1e-12)
    assert loaded.model.target_sd_ == pytest.approx(rows.t[train].std(), abs=1e-12)
    assert len(loaded.tensors("support")["positions_m"]) == len(rows.places_m(train))
    assert not [p for p in run.rglob("*") if p.suffix in (".pkl", ".pickle", ".pt")]


def test_fit_speaks_one_line_and_nothing_on_stdout(cli, table, tmp_path):
    result = cli("fit", table, "--method", "sv-rbf", "--split", "forward", *TINY, "-o", tmp_path / "run")
    assert result.code == 0 and result.out == ""
    said = [line for line in result.err.splitlines() if ": warning: " not in line]
    assert len(said) == 1 and "rows fitted" in said[0] and "test" in said[0]


def test_same_seed_same_run(cli, table, run, tmp_path):
    again = tmp_path / "again"
    assert cli("fit", table, "--method", "dbk-silu", "--split", "random", *TINY, "-o", again).code == 0
    assert (again / "weights.safetensors").read_bytes() == (run / "weights.safetensors").read_bytes()
    other = tmp_path / "other"
    assert (
        cli("fit", table, "--method", "dbk-silu", "--split", "random", "--seed", 1, *TINY, "-o", other).code
        == 0
    )
    assert (other / "weights.safetensors").read_bytes() != (run / "weights.safetensors").read_bytes()


def test_settings_come_from_a_file_and_the_line(cli, table, tmp_path):
    config = tmp_path / "run.toml"
    config.write_text('method = "dbk-silu"\nsplit = "block"\n[model]\nrank = 16\nhidden = 16\nepochs = 3\n')
    line = ("fit", table, "--config", config, "--set", "noise=constant", "--rank", 24, "-o", tmp_path / "run")
    assert cli(*line).code == 0
    facts = load(tmp_path / "run").facts
    assert facts["split"] == "block"
    assert facts["arguments"]["model"] == {"rank": 24, "hidden": 16, "epochs": 3, "noise": "constant"}


def test_a_finished_run_is_refused_unless_overwritten(cli, table, run):
    before = (run / "run.json").read_bytes()
    result = cli("fit", table, *TINY, "-o", run)
    assert result.code == 3 and str(run) in result.err and "--overwrite" in result.err
    assert (run / "run.json").read_bytes() == before


@pytest.mark.parametrize("target", ["upload", "latency", "tests"])
def test_every_target(target, cli, table, tmp_path):
    out = tmp_path / "run"
    assert (
        cli(
            "fit", table, "--target", target, "--method", "dbk-silu", "--split", "random", *TINY, "-o", out
        ).code
        == 0
    )
    document = json.loads(cli("evaluate", out, "--json").out)
    assert document["target"] == target and np.isfinite(document["scores"]["nll"])
    assert (document["scores_mbps"] is None) == (target in ("latency", "tests"))
    assert load(out).facts["model"]["shape"]["has_counts"] == (target != "tests")


def test_unusable_rows_are_counted_by_cause_and_only_for_their_target(cli, table, tmp_path):
    """Zero, negative and missing speeds drop a download; a bad latency, or a missing count, drops none."""
    observations, metadata = read(table)
    columns = {
        name: observations.column(name).to_pylist() for name in ("download_mbps", "latency_ms", "tests")
    }
    columns["download_mbps"][:5] = [0.0, -3.0, None, 0.0, float("nan")]
    columns["latency_ms"][10:20] = [None] * 10
    columns["tests"][20:24] = [None, 0, None, 0]
    for name, values in columns.items():
        i = observations.column_names.index(name)
        observations = observations.set_column(
            i, observations.schema.field(i), pa.array(values, observations.schema.field(i).type)
        )
    spoilt = tmp_path / "obs.parquet"
    rows = observations.drop_columns(["geometry", "bbox"])
    geoparquet.write_parts([rows], lambda: metadata, spoilt, overwrite=False)
    out = tmp_path / "run"
    result = cli("fit", spoilt, "--method", "dbk-silu", "--split", "random", *TINY, "-o", out)
    assert result.code == 0 and "null download" in result.err and "nonpositive download" in result.err
    rows = load(out).facts["rows"]
    assert rows["dropped"] == {"null_download": 2, "nonpositive_download": 3}
    assert rows["counted_as_one"] == 4 and "with a count of 0 or none, taken as one test" in result.err
    assert rows["train"] + rows["val"] + rows["test"] == observations.num_rows - 5


def test_refit_conditions_on_validation_rows_and_says_so(cli, table, tmp_path):
    out = tmp_path / "run"
    line = (
        "fit",
        table,
        "--method",
        "dbk-silu",
        "--split",
        "random",
        "--refit",
        "train+val",
        *TINY,
        "-o",
        out,
    )
    assert cli(*line).code == 0
    facts = load(out).facts
    assert facts["refit"] == "train+val" and facts["refit_epochs"] >= 1
    assert (
        facts["rows"]["fitted"] == facts["rows"]["train"] + facts["rows"]["val"] == facts["model"]["n_rows"]
    )
    document = json.loads(cli("evaluate", out, "--json").out)
    assert document["n_train"] == facts["rows"]["fitted"] and document["refit"] == "train+val"


@pytest.mark.parametrize("method", ["dbk-rbf", "dnn"])
def test_a_refit_keeps_what_validation_rows_taught_of_the_variances(cli, table, tmp_path, method):
    line = ("fit", table, "--method", method, "--split", "random", *TINY[:-1], 8)
    assert cli(*line, "-o", tmp_path / "train").code == 0
    assert cli(*line, "--refit", "train+val", "-o", tmp_path / "both").code == 0
    first, both = (load(tmp_path / name).model.engine_ for name in ("train", "both"))
    assert both.plan is not first.plan and both.taught() == first.taught() != {}
    if method == "dbk-rbf":
        assert both.facts["factors"]["noise"] != 1.0 and both.model.factors == first.model.factors


def test_a_refit_keeps_the_scales_that_validation_rows_had_a_say_in(cli, table, tmp_path, monkeypatch):
    asked = []

    def choose(*args, **keywords):
        asked.append(keywords["asked"])
        return Capacity((1.0, 4.0), {"rows": 1.0}, ({"fourier_scales": [1.0, 4.0], "rows": 1.0},))

    monkeypatch.setattr(planning, "TRIALS_WORTH", 0)
    monkeypatch.setattr(planning, "choose_capacity", choose)
    line = ("fit", table, "--method", "dbk-silu", "--split", "random", "--refit", "train+val", *TINY)
    assert cli(*line, "--set", "fourier_scales=auto", "-o", tmp_path / "run").code == 0
    facts = load(tmp_path / "run").facts
    assert len(asked) == 1 and asked[0]["rows"] > 0.5
    assert facts["model"]["fourier_scales"] == facts["refit_capacity"]["fourier_scales"] == [1.0, 4.0]
    assert facts["refit_capacity"]["scores"] == [{"fourier_scales": [1.0, 4.0], "rows": 1.0}]


def test_a_split_from_a_file(cli, table, tmp_path):
    observations, _ = read(table)
    keys = observations.select(["quadkey", "quarter"]).slice(0, 1000)
    labels = np.resize(["train", "train", "train", "val", "test"], 1000)
    path = tmp_path / "split.parquet"
    pq.write_table(keys.append_column("mine", pa.array(labels)), path)
    out = tmp_path / "run"
    line = ("fit", table, "--method", "dbk-silu", *TINY, "-o", out)
    assert cli(*line, "--split", f"{path}:mine").code == 0
    rows = load(out).facts["rows"]
    assert (rows["train"], rows["val"], rows["test"]) == (600, 200, 200)
    assert rows["unused"] == observations.num_rows - 1000
    missing = cli(*line, "--split", f"{path}:yours", "--overwrite")
    assert missing.code == 3 and "yours" in missing.err


BAD = {
    "no file": ("nowhere.parquet", [], "nowhere.parquet"),
    "not parquet": ("page.parquet", [], "page.parquet"),
    "not ours": ("other.parquet", [], "geogp ingest"),
    "unknown split": (None, ["--split", "weekly"], "weekly"),
    "no such target": (None, ["--target", "value"], "value"),
    "unknown setting": (None, ["--set", "ranks=3"], "ranks"),
    "wrong value": (None, ["--set", "rank=many"], "many"),
    "no config": (None, ["--config", "nowhere.toml"], "nowhere.toml"),
    "no such device": (None, ["--device", "tpu"], "tpu"),
}


@pytest.mark.parametrize("case", list(BAD))
def test_bad_input_is_one_sentence_and_leaves_nothing(case, cli, table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.parquet").write_text("<html>404</html>")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    before = sorted(os.listdir(tmp_path))
    file, options, fragment = BAD[case]
    result = cli("fit", file or table, *options, "-o", tmp_path / "run")
    assert result.code == 3
    assert fragment in result.err and len(result.err.strip().splitlines()) == 1 and result.out == ""
    assert sorted(os.listdir(tmp_path)) == before


def test_a_column_that_is_gone_is_named(cli, table, tmp_path):
    observations, _ = read(table)
    for name in ("download_mbps", "easting_m"):
        path = tmp_path / f"{name}.parquet"
        pq.write_table(observations.drop_columns([name]), path)
        result = cli("fit", path, "-o", tmp_path / "run")
        assert result.code == 3 and name.split("_")[0] in result.err


# ---- interruption --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def unbroken(table, tmp_path_factory):
    """The weights of an uninterrupted fit."""
    out = tmp_path_factory.mktemp("unbroken") / "run"
    assert main(["fit", str(table), *LONG, "-o", str(out), "-q"]) == 0
    return (out / "weights.safetensors").read_bytes()


def speak(line, said):
    """A command in a forked process, which has imported what it needs."""
    one_thread()
    with open(said, "w") as told:
        os.dup2(told.fileno(), 2)
        sys.stderr = told
        sys.exit(main(line))


def start(table, out, said):
    """A fit in a process of its own, some epochs in; what it says on stderr is written to a file."""
    line = ["fit", str(table), *LONG, "--checkpoint-every", "0", "-o", str(out)]
    process = multiprocessing.get_context("fork").Process(target=speak, args=(line, said))
    process.start()
    checkpoint = storage.partial_folder(out) / "checkpoint.json"
    while True:  # however slow the machine is; pytest's own limit ends it
        if not process.is_alive():
            pytest.fail(f"the fit ended before it could be interrupted: {said.read_text()}")
        try:
            if json.loads(checkpoint.read_text())["progress"]["epoch"] >= 5:
                return process
        except (OSError, ValueError, KeyError):
            pass
        time.sleep(0.005)


def test_a_killed_fit_goes_on_to_the_same_result(cli, table, unbroken, tmp_path):
    out = tmp_path / "run"
    process = start(table, out, tmp_path / "said")
    process.kill()
    process.join()
    assert not out.exists() and storage.partial_folder(out).is_dir()
    result = cli("fit", table, *LONG, "-o", out)
    assert result.code == 0 and "went on from epoch" in result.err
    assert (out / "weights.safetensors").read_bytes() == unbroken
    assert not storage.partial_folder(out).exists()
    storage.verify(out)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 4), (signal.SIGINT, 130)])
def test_a_signal_is_answered_with_a_sentence(number, status, table, tmp_path):
    out, said = tmp_path / "run", tmp_path / "said"
    process = start(table, out, said)
    os.kill(process.pid, number)
    process.join(60)
    words = said.read_text()
    assert process.exitcode == status
    assert "the same command goes on from epoch" in words
    assert "Traceback" not in words and not out.exists()


def test_a_time_limit_leaves_a_fit_to_go_on_with(cli, table, unbroken, tmp_path):
    out = tmp_path / "run"
    result = cli("fit", table, *LONG, "-o", out, "--time-limit", "0")
    assert result.code == 4 and "goes on" in result.err and not out.exists()
    assert cli("fit", table, *LONG, "-o", out).code == 0
    assert (out / "weights.safetensors").read_bytes() == unbroken


def test_other_arguments_begin_anew(cli, table, tmp_path):
    out = tmp_path / "run"
    assert cli("fit", table, *LONG, "-o", out, "--time-limit", "0").code == 4
    result = cli("fit", table, "--method", "dbk-silu", *TINY, "-o", out)
    assert result.code == 0 and "went on" not in result.err
    assert sorted(p.name for p in out.iterdir()) == sorted(
        [
            "SHA256SUMS",
            "run.json",
            "split.safetensors",
            "statistics",
            "support.safetensors",
            "weights.safetensors",
        ]
    )


def test_two_fits_do_not_share_a_folder(cli, table, tmp_path):
    import fcntl

    out = tmp_path / "run"
    partial = storage.partial_folder(out)
    partial.mkdir()
    with open(partial / ".lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        result = cli("fit", table, *TINY, "-o", out)
    assert result.code == 3 and "Another fit" in result.err
    shutil.rmtree(partial)


def test_a_refit_local_field_knows_the_validation_rows_and_keeps_what_they_taught(
    cli, table, tmp_path, kernels_in_parts
):
    line = (
        "fit",
        table,
        "--method",
        "local-gp",
        "--split",
        "forward",
        "--set",
        "options={n_targets=300, steps=12, epochs=3, neighbours=24, metric=false}",
        "-q",
    )
    assert cli(*line, "-o", tmp_path / "chosen").code == 0
    assert cli(*line, "--refit", "train+val", "-o", tmp_path / "both").code == 0
    chosen, both = (load(tmp_path / name) for name in ("chosen", "both"))
    rows = both.facts["rows"]
    assert rows["fitted"] == rows["train"] + rows["val"] == both.facts["model"]["n_rows"]
    one, other = chosen.model.engine_.field, both.model.engine_.field
    assert len(other.seen.value) == rows["fitted"] and len(one.seen.value) == rows["train"]
    assert one.gp.kernel.log_variance.equal(other.gp.kernel.log_variance)
    assert one.calibration == other.calibration
    # The noise is held where it learned, though the field now knows later quarters.
    assert other.known.learned_until == one.known.learned_until == one.known.latest < other.known.latest
    document = json.loads(cli("evaluate", tmp_path / "both", "--json").out)
    before = json.loads(cli("evaluate", tmp_path / "chosen", "--json").out)
    assert document["n_train"] == rows["fitted"] and document["refit"] == "train+val"
    assert document["scores"]["crps"] < before["scores"]["crps"] + 0.02


@pytest.mark.parametrize("method", [
    (),
    ("--method", "dbk-silu", *TINY[:-1], "5", "--set", "residual=local"),
    ("--method", "gp-averaged", "--refit", "train+val"),
])  # fmt: skip
def test_a_fit_in_parts_keeps_a_time_limit_and_goes_on_to_the_same_result(cli, table, tmp_path, method):
    few = (
        "steps=1"
        if "gp-averaged" in method
        else "n_targets=300, steps=4, epochs=2, neighbours=24, metric=false"
    )
    line = ("fit", table, *method, "--set", f"options={{{few}}}", "-q")
    assert cli(*line, "-o", tmp_path / "whole").code == 0
    out = tmp_path / "run"
    result = cli(*line, "-o", out, "--time-limit", "0")
    assert result.code == 4 and "goes on" in result.err and not out.exists()
    assert cli(*line, "-o", out).code == 0
    assert (out / "weights.safetensors").read_bytes() == (
        tmp_path / "whole" / "weights.safetensors"
    ).read_bytes()
