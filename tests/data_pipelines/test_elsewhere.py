"""Quarters read by others come to the table that one process makes of them, to the byte."""

from pathlib import Path

import pytest

from data_pipelines import archive
from data_pipelines.errors import InvalidInput
from data_pipelines.observations import ingest, read
from data_pipelines.readers import elsewhere, mirror
from tests.others import Others

#: Of a world whose quarters start in 2022; one is missing in the midst of them.
ASKED, GONE = "2021Q4..2022Q4", "2022Q2"


@pytest.fixture
def others(tmp_path):
    (tmp_path / "home").mkdir()
    return Others(tmp_path / "home")


@pytest.fixture
def root(world_copy, monkeypatch):
    """Named from its parent, where a quarter is missing."""
    (world_copy / mirror.key("fixed", GONE)).unlink()
    monkeypatch.chdir(world_copy.parent)
    return Path(world_copy.name)


def made(name, root, states, **more):
    ingest(root=root, quarters=ASKED, region="HY", states=states, output=f"{name}.parquet", **more)
    return Path(f"{name}.parquet").read_bytes()


@pytest.mark.filterwarnings("ignore:No data for")
def test_the_table_is_the_same_to_the_byte(others, root, world):
    states, said = world.states_file(root), []
    here = made("here", root, states)
    assert made("there", root, states, workers=others, progress=lambda *a: said.append(a)) == here
    assert others.done == ["_names"] * 5 + ["_rows"] * 3
    assert [at for at, total, _ in said if total == 3] == [0, 1, 2, 3]
    told = read("there.parquet")[1]
    assert told["missing_quarters"] == ["2021Q4", GONE]
    assert told["sources"][0]["url"] == str(root / mirror.key("fixed", "2022Q1"))  # as it was named


def test_a_made_up_world_is_read_by_others_too(others, world_root, tmp_path):
    for name, workers in (("here", None), ("there", others)):
        ingest(source="synthetic", root=world_root, output=tmp_path / f"{name}.parquet", workers=workers)
    assert (
        others.done and (tmp_path / "here.parquet").read_bytes() == (tmp_path / "there.parquet").read_bytes()
    )


def test_sorted_copies_are_the_same(others, root, tmp_path):
    copies = {}
    for name, workers in (("here", None), ("there", others)):
        found = list(archive.sort_into(Path(name), root=root, quarters=ASKED, workers=workers))
        assert [one.quarter for one in found] == ["2022Q1", "2022Q3", "2022Q4"]
        copies[name] = {one.path.relative_to(name): one.path.read_bytes() for one in found}
    assert copies["here"] == copies["there"] and others.done == ["_sorted_there"] * 5
    again = list(archive.sort_into(Path("there"), root=root, quarters=ASKED, workers=others))
    assert all(one.kept for one in again)
    refused = archive.sort_into(Path("empty"), root=root, quarters=GONE, workers=others)
    with pytest.raises(InvalidInput, match=f"No fixed data for {GONE} under {root}"):
        list(refused)


def test_what_others_do_not_see_is_told_in_a_sentence(others, root, world, tmp_path, monkeypatch):
    states = world.states_file(root)
    where = elsewhere.Where(str(tmp_path / "mine alone"), "mine alone", "fixed")
    with pytest.raises(InvalidInput, match=r"A worker does not see the root .*mine alone; put it where all"):
        where.opened("2022Q1")
    with pytest.raises(InvalidInput, match="The root nowhere is not a folder"):
        made("there", Path("nowhere"), states, workers=others)
    with pytest.raises(InvalidInput, match=f"No fixed data for {GONE} under {root}; it has 2022Q1"):
        ingest(root=root, quarters=GONE, region="HY", states=states, output="o.parquet", workers=others)
    with pytest.raises(InvalidInput, match="'csv' does not read workers"):
        ingest(source="csv", file="x.csv", output="o.parquet", workers=others)
    assert list(tmp_path.glob("*.parquet")) == []
    monkeypatch.setattr(Path, "mkdir", lambda *a, **k: None)
    with pytest.raises(InvalidInput, match=r"A worker does not see the folder .*copy; put it where all"):
        list(archive.sort_into(Path("copy"), root=root, quarters=ASKED, workers=others))
