"""`geogp demo`: the whole way, on the small world in every run and on the real one where time allows."""

import json
import os
import shlex

import pytest

import app.workflow.steps.demo
from app.workflow.steps.demo import demo


def check_manifest(path):
    import hashlib

    manifest = json.loads(path.read_text())
    assert manifest["schema"] == 1
    paths = [entry["path"] for entry in manifest["files"]]
    assert len(paths) == len(set(paths))
    for entry in manifest["files"]:
        content = (path.parent / entry["path"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == entry["sha256"]
    assert {"cog", "netcdf", "figure", "html", "run", "geoparquet"} <= {
        entry["kind"] for entry in manifest["files"]
    }
    return manifest


@pytest.mark.filterwarnings("ignore::geogp.errors.NotDistanceAware")
def test_the_small_demo_makes_everything_and_says_how_to_get_its_table_of_counties(
    cli, tmp_path, monkeypatch
):
    said = []
    result = demo(tmp_path / "demo", size="small", method="dbk-silu", say=said.append)
    manifest = check_manifest(result.path)
    assert set(manifest["checks"]) == {"coverage95", "median_correlation"}
    assert set(manifest["truth"]) >= {"median_correlation", "noise_sd_correlation", "noise_sd_rmse_log10"}
    assert manifest["truth"]["median_correlation"] > 0.5
    assert len(said) >= 6 and len(result.rows()) > 10
    failed = [name for name, check in manifest["checks"].items() if not check["passed"]]
    assert len(result.problems) == len(failed)

    monkeypatch.setattr(app.workflow.steps.demo, "demo", lambda *a, **k: result)
    lines = cli("demo", "--out", result.folder).err.splitlines()
    line = next(line for line in lines if "geogp areas" in line).partition("geogp ")[2]
    monkeypatch.chdir(tmp_path)
    table = cli(*shlex.split(line), "--samples", "20")
    assert table.code == 0 and "Port Amity" in table.out and "8 areas" in table.err, table.err
    assert (tmp_path / "counties.csv").exists()


def test_a_folder_in_use_is_refused(cli, tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    result = cli("demo", "--out", tmp_path)
    assert result.code == 3 and str(tmp_path) in result.err and "--overwrite" in result.err
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("coverage", "correlation", "words"), [(0.90, 0.9, "coverage|90.0%"), (0.95, 0.5, "correlates 0.50")]
)
def test_a_poor_demo_fails_after_saying_where_its_manifest_is(
    coverage, correlation, words, cli, tmp_path, monkeypatch
):
    from app.workflow.steps.demo import Demo, _checks

    checks = _checks({"scores": {"coverage95": coverage}}, {"median_correlation": correlation})
    monkeypatch.setattr(app.workflow.steps.demo, "demo", lambda *a, **k: Demo(tmp_path, {"checks": checks}))
    result = cli("demo", "--out", tmp_path, "-q")
    assert result.code == 1
    assert result.out == f"{(tmp_path / 'manifest.json').resolve()}\n"
    assert any(word in result.err for word in words.split("|"))


@pytest.mark.slow
@pytest.mark.skipif(
    os.environ.get("GEOGP_DEMO") != "whole", reason="two minutes: make test-demo; the small one always runs"
)
def test_the_demo(shell, tmp_path):
    result = shell("demo", "--out", tmp_path / "demo", timeout=280)  # one of two cores is another test's
    assert result.code == 0, result.err
    assert result.out == f"{(tmp_path / 'demo' / 'manifest.json').resolve()}\n"
    manifest = check_manifest(tmp_path / "demo" / "manifest.json")
    assert 0.93 <= manifest["scores"]["coverage95"] <= 0.97
    assert manifest["truth"]["median_correlation"] >= 0.8
