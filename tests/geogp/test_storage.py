"""Runs on disk: whole or absent, hashed, without pickle, resumable to the same result."""

import errno
import hashlib
import itertools
import json
import math
import os
import stat
from pathlib import Path

import numpy as np
import pytest
import torch

import geogp
from geogp import InvalidInput, storage
from geogp.basis.train import Progress
from geogp.engines import Hooks
from geogp.run import save
from geogp.storage import (
    SUMS,
    folders,
    partial_folder,
    read_checkpoint,
    read_folder,
    read_sums,
    read_tensors,
    staging,
    update_facts,
    verify,
    write_checkpoint,
    write_folder,
    write_tensors,
)
from geogp.storage.files import finite, json_text, read_json, read_sealed, write_sealed

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


@pytest.mark.parametrize("method", ["dbk-rbf", "sgpr"])
def test_an_interrupted_fit_goes_on_to_the_same_result(method, tmp_path):
    small = {**SMALL, "method": method}
    arguments = {"method": "dbk-rbf", "seed": 0}
    seen = []

    def interrupt(state):
        write_checkpoint(tmp_path / "partial", state, arguments)
        seen.append(state["progress"].epoch)
        if len(seen) == 3:
            raise Stop

    validation = (X[:50], Y[:50], COUNTS[:50])
    whole = geogp.GPRegressor(**small).fit(X, Y, COUNTS, validation=validation)
    with pytest.raises(Stop):
        geogp.GPRegressor(**small).fit(X, Y, COUNTS, validation=validation, hooks=Hooks(checkpoint=interrupt))
    assert read_checkpoint(tmp_path / "partial", {**arguments, "seed": 1}) is None
    resume = read_checkpoint(tmp_path / "partial", arguments)
    assert resume is not None and resume["progress"].epoch == 3
    again = geogp.GPRegressor(**small).fit(X, Y, COUNTS, validation=validation, hooks=Hooks(resume=resume))
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


@pytest.mark.parametrize("best", [math.inf, 0.25])
def test_a_checkpoint_comes_back_as_it_was(tmp_path, best):
    """The score to beat, too, which is none before the first epoch that was scored."""
    progress = Progress(3, best, 1, {"w": torch.ones(1)}, [{"loss": 0.5, "score": None}])
    state = {
        "progress": progress,
        "model": {"w": torch.arange(3.0)},
        "optimiser": {"state": {0: {"step": torch.tensor(7.0)}, 11: {"exp_avg": torch.ones(1)}}, "param_groups": [{"lr": 0.1}]},
        "average": {"w": torch.zeros(1)},
    }  # fmt: skip
    write_checkpoint(tmp_path / "deep" / "partial", state, {"seed": 0})
    found = read_checkpoint(tmp_path / "deep" / "partial", {"seed": 0})
    assert found.keys() == state.keys() and found["progress"] == progress
    assert found["optimiser"] == state["optimiser"]
    assert torch.equal(found["model"]["w"], torch.arange(3.0)) and found["average"]["w"].tolist() == [0.0]


def written(tmp_path: Path) -> Path:
    """A run folder of two files and their sums."""
    facts = {"files": {}, "target": "value"}
    folder = tmp_path / "run"
    write_folder(folder, {"weights": {"w": torch.ones(3)}, "statistics/a": {"s": torch.zeros(2)}}, facts)
    return folder


def sums_of(folder: Path) -> list[str]:
    return (folder / SUMS).read_text().splitlines()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: [*lines[:1], "junk", *lines[1:]], r"line 2"),
        (lambda lines: [lines[0][1:], *lines[1:]], r"line 1"),
        (lambda lines: [*lines, lines[1]], r"line 4"),
        (lambda lines: [*lines, "0" * 64 + "  a\0b"], r"line 4"),
        (lambda lines: [*lines, "0" * 64 + "  ../a"], r"names '\.\./a', outside the run folder"),
        (lambda lines: [*lines, "0" * 64 + "  /etc/hostname"], r"names '/etc/hostname', outside"),
        (lambda lines: [line for line in lines if "weights" not in line], r"it lacks weights\.safetensors"),
        (lambda lines: [line for line in lines if "run.json" not in line], r"it lacks run\.json"),
    ],
)
def test_a_list_of_sums_that_was_changed_is_refused_by_its_line(tmp_path, change, words):
    folder = written(tmp_path)
    assert list(read_sums(folder)) == ["run.json", "statistics/a.safetensors", "weights.safetensors"]
    (folder / SUMS).write_text("\n".join(change(sums_of(folder))) + "\n")
    with pytest.raises(InvalidInput, match=f"{SUMS}.*{words}"):
        read_sums(folder)


def test_sums_that_are_no_text_are_refused(tmp_path):
    folder = written(tmp_path)
    (folder / SUMS).write_bytes(b"\xff\xfe\xff")
    with pytest.raises(InvalidInput, match=f"run/{SUMS} has changed .*no text"):
        read_sums(folder)


def test_a_line_taken_from_the_sums_is_named_with_what_became_of_its_file(tmp_path):
    """run.json knows the file: altered it is said to have changed, whole the list is said to lack it."""
    folder = written(tmp_path)
    (folder / SUMS).write_text("".join(f"{line}\n" for line in sums_of(folder) if "statistics" not in line))
    with pytest.raises(InvalidInput, match=rf"run/{SUMS} has changed .* it lacks statistics/a\.safetensors"):
        verify(folder)
    (folder / "statistics/a.safetensors").write_bytes(b"other")
    with pytest.raises(InvalidInput, match=r"statistics/a\.safetensors has changed since"):
        verify(folder)


def test_a_file_that_leads_elsewhere_is_refused_though_its_bytes_are_right(tmp_path):
    folder = written(tmp_path)
    outside = tmp_path / "weights.safetensors"
    (folder / "weights.safetensors").rename(outside)
    (folder / "weights.safetensors").symlink_to(outside)
    with pytest.raises(InvalidInput, match=r"weights\.safetensors leads out of the run folder"):
        verify(folder)


def test_files_that_are_not_there_or_cannot_be_read_are_named(tmp_path):
    for read, name in ((read_tensors, "w.safetensors"), (read_json, "a.json")):
        with pytest.raises(InvalidInput, match=rf"{name} is not there; copy the whole folder"):
            read(tmp_path / name)
    (tmp_path / "w.safetensors").write_bytes(b"no tensors")
    with pytest.raises(InvalidInput, match=r"w\.safetensors cannot be read \([^)]+.*\); copy it again"):
        read_tensors(tmp_path / "w.safetensors")
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(
        InvalidInput, match=r"a\.json is not JSON \(Expecting property name.*\); copy it again"
    ):
        read_json(tmp_path / "a.json")
    (tmp_path / "a.json").write_text("[1]")
    with pytest.raises(InvalidInput, match=r"a\.json holds a list where"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_tensors_are_shared_as_the_umask_allows_and_it_stays(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_tensors(tmp_path / "w.safetensors", {"w": torch.ones(2)})
        assert stat.S_IMODE((tmp_path / "w.safetensors").stat().st_mode) == 0o666 & ~mask
        assert os.umask(mask) == mask
    finally:
        os.umask(before)


def test_facts_of_numpy_and_paths_are_plain_json_and_others_are_refused():
    text = json_text({"n": np.int64(3), "x": np.float32(0.5), "where": Path("a/b"), "on": np.bool_(True)})
    assert json.loads(text) == {"n": 3, "x": 0.5, "where": "a/b", "on": True} and text.endswith("}\n")
    with pytest.raises(TypeError, match="set cannot go into"):
        json_text({"a": {1}})
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text({"a": math.nan})


def test_facts_stand_in_their_order_a_line_each():
    assert json_text({"b": 1, "a": [2]}) == '{\n "b": 1,\n "a": [\n  2\n ]\n}\n'


def test_what_a_library_says_of_a_file_is_short_and_printable(tmp_path, monkeypatch):
    def fails(path):
        raise ValueError("\x1b[2Jé" + "x" * 200 + "\nmore")

    monkeypatch.setattr("geogp.storage.files.load_file", fails)
    with pytest.raises(InvalidInput) as caught:
        read_tensors(tmp_path / "w.safetensors")
    assert "(?[2J?" + "x" * 115 + ")" in str(caught.value)


@pytest.mark.parametrize("text", ["[1]", "7", "{", "", '{"a": 2, "sha256": "0"}', '{"a": 2}', "[" * 100_000])
def test_a_sealed_document_is_what_was_sealed_or_nothing(tmp_path, text):
    """In whatever order its keys come."""
    path = tmp_path / "a.json"
    assert read_sealed(path) is None
    write_sealed(path, {"b": math.nan, "a": [1, {"d": 2.5, "c": "x"}]})
    whole = {"b": None, "a": [1, {"d": 2.5, "c": "x"}]}
    assert read_sealed(path) == whole
    path.write_text(json.dumps(dict(reversed(json.loads(path.read_text()).items()))))
    assert read_sealed(path) == whole
    path.write_text(path.read_text().replace("2.5", "2.4"))
    assert read_sealed(path) is None
    path.write_text(text)
    assert read_sealed(path) is None


def test_leftovers_of_a_fit_are_no_part_of_its_run(tmp_path):
    partial = partial_folder(tmp_path / "run")
    partial.mkdir()
    for name in ("checkpoint.safetensors", "checkpoint.json"):
        (partial / name).touch()
    folder = written(tmp_path)
    assert sorted(p.name for p in folder.iterdir()) == [SUMS, "run.json", "statistics", "weights.safetensors"]
    with pytest.raises(InvalidInput, match="exists"):
        written(tmp_path)


def test_a_run_that_changes_while_it_is_read_is_read_again_a_few_times(tmp_path, monkeypatch):
    """Once is no matter, and neither is a sum that does not fit then; for ever is said."""
    folder = written(tmp_path)
    whole, seen = folders._read(folder), itertools.count()

    def reads(changes: int, fails: bool):
        times, inodes = itertools.count(), iter(range(2 * changes))
        monkeypatch.setattr(folders, "_inode", lambda path: next(inodes, -1))

        def read(path):
            next(seen)
            if fails and next(times) < changes:
                raise InvalidInput("does not fit")
            return whole

        monkeypatch.setattr(folders, "_read", read)

    for fails in (False, True):
        reads(2, fails)
        assert read_folder(folder) is whole
    reads(50, False)
    before = next(seen)
    with pytest.raises(InvalidInput, match="changes all the time"):
        read_folder(folder)
    assert next(seen) - before - 1 == folders.TRIES
    reads(1, False)
    monkeypatch.setattr(folders, "_read", lambda path: (_ for _ in ()).throw(InvalidInput("for good")))
    with pytest.raises(InvalidInput, match="for good"):
        read_folder(folder)


def test_a_run_may_lie_deep_and_hold_files_that_lie_deeper(tmp_path):
    folder = tmp_path / "not" / "yet" / "run"
    write_folder(folder, {"weights": {"w": torch.ones(3)}, "statistics/deep/a": {"s": torch.zeros(2)}}, {})
    assert torch.equal(read_tensors(folder / "statistics" / "deep" / "a.safetensors")["s"], torch.zeros(2))
    assert read_folder(folder)[0]["w"].tolist() == [1.0, 1.0, 1.0]


def test_what_a_killed_writer_left_in_an_unfinished_run_is_no_part_of_it(tmp_path):
    """At any depth, where nothing is written either; that of a process at work is not touched before the folder is whole."""
    partial = partial_folder(tmp_path / "run")
    (partial / "statistics" / "of" / "once").mkdir(parents=True)
    for place in (partial, partial / "statistics", partial / "statistics" / "of" / "once"):
        (place / f".geogp-new-{staging._host()}-{2**22 + 1}-1-0a1b2c3d.weights.safetensors").touch()
    folder = written(tmp_path)
    assert {p.name for p in folder.rglob("*") if p.is_file()} == {
        SUMS,
        "run.json",
        "weights.safetensors",
        "a.safetensors",
    }


def test_a_full_disk_is_told_with_the_bytes_of_the_whole_run(tmp_path, monkeypatch):
    """Of all tensors and of what is said of them, whichever file met the end; a file alone tells its own."""
    facts = {"words": "x" * 10_000}
    tensors = {
        "weights": {"w": torch.ones(1000), "v": torch.ones(500, dtype=torch.float64)},
        "a": {"b": torch.ones(7)},
    }

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("geogp.storage.files.publish_file", full)
    with pytest.raises(storage.NoRoom, match=r"run could not be written") as caught:
        write_folder(tmp_path / "run", tensors, facts)
    assert caught.value.needed == 8028 + len(json_text(facts))
    with pytest.raises(storage.NoRoom) as caught:
        write_tensors(tmp_path / "w.safetensors", tensors["weights"])
    assert caught.value.needed == 8000 + 600  # its head takes some 200 bytes, and as many a tensor
    with pytest.raises(storage.NoRoom) as caught:
        storage.write_text(tmp_path / "a.txt", "häuser")
    assert caught.value.needed == 7


def test_what_cannot_be_finished_is_not_begun(tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "free_bytes", lambda place: 4000)
    monkeypatch.setattr("geogp.storage.files.staged", None)
    for write in (
        lambda: write_tensors(tmp_path / "w.safetensors", {"w": torch.ones(1000)}),
        lambda: storage.write_text(tmp_path / "a.txt", "x" * 4001),
    ):
        with pytest.raises(storage.NoRoom):
            write()


def test_tensors_that_do_not_come_back_have_no_name(tmp_path, monkeypatch):
    write_tensors(tmp_path / "w.safetensors", {"w": torch.ones(2)})
    monkeypatch.setattr("geogp.storage.files.load_file", lambda path: {"v": torch.ones(2)})
    with pytest.raises(OSError, match=r"w\.safetensors could not be read back"):
        write_tensors(tmp_path / "w.safetensors", {"w": torch.zeros(2)})
    monkeypatch.undo()
    assert read_tensors(tmp_path / "w.safetensors")["w"].tolist() == [1.0, 1.0]
    assert [p.name for p in tmp_path.iterdir()] == ["w.safetensors"]


def test_a_sum_is_that_of_all_bytes(tmp_path):
    data = np.random.default_rng(0).bytes(2**20 + 7)
    (tmp_path / "a").write_bytes(data)
    assert storage.sha256(tmp_path / "a") == hashlib.sha256(data).hexdigest()


def test_no_number_that_is_not_finite_goes_into_json():
    assert finite({"a": [math.nan, (1.0, -math.inf)], "b": "nan", "c": 3}) == {
        "a": [None, [1.0, None]],
        "b": "nan",
        "c": 3,
    }


@pytest.mark.parametrize(("changes", "times"), [(0, 1), (2, 3), (99, 5)])
def test_a_run_that_does_not_fit_is_read_again_only_where_it_has_changed(
    tmp_path, monkeypatch, changes, times
):
    """And the words are those of what does not fit."""
    inodes, read = iter(range(2 * changes)), []
    monkeypatch.setattr(folders, "_inode", lambda path: next(inodes, -1))

    def fails(path):
        read.append(path)
        raise InvalidInput(f"does not fit, {len(read)}")

    monkeypatch.setattr(folders, "_read", fails)
    with pytest.raises(InvalidInput, match=f"does not fit, {times}"):
        read_folder(tmp_path)
    assert len(read) == times
