"""A run folder is what was written, or it is refused and the file that is not is named."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import geogp
from geogp import InvalidInput
from geogp.storage import SUMS, update_facts, write_sums


@pytest.fixture
def copy(small_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_run, tmp_path / "run"))


def files_of(run: Path) -> list[Path]:
    return sorted(p for p in run.rglob("*") if p.is_file())


def refused(run: Path, *names: str) -> None:
    """The run is refused in one sentence that has one of the names."""
    with pytest.raises(InvalidInput) as caught:
        geogp.load(run)
    text = str(caught.value)
    assert "\n" not in text and len(text) < 400 and any(name in text for name in names), text


def flip(file: Path, at: int, bit: int = 0) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1 << bit
    file.write_bytes(bytes(data))


def test_each_altered_byte_is_refused_by_name(small_run, tmp_path, count) -> None:
    """Every 997th byte of each file, its first and its last."""
    for original in files_of(small_run):
        size = original.stat().st_size
        places = sorted({0, size - 1, *range(0, size, 997)})
        for n, at in enumerate(places[:: max(1, len(places) // count(4, len(places)))]):
            copy = Path(shutil.copytree(small_run, tmp_path / "run", copy_function=shutil.copyfile))
            name = original.relative_to(small_run).as_posix()
            flip(copy / name, at, n % 8)
            line = original.read_text()[:at].count("\n") if name == SUMS else -1
            told = original.read_text().splitlines()[line].split("  ")[1] if name == SUMS else name
            refused(copy, name, told)  # of an altered sum its file is as good a name
            shutil.rmtree(copy)


def test_each_removed_emptied_or_cut_file_is_refused_by_name(copy, tmp_path) -> None:
    for file in files_of(copy):
        name, whole = file.relative_to(copy).as_posix(), file.read_bytes()
        for rest in (None, b"", whole[: len(whole) // 2]):
            file.unlink() if rest is None else file.write_bytes(rest)
            refused(copy, name)
            file.write_bytes(whole)
    geogp.load(copy)


def test_each_line_taken_from_the_sums_is_refused_by_name(copy) -> None:
    """Sums without a file's line do not let that file be altered."""
    whole = (copy / SUMS).read_text()
    for line in whole.splitlines():
        name = line.split("  ")[1]
        flip(copy / name, -1)
        (copy / SUMS).write_text(whole.replace(line + "\n", ""))
        refused(copy, name, SUMS)
        flip(copy / name, -1)
    (copy / SUMS).write_text("")
    refused(copy, SUMS)


def test_a_name_altered_in_the_sums_is_refused_by_the_name_of_the_sums(copy) -> None:
    """The run was said to lack a file that nobody has ever heard of."""
    whole = (copy / SUMS).read_text()
    for line in whole.splitlines():
        name = line.split("  ")[1]
        (copy / SUMS).write_text(whole.replace(name, name[:3] + chr(ord(name[3]) ^ 1) + name[4:]))
        refused(copy, SUMS)


def test_a_file_that_run_json_alone_knows_of_is_said_to_be_listed_there(copy) -> None:
    whole = (copy / SUMS).read_text()
    (copy / SUMS).write_text("".join(f"{line}\n" for line in whole.splitlines() if "support" not in line))
    (copy / "support.safetensors").unlink()
    with pytest.raises(InvalidInput, match=r"lacks support\.safetensors, which run\.json lists"):
        geogp.load(copy)


@pytest.mark.parametrize("added", ["extra.bin", "statistics/2024Q1.safetensors", ".hidden", "link"])
def test_an_added_file_is_refused_by_name(copy, added) -> None:
    if added == "link":
        (copy / added).symlink_to("/etc/hostname")
    else:
        (copy / added).write_bytes(b"x")
    refused(copy, added)
    if added != "link":  # with a line of its own, too: run.json does not know it
        write_sums(copy)
        refused(copy, added)


def test_what_systems_put_into_folders_is_no_fault(copy) -> None:
    (copy / ".DS_Store").write_bytes(b"x")
    geogp.load(copy)
    update_facts(copy, {"scores": {"nll": 1.0}})
    assert geogp.load(copy).facts["scores"] == {"nll": 1.0}


def test_swapped_files_are_refused_with_renewed_sums_too(copy) -> None:
    a, b = copy / "support.safetensors", copy / "statistics/2023Q4.safetensors"
    first, second = a.read_bytes(), b.read_bytes()
    a.write_bytes(second), b.write_bytes(first)
    refused(copy, a.name, b.name)
    write_sums(copy)
    refused(copy, a.name, b.name)


def test_a_run_from_before_the_manifest_opens(copy) -> None:
    facts = json.loads((copy / "run.json").read_text())
    assert set(facts.pop("files")) == {
        p.relative_to(copy).as_posix() for p in files_of(copy) if p.name not in (SUMS, "run.json")
    }
    (copy / "run.json").write_text(json.dumps(facts))
    write_sums(copy)
    assert geogp.load(copy).weights_sha256 == geogp.storage.sha256(copy / "weights.safetensors")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": 0}, "fit it again"),
        ({"schema": 2}, "update geogp"),
        ({"schema": True}, "fit it again"),
        ({"schema": None}, "fit it again"),
        ({"model": None}, "cannot be read as a run"),
        ({"model": {}}, "cannot be read as a run"),
        ({"model": [1]}, "cannot be read as a run"),
        ({"files": [1]}, "does not say which files"),
        ([], "JSON object"),
        (7, "JSON object"),
    ],
)
def test_a_run_of_another_making_is_one_sentence(copy, change, words) -> None:
    facts = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps({**facts, **change} if isinstance(change, dict) else change))
    write_sums(copy)
    with pytest.raises(InvalidInput, match=words) as caught:
        geogp.load(copy)
    assert "\n" not in str(caught.value)
    if change in ({"schema": 0}, {"schema": None}):
        assert "update geogp" not in str(caught.value)


def test_a_model_of_other_columns_is_one_sentence(copy) -> None:
    """A run whose facts say a time that its model was not fitted with."""
    facts = json.loads((copy / "run.json").read_text())
    facts["model"]["parameters"]["time"] = 0
    (copy / "run.json").write_text(json.dumps({k: v for k, v in facts.items() if k != "files"}))
    write_sums(copy)
    with pytest.raises(InvalidInput, match="cannot be read as a run") as caught:
        geogp.load(copy)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("told", [["a", 1, 2], [1, 2], {"a": 1}, 7, [1, 2, float("inf")]], ids=str)
def test_quartiles_that_are_none_are_one_sentence(copy, told) -> None:
    facts = json.loads((copy / "run.json").read_text())
    facts["model"]["target_quartiles"] = told
    (copy / "run.json").write_text(json.dumps({k: v for k, v in facts.items() if k != "files"}))
    write_sums(copy)
    with pytest.raises(InvalidInput, match="cannot be read as a run") as caught:
        geogp.load(copy)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "crs", ["junk", 7, "EPSG:999999", {"a": 1}, 'LOCAL_CS["x"]', '{"a":' * 100_000], ids=lambda v: str(v)[:20]
)
def test_a_junk_crs_is_one_sentence(copy, crs) -> None:
    update_facts(copy, {"data": {"crs": crs}})
    with pytest.raises(InvalidInput, match="CRS") as caught:
        geogp.load(copy).to_degrees([[0.0, 0.0]])
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "frame",
    [{"space": True}, {"space": [0]}, {"space": [{}, 1]}, {"time": 1e308}, {"others": [0.5]}],
    ids=str,
)
def test_a_field_whose_columns_are_none_is_refused(frame, tmp_path) -> None:
    """It opened, and met the first prediction with a traceback."""
    from geogp.run import save

    X = np.random.default_rng(0).uniform(0, 1e4, (60, 2))
    model = geogp.GPRegressor(steps=2, epochs=1).fit(X, np.sin(X[:, 0] / 2000))
    path = save(tmp_path / "run", model).path
    facts = json.loads((path / "run.json").read_text())
    facts["model"]["engine"]["frame"] |= frame
    (path / "run.json").write_text(json.dumps(facts))
    write_sums(path)
    refused(path, "columns are places", "cannot be read as a run")


def test_what_is_read_later_is_of_the_same_run(copy, small_run) -> None:
    run = geogp.load(copy)
    (copy / "support.safetensors").write_bytes((copy / "statistics/2023Q4.safetensors").read_bytes())
    with pytest.raises(InvalidInput, match="open it again"):
        run.tensors("support")


def test_scores_of_other_weights_are_not_stored(copy) -> None:
    with pytest.raises(InvalidInput, match="other weights"):
        update_facts(copy, {"scores": {}}, weights_sha256="0" * 64)
    assert "scores" not in geogp.load(copy).facts
    update_facts(copy, {"scores": {}}, weights_sha256=geogp.load(copy).weights_sha256)


#: Commands that write, and where; each is refused before it computes.
INTO = {
    "export": ["{run}", "-o", "{run}"],
    "export below": ["{run}", "-o", "{run}/maps"],
    "at": ["{run}", "{places}", "-o", "{run}/o.csv"],
    "areas": ["{run}", "--areas", "{areas}", "-o", "{run}/statistics/o.csv"],
    "slice": ["{run}", "--at", "-156", "19.7", "-o", "{run}/o.tif"],
    "suggest": ["{run}", "-o", "{run}/o.geojson"],
    "report": ["{run}", "-o", "{run}/o.html"],
    "excursions": ["{run}", "-o", "{run}"],
    "update": ["{run}", "--forget", "2023Q4", "-o", "{run}/o"],
    "reproduce": ["dbk-fig1", "--quick", "-o", "{run}"],
    "ingest": ["--source", "csv", "{places}", "--columns", "x=lon,y=lat,value=v", "-o", "{run}/o.parquet"],
    "fit": ["{table}", "-o", "{run}/o"],
    "compare": ["{table}", "--methods", "knn", "--split", "random", "-o", "{run}"],
}


@pytest.mark.parametrize("line", INTO)
def test_no_output_lies_in_a_run(line, small_run, copy, tmp_path, table, cli) -> None:
    """It would be too many for the run, which would not open again."""
    places, areas = tmp_path / "places.csv", tmp_path / "areas.geojson"
    places.write_text("lon,lat,v\n-156,19.7,1\n")
    square = [[-156, 19], [-155, 19], [-155, 20], [-156, 19]]
    areas.write_text(json.dumps({"type": "Polygon", "coordinates": [square]}))
    words = {"run": copy, "places": places, "areas": areas, "table": table}
    done = cli(line.split()[0], *(word.format(**words) for word in INTO[line]), "--overwrite", "-q")
    assert done.code == 3 and "would lie in the run" in done.err and len(done.err.splitlines()) == 1, done.err
    assert files_of(copy) == [copy / p.relative_to(small_run) for p in files_of(small_run)]


def test_a_link_into_a_run_is_the_run(copy, tmp_path, monkeypatch) -> None:
    from geogp.storage.staging import WithinRun, refuse_within_run

    (tmp_path / "link").symlink_to(copy)
    monkeypatch.chdir(copy / "statistics")
    for path in (tmp_path / "link" / "a" / "b.tif", Path("b.tif"), Path("../b.tif")):
        with pytest.raises(WithinRun):
            refuse_within_run(path)
    refuse_within_run(copy)
    refuse_within_run(Path("../../b.tif"))
