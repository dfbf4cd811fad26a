"""Peers on a leaderboard beside our methods."""

import warnings
from pathlib import Path

import pytest

from app.errors import InvalidInput
from app.peers import PEERS, MissingPackage, Peer
from app.workflow import compare
from data_pipelines import synthetic
from data_pipelines.observations import ingest


@pytest.fixture(scope="module")
def observations(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    synthetic.write_world(folder / "world", size="small")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ingest(source="synthetic", root=folder / "world", output=folder / "obs.parquet").path


@pytest.mark.slow
def test_a_peer_stands_beside_ours_on_the_same_rows(observations: Path, compared_here):
    result = compare(
        observations, methods=["knn", "knn-counts", "dbk-silu"], split="random", model={"steps": 50}
    )
    rows = {row["method"]: row for row in result.document()["rows"]}
    assert set(rows) == {"knn", "knn-counts", "dbk-silu"}
    assert len({(row["n_test"], row["target_mean"], row["target_sd"]) for row in rows.values()}) == 1
    ours, theirs = rows["dbk-silu"], rows["knn"]
    assert set(ours) - {"certificate", "weights_sha256"} <= {*theirs, "peer"} and set(theirs) - set(ours) == {
        "peer"
    }
    assert set(ours["scores"]) == set(theirs["scores"]) and set(ours["strata"]) == set(theirs["strata"])
    assert theirs["scores_mbps"]["crps"] > 0
    assert len(result.rows()) == 3
    assert ours["spread"].startswith("student") and theirs["spread"] == "own"
    assert all(len(row) == len(result.header) for row in result.rows())


def test_a_missing_package_is_told_before_anything_is_fitted(observations: Path, monkeypatch):
    monkeypatch.setitem(PEERS, "absent", Peer("absent", "", "app.peers.nearest:fit", "a_package_nobody_has"))
    with pytest.raises(MissingPackage, match=r"geogp\[bench\]"):
        compare(observations, methods=["knn", "absent"], split="random")


def test_an_unknown_name_is_refused(observations: Path):
    with pytest.raises(ValueError, match="nobody"):
        compare(observations, methods=["nobody"], split="random")
    with pytest.raises(InvalidInput):
        compare(observations, methods=["knn"], split="none")
