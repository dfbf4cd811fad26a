"""Streams, exit statuses and the time to answer: the promises that hold for every command."""

import json
import os
import resource
import subprocess
import sys

import pytest

from app.cli import main
from app.commands import commands


def test_help_answers_at_once(command):
    """Under 0.4 s of processor time: what the clock shows on an idle machine, whatever else this one is doing."""

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    times = []
    while len(times) < 3 or (
        min(times) >= 0.4 and len(times) < 12
    ):  # a busy neighbour on the core costs up to half
        before = spent()
        done = subprocess.run([*command, "--help"], capture_output=True, text=True)
        times.append(spent() - before)
        assert done.returncode == 0
    assert min(times) < 0.4
    for name in commands():
        assert name in done.stdout


LIGHT = {
    "version": (("--version",), 0),
    "help": (("fit", "--help"), 0),
    "methods": (("methods",), 0),
    "papers": (("reproduce",), 0),
    "no such option": (("fit", "t.parquet", "-o", "run", "--bogus"), 2),
    "no such method": (("fit", "t.parquet", "-o", "new", "--method", "bogus"), 2),
    "no numbers": (("export", "run", "-o", "maps", "--thresholds", "fast"), 2),
    "no pairs": (("areas", "run", "p.geojson", "-o", "a.csv", "--pairs", "a"), 2),
    "no size": (("export", "run", "-o", "maps", "--max-memory", "lots"), 2),
    "no level": (("export", "run", "-o", "maps", "--level", "2"), 3),
    "no tests": (("export", "run", "-o", "maps", "--tests", "nan"), 3),
    "no distance": (("export", "run", "-o", "maps", "--max-distance", "-1"), 3),
    "no pixel": (("export", "run", "-o", "maps", "--resolution", "0"), 3),
    "no rank": (("fit", "t.parquet", "-o", "new", "--rank", "0"), 3),
    "too wide": (("fit", "t.parquet", "-o", "new", "--hidden", "10000000"), 3),
    "no steps": (("fit", "t.parquet", "-o", "new", "--steps", "-1"), 3),
    "no epochs": (("fit", "t.parquet", "-o", "new", "--epochs", "0"), 3),
    "no batch": (("fit", "t.parquet", "-o", "new", "--batch-size", "0"), 3),
    "no rate": (("fit", "t.parquet", "-o", "new", "--set", "learning_rate=nan"), 3),
    "no number": (("fit", "t.parquet", "-o", "new", "--set", "rank=many"), 3),
    "no setting": (("fit", "t.parquet", "-o", "new", "--set", "bogus=1"), 3),
    "no such noise": (("fit", "t.parquet", "-o", "new", "--set", "noise=bogus"), 2),
    "no such sum": (("compare", "t.parquet", "--methods", "geogp", "--set", "expansion=rbf+bogus"), 2),
    "a run is there": (("fit", "t.parquet", "-o", "run"), 3),
    "no such paper": (("reproduce", "bogus"), 3),
    "no table": (("fit", "nowhere.parquet", "-o", "new"), 3),
    "no run": (("export", "nowhere", "-o", "maps"), 3),
}


def test_what_needs_no_model_imports_nothing_heavy(tmp_path):
    """Helps, lists and refusals answer in a quarter of a second; with what fits and draws it would take four."""
    heavy = (
        "torch",
        "numpy",
        "pandas",
        "pyarrow",
        "geopandas",
        "pyproj",
        "rasterio",
        "xarray",
        "scipy",
        "sklearn",
    )
    heavy += ("shapely", "matplotlib", "streamlit", "folium", "jaxtyping", "safetensors", "zarr", "h3")
    (tmp_path / "t.parquet").touch()
    (tmp_path / "run").mkdir()
    code = (
        "import sys; from app.cli import main\n"
        f"for name, (line, code) in {LIGHT!r}.items():\n"
        "    assert main(line) == code, name\n"
        f"    print('heavy:', name, [m for m in {heavy!r} if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    said = [line for line in done.stdout.splitlines() if line.startswith("heavy:")]
    assert said == [f"heavy: {name} []" for name in LIGHT]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run", "t.parquet"]


def test_an_unknown_layer_is_refused_before_the_run_is_read(tmp_path):
    """`maps` is imported for the list, a second of processor time; what predicts would take three more."""
    (tmp_path / "run").mkdir()
    code = (
        "import sys; from app.cli import main\n"
        "for layers in ('bogus', 'median,exceedance_x', 'exceedance_25,lower_25'):\n"
        "    assert main(['export', 'run', '-o', 'maps', '--layers', layers]) == 3\n"
        "assert not {'torch', 'rasterio', 'geopandas'} & set(sys.modules)\n"
        "from maps.layers import check_names, LAYERS\n"
        "check_names([*LAYERS, 'exceedance_25', 'exceedance_.5', 'exceedance_-2.5'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in ("bogus", "exceedance_x", "lower_25"):
        assert f"There is no layer {name!r}; choose from median, " in done.stderr


def test_unknown_choices_are_refused_before_what_does_the_work_is_imported(tmp_path):
    """A second at most, for the lists lie beside what needs numpy; with torch it would take four."""
    (tmp_path / "run").mkdir()
    (tmp_path / "t.parquet").touch()
    lines = {
        "There is no format 'bogus'": ["export", "run", "-o", "maps", "--format", "cog,bogus"],
        "No format was named": ["export", "run", "-o", "maps", "--format", ","],
        "The CRS 'bogus' is not known": ["export", "run", "-o", "maps", "--crs", "bogus"],
        "--quarter is written 2023Q4; got '2023Q5'": [
            "slice",
            "run",
            "--at",
            "0",
            "0",
            "-o",
            "new",
            "--quarter",
            "2023Q5",
        ],
        "Unknown split 'bogus'": ["fit", "t.parquet", "-o", "new", "--split", "bogus"],
        "A cross-validation takes 2 to 100": [
            "compare",
            "t.parquet",
            "--methods",
            "knn",
            "--split",
            "kfold1",
        ],
        "The split file gone.parquet does not": [
            "fit",
            "t.parquet",
            "-o",
            "new",
            "--split",
            "gone.parquet:part",
        ],
    }
    code = (
        "import sys; from app.cli import main\n"
        f"for line in {list(lines.values())!r}:\n"
        "    assert main(line) == 3, line\n"
        "assert main(['compare', 't.parquet', '--split', 'block', '--methods', 'knn,bogus']) == 2\n"
        "assert not {'torch', 'rasterio', 'geopandas', 'scipy'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for words in (*lines, "there is no method 'bogus'"):
        assert words in done.stderr


@pytest.mark.parametrize("name", list(commands()))
def test_every_command_has_help(name, cli):
    result = cli(name, "--help")
    assert result.code == 0 and "Usage" in result.out and result.err == ""


def test_version(cli):
    assert cli("--version").out.startswith("geogp ")


@pytest.mark.parametrize(
    "line",
    [
        ("fit",),
        ("nonsense",),
        ("fit", "x.parquet", "-o", "run", "--no-such-option"),
        ("fit", "x.parquet", "-o", "run", "--target", "happiness"),
        ("export", "run", "-o", "out", "--thresholds", "fast"),
        ("export", "run", "-o", "out", "--max-memory", "lots"),
        ("ingest", "-o", "x.parquet", "--source", "csv"),
        ("ingest", "-o", "x.parquet", "--source", "csv", "a.csv", "--columns", "x"),
        ("methods", "no-such-method"),
        ("compare", __file__, "--methods", "", "--split", "random"),
    ],
)
def test_wrong_usage_is_one_sentence_and_status_2(line, cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = cli(*line)
    assert result.code == 2
    assert result.out == ""
    assert len(result.err.strip().splitlines()) == 1 and result.err.startswith("geogp: ")
    assert list(tmp_path.iterdir()) == []


def test_unknown_errors_keep_their_traceback(monkeypatch):
    import geogp.methods

    monkeypatch.setattr(geogp.methods, "METHODS", None)
    with pytest.raises(AttributeError):
        main(["methods"])


def test_a_reader_that_leaves_early_is_no_error(command):
    done = subprocess.run(
        " ".join([*command, "methods", "--json", "|", "head", "-1"]),
        shell=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "{" and done.stderr == ""


def test_methods_as_table_and_json(cli):
    from geogp.methods import METHODS

    table = cli("methods")
    assert all(name in table.out for name in METHODS) and table.err == ""
    document = json.loads(cli("methods", "--json").out)
    assert document["schema"] == 1
    assert [row["name"] for row in document["methods"]] == list(METHODS)
    assert {"paper", "equations", "cost", "reverts_to_prior"} <= set(document["methods"][0])
    one = json.loads(cli("methods", "dbk-rbf", "--json").out)
    assert [row["expansion"] for row in one["methods"]] == ["rbf"]
    assert "inducing" in cli("methods", "dbk-rbf").out


def test_no_colour_codes_outside_a_terminal(shell):
    assert "\x1b" not in shell("methods", NO_COLOR="1").out


def test_doctor_reports(cli):
    result = cli("doctor", "--json")
    document = json.loads(result.out)
    assert document["schema"] == 1
    assert {"versions", "device", "libraries", "memory", "disk", "problems"} <= set(document)
    assert {"gdal", "proj"} <= set(document["libraries"])
    assert result.code == (0 if document["ok"] else 1)
    assert "torch" in cli("doctor").out


def test_threads_wait_as_the_core_wants_whatever_is_imported_first():
    """OpenMP reads the policy when torch is loaded; active waiting is a hundred times slower on a busy machine."""
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    code = (
        "import os, sys, app\n"
        "assert 'torch' not in sys.modules and os.environ['OMP_WAIT_POLICY'] == 'PASSIVE'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
