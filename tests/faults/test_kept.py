"""What commands keep for themselves (checkpoints, notes, journals, caches) is as it was written, or counts as absent."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from app.caches import DiskCache
from app.cli import main
from app.workflow.steps.report import _leaderboard
from app.workflow.steps.reproduce import reproduce
from data_pipelines import download
from data_pipelines.errors import InvalidInput as InvalidFolder
from data_pipelines.synthetic.folder import load_world
from geogp import InvalidInput, storage
from geogp.reproduce.journal import keeping, once
from geogp.storage.files import read_json, read_sealed, write_sealed

#: JSON of other kinds than an object, and what is no JSON or none that can be read.
ODD = {
    "list": b"[1, 2]",
    "number": b"3",
    "text": b'"epoch"',
    "null": b"null",
    "empty": b"",
    "half": b'{"arguments": {"see',
    "no text": b"\xff\xfe\x00\xff",
    "deep": b"[" * 200_000,
    "huge number": b'{"seed": 1e999, "size": "small"}',
}


@pytest.fixture(params=ODD)
def odd(request) -> bytes:
    return ODD[request.param]


def test_sealed_facts_come_back_or_are_none(tmp_path, odd) -> None:
    file = tmp_path / "facts.json"
    assert read_sealed(file) is None
    write_sealed(file, {"epoch": 12, "best": float("inf"), "by": {3: 0.1}})
    assert read_sealed(file) == {"epoch": 12, "best": None, "by": {"3": 0.1}}
    whole = file.read_bytes()
    for altered in (whole.replace(b"12", b"13"), whole.replace(b"epoch", b"epoca"), odd):
        file.write_bytes(altered)
        assert read_sealed(file) is None


def test_a_run_says_which_of_its_files_holds_no_object(tmp_path, odd) -> None:
    (tmp_path / "run.json").write_bytes(odd)
    if odd.startswith(b"{") and odd.endswith(b"}"):
        assert read_json(tmp_path / "run.json")["size"] == "small"
    else:
        with pytest.raises(InvalidInput, match=r"run\.json (is not JSON|holds a)"):
            read_json(tmp_path / "run.json")


@pytest.mark.parametrize("which", ["checkpoint.json", "unfinished.json"])
def test_a_fit_whose_kept_facts_are_odd_or_altered_is_an_unbroken_one(table, tmp_path, which) -> None:
    """To the last bit: an epoch that was altered would make another model without a word."""
    settings = ["--method", "dbk-rbf", "--epochs", "4", "--set", "rank=8", "--set", "hidden=8", "-q"]
    line = ["fit", str(table), *settings, "--checkpoint-every", "0", "-o"]
    assert main([*line, str(tmp_path / "unbroken")]) == 0
    unbroken, out = (tmp_path / "unbroken" / "weights.safetensors").read_bytes(), tmp_path / "run"
    altered = (b'"epoch": ', b'"epoch": 1'), (b'"seconds": ', b'"seconds": 1')
    for change in (lambda text: b"[1, 2]", lambda text: text.replace(*altered[0]).replace(*altered[1])):
        assert main([*line, str(out), "--time-limit", "0"]) == 4
        kept = storage.partial_folder(out) / which
        whole = kept.read_bytes()
        kept.write_bytes(change(whole))
        assert kept.read_bytes() != whole and main([*line, str(out)]) == 0
        assert (out / "weights.safetensors").read_bytes() == unbroken
        storage.staging.remove(out)


def test_a_journal_keeps_whole_lines_alone(tmp_path, odd) -> None:
    journal = tmp_path / "a.part.jsonl"

    def measured(value: float) -> float:
        with keeping(journal):
            return once({"seed": 0}, lambda: {"nll": value})["nll"]

    assert measured(0.5) == measured(9.0) == 0.5
    whole = journal.read_bytes()
    journal.write_bytes(odd + whole + odd + b"\n" + odd)
    assert measured(9.0) == 0.5
    journal.write_bytes(whole.replace(b"0.5", b"0.6") + odd)
    assert measured(0.7) == measured(9.0) == 0.7


def test_an_earlier_reproduction_that_is_none_is_not_given_back(tmp_path, monkeypatch, odd) -> None:
    """Neither one whose rows are not as long as its head."""
    (tmp_path / "softki-table1.json").write_bytes(odd)
    with pytest.raises(InvalidInput, match="exists"):
        reproduce("softki-table1", tmp_path, keep=True)
    short = {"name": "a", "columns": ["n", "paper n"], "rows": [[1]], "settings": {"quick": False, "seed": 0}}
    (tmp_path / "softki-table1.json").write_text(json.dumps(short))
    with pytest.raises(InvalidInput, match="exists"):
        reproduce("softki-table1", tmp_path, keep=True)
    (tmp_path / "softki-table1.json").write_text(json.dumps(short | {"rows": [[1, 2]]}))
    assert reproduce("softki-table1", tmp_path, keep=True)["rows"] == [[1, 2]]


def test_a_note_of_the_cache_is_as_it_was_written_or_none(tmp_path, odd) -> None:
    disk = DiskCache(tmp_path)
    disk.write_note("run", "legend.json", {"low": 12})
    assert disk.note("run", "legend.json") == {"low": 12}
    file = tmp_path / "run" / "legend.json"
    for altered in (file.read_bytes().replace(b"12", b"13"), odd):
        file.write_bytes(altered)
        assert disk.note("run", "legend.json") is None
    disk.write("run", "legend.json", b"[" * 200_000)  # with a right sum
    assert disk.note("run", "legend.json") is None


def test_a_leaderboard_that_is_none_is_one_sentence(tmp_path, odd) -> None:
    (tmp_path / "compare.json").write_bytes(odd)
    run = SimpleNamespace(path=tmp_path / "run", model=SimpleNamespace(method="geogp"))
    with pytest.raises(InvalidInput, match="is not what `geogp compare --json` prints"):
        _leaderboard(run, tmp_path / "compare.json")


def test_a_world_whose_mark_is_odd_is_refused(tmp_path, odd) -> None:
    (tmp_path / "truth.json").write_bytes(odd)
    with pytest.raises(InvalidFolder, match="no complete synthetic world"):
        load_world(tmp_path)


def test_what_the_downloads_keep_of_themselves_may_be_odd(tmp_path, odd) -> None:
    (tmp_path / "manifest.json").write_bytes(odd)
    found = download._read_json(tmp_path / "manifest.json")
    assert found == ({"seed": float("inf"), "size": "small"} if odd == ODD["huge number"] else {})


@pytest.mark.parametrize("kind", ["cog", "netcdf", "zarr"])
def test_an_altered_export_is_not_opened(tmp_path, kind, count) -> None:
    """A flipped bit of a raster was another value, or another library's error once the value was asked for; a manifest
    without sums, or with those of nobody, vouches for nothing."""
    from maps import InvalidInput as Refused
    from maps import open_export
    from maps.raster import export
    from tests.faults.made_maps import made_map

    export(made_map(16), tmp_path / "maps", [kind])
    manifest = tmp_path / "maps" / "manifest.json"
    entries = json.loads(manifest.read_text())["files"]
    with open_export(tmp_path / "maps") as ds:
        assert float(ds["median"].mean()) > 0
    named = next(tmp_path / "maps" / entry["path"] for entry in entries if entry["kind"] == kind)
    file = named if named.is_file() else max(named.rglob("*"), key=lambda p: p.stat().st_size * p.is_file())
    whole, rng = file.read_bytes(), np.random.default_rng(0)
    for at in rng.integers(0, len(whole), count(4, 400)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << int(rng.integers(0, 8))]) + whole[at + 1 :])
        with pytest.raises(Refused, match=rf"{named.name} is not what manifest\.json says"):
            open_export(tmp_path / "maps")
    file.write_bytes(whole)
    for other in ({"sha256": "0" * 64}, {}):
        told = [{k: v for k, v in entry.items() if k != "sha256"} | other for entry in entries]
        manifest.write_text(json.dumps({"files": told}))
        with pytest.raises(Refused, match=r"is not what manifest\.json says"):
            open_export(tmp_path / "maps")
