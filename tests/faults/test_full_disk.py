"""A full disk: exit 1, one sentence with file, size and room; nothing left, the old output whole; never a signal."""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

import geogp
from app.cli import main
from data_pipelines.observations import ingest
from geogp.storage import update_facts, write_tensors, write_text
from maps.raster import export, write_cog
from tests.faults.limiting import under_limit
from tests.faults.made_maps import made_map

FORMATS = ("cog", "netcdf", "zarr", "geoparquet", "gpkg", "pmtiles")


def tree(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def is_a_sentence(text: str, file: str) -> None:
    assert "\n" not in text and file in text and "free" in text and "it needs" in text, text


@pytest.mark.parametrize("kind", FORMATS)
def test_an_export_that_meets_a_full_disk(tmp_path, kind, count) -> None:
    folder = tmp_path / "maps"
    export(made_map(64, 10.0), folder, [kind])
    before = tree(folder)
    largest = max(len(v) for v in before.values())
    few = count(4, 24)
    for size in sorted({0, 1, 300, *(largest * k // few for k in range(few))}):
        (name, code, text), said = under_limit(size, _export, folder, kind)
        assert (name, code, said) == ("NoRoom", 1, ""), (text, said)
        is_a_sentence(text, str(folder))
        assert tree(folder) == before and [p.name for p in tmp_path.iterdir()] == ["maps"]


def _export(folder: Path, kind: str) -> None:
    export(made_map(64, 90.0), folder, [kind], overwrite=True)


@pytest.mark.parametrize("kind", ["text", "tensors", "facts", "slice", "table"])
def test_each_writer_that_meets_a_full_disk(small_run, tmp_path, kind, count, world_folder) -> None:
    run = Path(shutil.copytree(small_run, tmp_path / "run"))
    file = tmp_path / "file.tif"
    writers = {
        "text": lambda: write_text(file, "x" * 100_000),
        "tensors": lambda: write_tensors(file, {"a": torch.zeros(30_000)}),
        "facts": lambda: update_facts(run, {"scores": {"a": "x" * 90_000}}, documents={"c.json": {}}),
        "slice": lambda: write_cog(made_map(64), file, overwrite=True),
        "table": lambda: ingest(
            source="synthetic", root=world_folder, quarters="2022Q1", output=file, overwrite=True
        ),
    }
    write_text(file, "old")
    before = tree(tmp_path)
    for size in (0, 100, 8_000)[: count(2, 3)]:
        (name, code, text), _ = under_limit(size, writers[kind])
        assert (name, code) == ("NoRoom", 1), text
        is_a_sentence(text, str(run if kind == "facts" else file))
        assert tree(tmp_path) == before


def test_commands_that_meet_a_full_disk(run, table, tmp_path, count) -> None:
    """At the command line: exit 1 and one line on stderr."""
    lines = [
        ["export", run, "-o", tmp_path / "maps", "--resolution", "20000"],
        [
            "fit",
            table,
            "--method",
            "dbk-rbf",
            "--rank",
            "8",
            "--hidden",
            "8",
            "--epochs",
            "1",
            "-o",
            tmp_path / "f",
        ],
        ["update", run, "--forget", "2022Q1", "-o", tmp_path / "u"],
        ["export", run, "-o", tmp_path / "h", "--format", "html,figures", "--resolution", "20000"],
    ]
    for line in lines:
        for size in (0, 2_000)[: count(1, 2)]:
            code, said = under_limit(size, main, [*map(str, line), "-q"])
            assert code == 1, said
            said = [text for text in said.splitlines() if "warning" not in text]
            assert len(said) == 1 and said[0].startswith("geogp: ") and "free" in said[0], said
            assert str(line[line.index("-o") + 1]) in said[0]
            assert not list(tmp_path.iterdir()), (line[0], size)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to mount")
def test_a_disk_of_two_megabytes(tmp_path, count) -> None:
    """The real thing, where this machine lets one mount it: rasters of a size that fills it on the way."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", disk], capture_output=True)
    if mount.returncode:
        pytest.skip("may not mount")
    try:
        for kind in ("cog", "gpkg", *FORMATS)[: count(2, 8)]:
            for fill in np.linspace(0, 2_090_000, count(2, 12)).astype(int):
                (disk / "fill").write_bytes(b"x" * fill)
                (name, _, text), said = under_limit(2**40, _large, disk / "maps", kind)
                assert (name, said) == ("NoRoom", ""), (text, said)
                is_a_sentence(text, str(disk / "maps"))
                assert [p.name for p in disk.iterdir()] == ["fill"]
    finally:
        subprocess.run(["umount", disk], check=True)


def _large(folder: Path, kind: str) -> None:
    export(made_map(768), folder, [kind])


def test_bytes_kept_in_memory_are_read_back(tmp_path, monkeypatch) -> None:
    """HDF5 goes on after the first failed write as if nothing had happened."""
    from maps.sinks.spilling import Spilling

    out = Spilling(tmp_path / "f")
    out.write(b"0123456789")
    out.error = OSError(28, "full")
    out.seek(4)
    out.write(b"abcd")
    out.seek(10)
    out.write(b"XYZ")
    out.seek(2)
    assert out.read(10) == b"23abcd89XY" and out.seek(0, 2) == 13
    with pytest.raises(OSError, match="full"):
        out.check()
    out.close()


def test_other_errors_stay_what_they_are(tmp_path) -> None:
    from maps.staging import room_for

    with pytest.raises(RuntimeError, match="a bug"), room_for(tmp_path / "f"):
        raise RuntimeError("a bug of 28 kinds")
    assert issubclass(geogp.storage.NoRoom, OSError)
