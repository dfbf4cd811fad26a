"""Runs on disk: whole or absent, hashed, without pickle, resumable to the same result."""

import json

import numpy as np
import pytest
import torch

import geogp
from geogp import storage
from geogp.engines import Hooks
from geogp.run import save
from geogp.storage import (
    folders,
    partial_folder,
    read_checkpoint,
    staging,
    update_facts,
    write_checkpoint,
)

rng = np.random.default_rng(0)
X = rng.uniform(0, 10_000, (300, 2))
Y = np.sin(X[:, 0] / 2000) + 0.2 * rng.standard_normal(300)
COUNTS = rng.integers(1, 50, 300).astype(float)
SMALL = {"method": "dbk-rbf", "rank": 16, "hidden": 16, "epochs": 6, "batch_size": 64}


@pytest.fixture(scope="module")
def model():
    return geogp.GPRegressor(**SMALL).fit(X, Y, COUNTS)


def test_a_run_comes_back_as_it_was(tmp_path, model):
    run = save(tmp_path / "run", model, {"target": "value"})
    before = model.predict(X[:9], return_std=True, counts=3.0)
    after = run.model.predict(X[:9], return_std=True, counts=3.0)
    np.testing.assert_array_equal(before, after)
    assert run.facts["target"] == "value"
    assert not partial_folder(tmp_path / "run").exists()
    assert {p.suffix for p in (tmp_path / "run").rglob("*") if p.is_file()} <= {".json", ".safetensors", ""}


def test_an_existing_run_is_refused_and_replaced_only_on_request(tmp_path, model):
    save(tmp_path / "run", model, {"target": "value", "note": 1})
    with pytest.raises(geogp.InvalidInput, match="exists; give another -o, or --overwrite"):
        save(tmp_path / "run", model, {"target": "value", "note": 2})
    assert geogp.load(tmp_path / "run").facts["note"] == 1
    assert save(tmp_path / "run", model, {"target": "value", "note": 2}, overwrite=True).facts["note"] == 2
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("name", ["weights.safetensors", "run.json"])
def test_an_altered_file_is_named(tmp_path, model, name):
    save(tmp_path / "run", model, {"target": "value"})
    file = tmp_path / "run" / name
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(geogp.InvalidInput, match=f"{name} has changed since it was written"):
        geogp.load(tmp_path / "run")


def test_a_missing_or_unfinished_run_is_named(tmp_path, model):
    with pytest.raises(geogp.InvalidInput, match="is not a run folder"):
        geogp.load(tmp_path / "nothing")
    save(tmp_path / "run", model, {"target": "value"})
    (tmp_path / "run" / "weights.safetensors").unlink()
    with pytest.raises(geogp.InvalidInput, match=r"lacks weights\.safetensors"):
        geogp.load(tmp_path / "run")


def test_sums_that_point_outside_are_not_followed(tmp_path, model):
    save(tmp_path / "run", model, {"target": "value"})
    with open(tmp_path / "run" / "SHA256SUMS", "a") as f:
        f.write("0" * 64 + "  ../secret\n")
    with pytest.raises(geogp.InvalidInput, match="outside the run folder"):
        geogp.load(tmp_path / "run")


def test_scores_can_be_added_without_breaking_the_hashes(tmp_path, model):
    save(tmp_path / "run", model, {"target": "value"})
    update_facts(tmp_path / "run", {"scores": {"nll": 1.0}})
    assert geogp.load(tmp_path / "run").facts["scores"] == {"nll": 1.0}


def test_a_killed_change_leaves_the_run_as_it_was(tmp_path, model, monkeypatch):
    save(tmp_path / "run", model, {"target": "value"}, extra={"statistics/2023Q4": {"a": torch.zeros(2)}})
    (tmp_path / "link").symlink_to("run")
    for place, step in ((folders, "write_text"), (folders, "write_sums"), (staging, "swap")):
        with monkeypatch.context() as patch:
            patch.setattr(place, step, lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                update_facts(tmp_path / "run", {"scores": {}}, documents={"certificate.json": {}})
        assert "scores" not in geogp.load(tmp_path / "run").facts
        assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "run"]
    update_facts(
        tmp_path / "link", {"scores": {}}, documents={"certificate.json": {"groups": {"a": float("nan")}}}
    )
    run = geogp.load(tmp_path / "run")
    assert run.facts["scores"] == {} and (tmp_path / "link").is_symlink()
    assert storage.read_document(run.path, "certificate.json") == {"groups": {"a": None}}
    assert storage.read_document(run.path, "nothing.json") is None
    assert torch.equal(run.tensors("statistics/2023Q4")["a"], torch.zeros(2))
    assert "certificate.json" in (tmp_path / "run" / "SHA256SUMS").read_text()


@pytest.mark.parametrize("at_once", [True, False])
def test_two_folders_swap_names(tmp_path, monkeypatch, at_once):
    if not at_once:  # a system without renameat2
        monkeypatch.setattr(staging.ctypes, "CDLL", lambda *a, **k: object())
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    storage.swap(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a" / "b").exists() and (tmp_path / "b" / "a").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


class Stop(Exception):
    """Raised by the test in the middle of a fit."""


def test_an_interrupted_fit_goes_on_to_the_same_result(tmp_path):
    arguments = {"method": "dbk-rbf", "seed": 0}
    seen = []

    def interrupt(state):
        write_checkpoint(tmp_path / "partial", state, arguments)
        seen.append(state["progress"].epoch)
        if len(seen) == 3:
            raise Stop

    validation = (X[:50], Y[:50], COUNTS[:50])
    whole = geogp.GPRegressor(**SMALL).fit(X, Y, COUNTS, validation=validation)
    with pytest.raises(Stop):
        geogp.GPRegressor(**SMALL).fit(X, Y, COUNTS, validation=validation, hooks=Hooks(checkpoint=interrupt))
    assert read_checkpoint(tmp_path / "partial", {**arguments, "seed": 1}) is None
    resume = read_checkpoint(tmp_path / "partial", arguments)
    assert resume is not None and resume["progress"].epoch == 3
    again = geogp.GPRegressor(**SMALL).fit(X, Y, COUNTS, validation=validation, hooks=Hooks(resume=resume))
    for a, b in zip(whole.state()[0].values(), again.state()[0].values()):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_a_checkpoint_cut_between_its_two_files_counts_as_absent(tmp_path):
    states = []
    geogp.GPRegressor(**SMALL).fit(X, Y, hooks=Hooks(checkpoint=states.append))
    write_checkpoint(tmp_path / "partial", states[-1], {"seed": 0})
    facts = json.loads((tmp_path / "partial" / "checkpoint.json").read_text())
    facts["tensors_sha256"] = "0" * 64
    (tmp_path / "partial" / "checkpoint.json").write_text(json.dumps(facts))
    assert read_checkpoint(tmp_path / "partial", {"seed": 0}) is None
    assert read_checkpoint(tmp_path / "nowhere", {"seed": 0}) is None
