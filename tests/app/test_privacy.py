"""What .github/SECURITY.md says a run and a map tell of single measurements, held to runs and maps."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from scipy.spatial import cKDTree

from app.workflow.rows import read_rows
from geogp import load
from tests.quick import in_parts
from tests.supply import ROOT

PAGE = (ROOT / ".github/SECURITY.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def field(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the default method."""
    from app.cli import main

    path = tmp_path_factory.mktemp("field") / "run"
    line = ["fit", str(table), "--steps", "3", "--epochs", "2", "--split", "random", "-o", str(path), "-q"]
    with in_parts():
        assert main(line) == 0
    return path


def told(file: str) -> set[str]:
    """Tensors that the page says a file holds."""
    rows = [line.split("|") for line in PAGE.splitlines() if line.startswith(f"| `{file}`")]
    return {name for cells in rows for name in re.findall(r"`([^`]+)`", cells[2])}


def test_a_local_field_can_be_turned_back_into_its_rows(field: Path, table: Path) -> None:
    """Places on a scale of their own, values less a level that the run knows."""
    kept, rows = load_file(field / "weights.safetensors"), read_rows(table, "download", "tests")
    fitted = load_file(field / "split.safetensors")["fitted"]
    X, t, counts = rows.X[fitted], rows.t[fitted], rows.counts[fitted]
    seen = kept["seen.X"]
    low, high = X.min(0), X.max(0)
    back = low + (seen - seen.min(0)) / (seen.max(0) - seen.min(0)) * (high - low)
    gap, row = cKDTree(X / (high - low)).query(back / (high - low))
    assert gap.max() < 1e-9 and len(set(row)) == len(X)
    assert np.array_equal(kept["seen.counts"], counts[row])
    model = load(field).model  # of the run alone, too
    level = model.engine_.field.known.level(torch.from_numpy(seen), torch.from_numpy(kept["seen.counts"]))
    values = (kept["seen.value"] + level.numpy()) * model.target_sd_ + model.target_mean_
    assert np.abs(values - t[row]).max() < 1e-9


def test_a_low_rank_run_keeps_places_and_no_value(run: Path) -> None:
    fitted = int(load_file(run / "split.safetensors")["fitted"].sum())
    files = [*run.glob("statistics/*.safetensors"), run / "weights.safetensors"]
    assert len(files) > 1
    for file in files:
        assert not [name for name, tensor in load_file(file).items() if fitted in tensor.shape]


def test_the_page_names_every_tensor_of_a_row(field: Path, run: Path) -> None:
    for path in (field, run):
        for name in ("support.safetensors", "split.safetensors"):
            assert set(load_file(path / name)) == told(name)
    rows = {name for name in load_file(field / "weights.safetensors") if name.startswith("seen.")}
    assert rows == {name for name in told("weights.safetensors") if name.startswith("seen.")}
    assert set(load_file(next(run.glob("statistics/*.safetensors")))) - {"basis"} == told(
        "statistics/2023Q4.safetensors"
    )


def test_a_map_says_nothing_of_this_machine(cli, run: Path, table: Path, tmp_path: Path) -> None:
    """The run knows where its table lies; no file of an export does."""
    maps = tmp_path / "maps"
    assert cli("export", run, "-o", maps, "--format", "cog,csv,html,gpkg", "--resolution", "4000").code == 0
    assert str(table.parent) in (run / "run.json").read_text()
    files = [p for p in maps.rglob("*") if p.is_file()]
    assert len(files) > 10
    assert not [p.name for p in files if str(table.parent).encode() in p.read_bytes()]
    assert not [
        p.name for p in files if str(Path.home()).encode() in p.read_bytes() and len(str(Path.home())) > 6
    ]
