"""A command is a file and a target is an entry: each is added here and seen everywhere."""

import json
import subprocess
import sys

import pytest
import xarray as xr

from app.commands import commands

COMMAND = '''
"""`geogp hello`: a greeting."""

from app.commands import options
from app.console import console

PLACE = 35


def {name}(run: options.RunFolder, as_json: options.AsJson = False) -> None:
    """Greet a run."""
    console.data(f"hello {{run}} {{as_json}}")
'''

TARGET = """
from geogp.targets import TARGETS, Target

TARGETS["devices"] = Target(
    "devices", "devices", "1", lambda v: v**0.5, lambda t: t**2, "number of devices", noun="tile counts",
    log10=False, counted=False, better="", thresholds=(3.0,), count_of="devices",
)
"""


@pytest.fixture
def geogp(tmp_path):
    """What command lines print, one after the other in a process that first runs some lines of Python."""

    def call(first, *lines):
        told = [[str(word) for word in line] for line in lines]
        code = f"{first}\nimport sys\nfrom app.cli import main\n" + (
            f"for line in {told!r}:\n    assert main(line) == 0, line\n    print(end='\x1e')"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.split("\x1e")[:-1]

    return call


@pytest.mark.parametrize("name", ["hello", "say_hello"])
def test_a_command_is_a_file(geogp, tmp_path, name):
    (tmp_path / f"{name}.py").write_text(COMMAND.format(name=name))
    there = f"import app.commands; app.commands.__path__.append({str(tmp_path)!r})"
    shown = name.replace("_", "-")
    words, of_it, said = geogp(there, ["--help"], [shown, "--help"], [shown, tmp_path, "--json"])
    assert words.index(" fit ") < words.index(f" {shown} ") < words.index(" evaluate ")
    assert "Greet a run." in words
    assert "Run folder made by" in of_it
    assert said == f"hello {tmp_path} True\n"


def test_what_is_no_command_is_none():
    assert "options" not in commands()


def test_a_target_is_an_entry(geogp, table, tmp_path):
    run, out = tmp_path / "run", tmp_path / "out"
    tiny = ("--method", "dbk-silu", "--rank", "16", "--hidden", "16", "--epochs", "4")
    words, _, document, told, _, suggested = geogp(
        TARGET,
        ["fit", "--help"],
        ["fit", table, "--target", "devices", "--split", "random", *tiny, "-o", run, "-q"],
        ["evaluate", run, "--json"],
        ["evaluate", run],
        ["export", run, "-o", out, "--resolution", "9000", "--format", "netcdf,html", "-q"],
        ["suggest", run, "-n", "1", "-o", tmp_path / "p.geojson", "--json"],
    )
    assert "devices" in words
    document = json.loads(document)
    assert document["target"] == "devices" and document["scores_native"]["unit"] == "1"
    assert not any(name.startswith("tests") for name in document["certificate"]["groups"])
    native = document["scores_native"]
    assert f"CRPS {native['crps']:.4g} devices" in " ".join(told.split())
    with xr.open_dataset(out / "prediction.nc", engine="h5netcdf") as ds:
        assert ds["threshold"].values.tolist() == [3.0] and float(ds["median"].max()) > 1.0
        assert ds.attrs["title"] == "Fixed number of devices, HY"
    assert "Fixed number of devices, HY" in (out / "map.html").read_text()
    assert json.loads(suggested)["unit"] == "squared units of the value"
