"""What people get wrong on a line or in a table: said at once, in a sentence, and never settled by a guess."""

import contextlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import geopandas
import numpy as np
import pyarrow.parquet as pq
import pytest
import shapely

import geogp
from app.commands import commands
from data_pipelines.errors import DataWarning, InvalidInput
from data_pipelines.observations import ingest
from data_pipelines.splits import make_split
from data_pipelines.synthetic import write_world

COLUMNS = {"x": "lon", "y": "lat", "value": "v"}


@pytest.fixture
def points(tmp_path: Path) -> Path:
    rows = np.random.default_rng(0).uniform([-160, 20, 5], [-158, 22, 25], (40, 3))
    path = tmp_path / "points.csv"
    path.write_text("lon,lat,v\n" + "".join(f"{a:.5f},{b:.5f},{v:.3f}\n" for a, b, v in rows))
    return path


@pytest.fixture
def own(points: Path) -> Path:
    return ingest(source="csv", file=points, columns=COLUMNS, output=points.with_name("own.parquet")).path


# -- the line -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (["--rank", 8, "--rank", 9], 2, "--rank is given 2 times"),
        (["--method", "geogp", "--method", "geogp"], 2, "--method is given 3 times"),
        (["--set", "rank=5", "--set", "rank=6"], 2, "rank is set twice, to 5 and to 6"),
        (["--set", "rank=5", "--rank", 8], 2, "rank is set twice, to 8 and to 5"),
        (["--steps", 5, "--epochs", 5], 3, "steps say instead of epochs how long dbk-rbf trains"),
        (["--time-limit", "nan"], 3, "--time-limit must be a number of seconds, 0 or more; got nan"),
        (["--time-limit", -1], 3, "--time-limit must be"),
        (["--checkpoint-every", -1], 3, "--checkpoint-every must be"),
        (["--checkpoint-every", "nan"], 3, "--checkpoint-every must be"),
        (["--learning-rate", 1e308], 3, "learning_rate must be at most 1e\\+06; got 1e\\+308"),
        (["--set", "kl_weight=1e300"], 3, "kl_weight must be at most"),
        (["--max-memory", "1KiB"], 2, "--max-memory must be at least"),
        (["--covariates", "value"], 3, "--covariates names value, which is what is mapped"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_a_fit_that_is_told_nonsense(cli, own, tmp_path, more, code, words) -> None:
    """Of options given twice the last won; a rate of 1e308 was a traceback; to stop after nan seconds was never."""
    got = cli("fit", own, "-o", tmp_path / "run", "--target", "value", "--method", "dbk-rbf", *more)
    assert got.code == code and got.err.count("\n") == 1 and "geogp: " in got.err
    assert re.search(words, got.err), got.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["own.parquet", "points.csv"]


ALONE = """
import sys
from app.cli import main
code = main(sys.argv[1:])
print(sorted({"numpy", "torch"} & set(sys.modules)))
sys.exit(code)
"""


def alone(*line: object) -> tuple[int, str, str]:
    """(exit status, what was said, which heavy packages were imported) of a command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE, *map(str, line)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr, done.stdout.strip()


@pytest.mark.parametrize("command", ["fit", "export"])
@pytest.mark.parametrize(
    ("size", "words"),
    [
        ("1KiB", "must be at least 1 MiB"),
        ("1e400", "at most 1073741824 GiB"),
        ("-1", "is a size such as"),
        ("", "is a size such as"),
    ],
)
def test_a_size_that_is_none_is_refused_at_once(tmp_path, command, size, words) -> None:
    """A fit said so after its configuration was read, and not where the table was not there."""
    code, said, imported = alone(command, tmp_path / "no", "-o", tmp_path / "out", f"--max-memory={size}")
    assert code == 2 and words in said and said.count("\n") == 1 and imported == "[]", said


SEEDED = {
    "fit": ["own.parquet", "-o", "out", "--target", "value"],
    "compare": ["own.parquet", "-o", "out", "--target", "value", "--methods", "dbk-rbf", "--split", "random"],
    "ingest": ["--source", "synthetic", "--root", "world", "-o", "out"],
    "demo": ["-o", "out"],
    "reproduce": ["fmgp-fig1", "--quick", "-o", "out"],
}


def test_every_command_that_draws_is_here() -> None:
    taking = {
        name for name, function in commands().items() if "seed" in inspect.signature(function).parameters
    }
    assert taking == set(SEEDED)


@pytest.mark.parametrize("command", SEEDED)
@pytest.mark.parametrize("seed", [-1, 2**31, 2**70])
def test_a_seed_that_is_none_is_refused_at_once(own, monkeypatch, command, seed) -> None:
    """numpy's or torch's words and a traceback, of some after the work."""
    monkeypatch.chdir(own.parent)
    monkeypatch.setenv("PYTHONPATH", str(Path(geogp.__file__).parents[1]))
    code, said, imported = alone(command, *SEEDED[command], f"--seed={seed}")
    assert said == f"geogp: --seed must be a whole number from 0 to 2,147,483,647; got {seed}.\n"
    assert (
        code == 3 and imported == "[]" and {p.name for p in own.parent.iterdir()} == {own.name, "points.csv"}
    )


def test_an_option_that_takes_several_may_be_given_twice(cli, own, tmp_path) -> None:
    given = ["--method", "dbk-rbf", "--set", "rank=4", "--set", "hidden=4", "--epochs", 1, "-q", "-q"]
    line = ["fit", own, "-o", tmp_path / "run", "--target", "value", *given, "--overwrite", "--overwrite"]
    assert cli(*line).code == 0
    assert geogp.load(tmp_path / "run").facts["arguments"]["model"]["rank"] == 4


def test_a_threshold_that_is_named_twice_is_one(run, cli, tmp_path) -> None:
    """Two layers of one name were written into one file, from two places: a traceback of TIFF."""
    line = ["export", run, "-o", tmp_path / "maps", "--resolution", 5000, "--format", "cog,netcdf"]
    assert cli(*line, "--thresholds", "5,5.0,25,5", "--layers", "median,exceedance").code == 0
    assert sorted(p.name for p in (tmp_path / "maps").glob("exceedance*.tif")) == [
        "exceedance_25.tif", "exceedance_5.tif"
    ]  # fmt: skip
    from app.workflow.grids import grid_of

    loaded = geogp.load(run)
    grid = grid_of(loaded, resolution_m=5000.0)
    ds = geogp.predict(loaded, grid.geobox, thresholds=[25.0, 5.0, 25])
    assert ds["threshold"].values.tolist() == [25.0, 5.0]


def test_a_column_that_is_named_twice(cli, points, tmp_path) -> None:
    """The second of two values was taken."""
    line = [
        "ingest",
        "--source",
        "csv",
        points,
        "--columns",
        "x=lon,y=lat,value=v,value=lat",
        "-o",
        tmp_path / "o.parquet",
    ]
    got = cli(*line)
    assert (
        got.code == 2 and "--columns names value twice" in got.err and not (tmp_path / "o.parquet").exists()
    )


# -- files ----------------------------------------------------------------------------------------------


def test_a_configuration_that_windows_wrote(cli, own, tmp_path) -> None:
    """A byte-order mark and its line ends."""
    text = "target = 'value'\r\nmethod = 'dbk-rbf'\r\n[model]\r\nrank = 4\r\nhidden = 4\r\nepochs = 1\r\n"
    (tmp_path / "run.toml").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert cli("fit", own, "-o", tmp_path / "run", "--config", tmp_path / "run.toml").code == 0


def test_two_columns_of_one_name(points, tmp_path) -> None:
    lines = points.read_text().splitlines()
    points.write_text("\n".join([lines[0] + ",v", *(line + ",7" for line in lines[1:])]) + "\n")
    with pytest.raises(InvalidInput, match="has 2 columns called 'v'; rename all but one"):
        ingest(source="csv", file=points, columns=COLUMNS, output=tmp_path / "o.parquet")


def test_what_programs_write_for_nothing_is_told_of(points, tmp_path) -> None:
    """Places at 0, 0 and values of -999 are rows like others, of which somebody should hear."""
    with points.open("a") as file:
        file.write("0,0,7\n0,0.0,8\n-159,21,-999\n")
    with pytest.warns(DataWarning) as told:
        ingest(source="csv", file=points, columns=COLUMNS, output=tmp_path / "o.parquet")
    said = " ".join(str(w.message) for w in told)
    assert "2 rows lie at 0, 0" in said and "1 row has the value -999" in said


def test_values_that_are_low_by_themselves_are_not_told_of(points, tmp_path, recwarn) -> None:
    text = points.read_text()
    lines = [line.rsplit(",", 1)[0] + f",{-999 + i * 40}" for i, line in enumerate(text.splitlines()[1:])]
    points.write_text("lon,lat,v\n" + "\n".join(lines) + "\n")
    ingest(source="csv", file=points, columns=COLUMNS, output=tmp_path / "o.parquet")
    assert not [w for w in recwarn if issubclass(w.category, DataWarning)]


def test_names_that_a_terminal_would_obey(cli, points, tmp_path) -> None:
    """A column may be called like a command to clear the screen."""
    line = [
        "ingest",
        "--source",
        "csv",
        points,
        "--columns",
        "x=lon,y=lat,value=v",
        "--value-name",
        "\x1b[2Jv\x07",
    ]
    assert cli(*line, "-o", tmp_path / "o.parquet").code == 0
    small = ["--method", "dbk-rbf", "--rank", 4, "--hidden", 4, "--epochs", 1]
    got = cli("fit", tmp_path / "o.parquet", "-o", tmp_path / "run", "--target", "value", *small)
    assert got.code == 0 and "?[2Jv?" in got.err and "\x1b" not in got.err


# -- outputs --------------------------------------------------------------------------------------------


def test_a_run_takes_no_place_of_other_files(cli, own, small_run, tmp_path, monkeypatch) -> None:
    """With --overwrite a fit put its run in the place of any folder and removed what had been there, documents and all."""
    home = tmp_path / "home"
    (home / "letters").mkdir(parents=True)
    (home / "letters" / "one.txt").write_text("dear")
    line = [
        "fit",
        own,
        "--target",
        "value",
        "--method",
        "dbk-rbf",
        "--rank",
        4,
        "--hidden",
        4,
        "--epochs",
        1,
        "--overwrite",
    ]
    got = cli(*line, "-o", home)
    assert got.code == 3 and "holds letters/one.txt, which is no file of a run" in got.err
    with pytest.raises(geogp.InvalidInput, match=r"holds letters/one\.txt"):
        geogp.save(home, geogp.load(small_run).model, {}, overwrite=True)
    monkeypatch.chdir(home / "letters")
    for name in (".", "..", "../letters", "../../home", "/"):
        got = cli(*line, "-o", name)
        assert got.code == 3 and "folder that this command runs in, or one above" in got.err, name
    assert cli(*line, "-o", "one.txt").code == 3
    assert (home / "letters" / "one.txt").read_text() == "dear"
    assert sorted(p.name for p in tmp_path.rglob("*")) == [
        "home",
        "letters",
        "one.txt",
        "own.parquet",
        "points.csv",
    ]
    assert cli(*line, "-o", "new").code == 0 and cli(*line, "-o", "new").code == 0  # a run may be replaced
    (home / "letters" / "new" / "notes.txt").write_text("mine")
    assert cli(*line, "-o", "new").code == 3 and (home / "letters" / "new" / "notes.txt").exists()
    (home / "letters" / "new" / "notes.txt").unlink()
    (home / "letters" / "new" / "SHA256SUMS").write_bytes(b"\xff")  # and so may a damaged one
    (home / "letters" / "new" / "weights.safetensors").unlink()
    assert cli(*line, "-o", "new").code == 0


def test_a_folder_without_a_name_can_be_staged_in() -> None:
    """The root has no name to hide a folder beside: a traceback."""
    from maps.staging import hidden, staged

    with pytest.raises(ValueError, match="empty name"):
        hidden(Path("/"))
    with staged(Path("/"), inside=True) as work:
        assert work.parent == Path("/") and not work.exists()


@pytest.mark.parametrize(
    "line",
    [
        ["export", "RUN", "-o", "", "--resolution", 5000, "--format", "cog"],
        ["export", "RUN", "-o", "maps", "--like", ""],
        ["evaluate", ""],
        ["ingest", "--source", "csv", "points.csv", "--columns", "value=v", "-o", ""],
    ],
    ids=str,
)
def test_a_name_that_is_empty_is_refused(cli, run, points, monkeypatch, line) -> None:
    """Such as a variable of the shell that nobody has set: the maps went into the working directory."""
    monkeypatch.chdir(points.parent)
    got = cli(*(run if word == "RUN" else word for word in line))
    assert got.code == 2 and "is empty; name a file or a folder" in got.err
    assert [p.name for p in points.parent.iterdir()] == ["points.csv"]


def test_no_threshold_at_all(cli, run, tmp_path) -> None:
    """A traceback of numpy, and words about an option that the command does not have."""
    line = ["excursions", run, "-o", tmp_path / "there", "--resolution", 5000]
    for text, code, words in (("", 2, "--above names no threshold"), ("nan", 3, "--above must be finite")):
        got = cli(*line, "--above", text)
        assert got.code == code and words in got.err, got.err


def test_what_is_read_is_not_written_over(cli, run, points, tmp_path) -> None:
    """By any name of it: the table that was ingested, all layers of a file of areas, places under their own name."""
    link = tmp_path / "link.csv"
    link.symlink_to(points)
    shapes = tmp_path / "areas.gpkg"
    frame = geopandas.GeoDataFrame({"name": ["a"]}, geometry=[shapely.box(-159, 20, -158, 21)], crs=4326)
    frame.to_file(shapes, layer="mine")
    before = {path: path.read_bytes() for path in (points, shapes)}
    for line in (
        ["ingest", "--source", "csv", points, "--columns", "value=v", "-o", link],
        ["ingest", "--source", "csv", points, "--columns", "value=v", "--boundary", shapes, "-o", shapes],
        ["areas", run, "--areas", shapes, "-o", shapes],
        ["at", run, link, "-o", points],
    ):
        got = cli(*line, "--overwrite")
        assert got.code == 3 and "is the file that is read" in got.err, got.err
    assert {path: path.read_bytes() for path in before} == before and link.is_symlink()


def test_a_link_that_leads_to_itself(cli, run, own, tmp_path) -> None:
    """pathlib's own error, which is none of the system's: a traceback of every command that writes a folder."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for line in (
        ["export", run, "--resolution", 5000],
        ["fit", own, "--target", "value", "--method", "dbk-rbf"],
    ):
        got = cli(*line, "-o", loop)
        assert got.code == 1 and "symbolic links" in got.err and got.err.count("\n") == 1, got.err


PLACE = r"(Read-only file system|Permission denied|Operation not permitted)"


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (
            ["ingest", "--source", "csv", "POINTS", "--columns", "value=v", "-o", "/sys/own.parquet"],
            "own.parquet",
        ),
        (["fit", "OWN", "--target", "value", "--method", "dbk-rbf", "-o", "/sys/run"], "run"),
        (["at", "RUN", "POINTS", "-o", "/sys/at.parquet"], "at.parquet"),
        (["report", "RUN", "-o", "/sys/report.html"], "report.html"),
        (["suggest", "RUN", "-n", 2, "-o", "/sys/next.geojson"], "next.geojson"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_where_nobody_may_write_the_output_is_named(cli, run, own, points, line, named) -> None:
    """The hidden name that is renamed at the end was said, of a file that nobody had asked for."""
    paths = {"RUN": run, "OWN": own, "POINTS": points}
    got = cli(*(paths.get(word, word) for word in line))
    words = f"geogp: /sys/{named} could not be written: {PLACE}; name another place, or ask for the right to write there."
    assert got.code == 3 and re.search(rf"^{words}$", got.err, re.MULTILINE), got.err
    assert ".geogp-" not in got.err and ".partial" not in got.err


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (["export", "RUN", "--resolution", 20000, "-o", "/sys/maps"], 3),
        (["slice", "RUN", "--at", -143, 34, "-o", "/sys/slice.tif"], 3),
        (["demo", "-o", "/sys/demo"], 1),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_where_nobody_may_write_a_folder_there_is_a_way_out(cli, run, line, code) -> None:
    got = cli(*(run if word == "RUN" else word for word in line))
    assert got.code == code and re.search(PLACE, got.err) and "name another" in got.err, got.err
    assert ".geogp-" not in got.err and got.err.strip().count("\n") == 0


# -- in Python ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["dbk-rbf", "local-gp", "geogp"])
def test_places_that_are_too_far_away_for_numbers(method) -> None:
    """They were answered with NaN, and a slice of a place that is none, too; a trillion draws were an error of torch."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(0, 1, (40, 2)), rng.normal(size=40)
    small = {"rank": 4, "hidden": 4, "epochs": 1} if method == "dbk-rbf" else {}
    model = geogp.GPRegressor(method, **small).fit(X, y)
    for ask in (model.predict, model.interval, lambda places: model.sample_y(places, 2)):
        with pytest.raises(geogp.InvalidInput, match=r"X holds 1e\+308, and at most 1e\+100"):
            ask(np.full((2, 2), 1e308))
        for far in (1e6, 1e30, 1e99):
            with contextlib.suppress(geogp.NumericalFailure):  # single precision ends at 1e38
                assert np.isfinite(ask(np.full((2, 2), far))).all()
    for place in ([np.nan, 0.5], [np.inf, 0.5]):
        with pytest.raises(geogp.InvalidInput, match="x_ref holds"):
            model.kernel_slice(X, place)
    with pytest.raises(geogp.InvalidInput, match="or fewer"):
        model.sample_y(X, 10**12)


@pytest.mark.parametrize("seed", [-1, 2**31, 2**70, 1.5, True, "0"], ids=repr)
def test_a_seed_that_is_none(own, tmp_path, seed) -> None:
    """numpy's "expected non-negative integer", torch's "Overflow when unpacking long", or, of -1, draws all the same."""
    from app.peers import peer
    from app.workflow.steps.fit import fit as fit_run
    from geogp import reproduce
    from geogp.areas import draws_together, excursion, surface
    from geogp.suggest import try_suggestions

    rng = np.random.default_rng(0)
    X, y = rng.uniform(0, 1, (40, 2)), rng.normal(size=40)
    model = geogp.GPRegressor("local-gp").fit(X, y)
    found = surface(model, X)
    for ask in (
        lambda: geogp.GPRegressor("local-gp", random_state=seed).fit(X, y),
        lambda: geogp.GPRegressor("dbk-rbf", rank=4, hidden=4, epochs=1, random_state=seed).fit(X, y),
        lambda: model.sample_y(X, 1, random_state=seed),
        lambda: found.draws(np.full((1, 40), 1 / 40), n_samples=1, random_state=seed),
        lambda: excursion(found, 0.0, n_samples=100, random_state=seed),
        lambda: next(draws_together(found, found, 0.5, 1, seed)),
        lambda: try_suggestions(model, X, y, None, 2, seed=seed),
        lambda: reproduce.run("fmgp-fig1", quick=True, seed=seed),
        lambda: peer("knn").fit(X, y, seed=seed),
    ):
        with pytest.raises(geogp.InvalidInput, match="must be a whole number from 0 to 2,147,483,647; got"):
            ask()
    if isinstance(seed, int) and not isinstance(seed, bool) and seed > 0:
        return  # of the splits and the worlds any is one
    table = pq.read_table(own)
    for ask in (
        lambda: make_split(table, "random", seed),
        lambda: write_world(tmp_path / "world", seed=seed),
        lambda: ingest(source="synthetic", seed=seed, output=tmp_path / "o.parquet"),
        lambda: fit_run(own, target="value", method="dbk-rbf", seed=seed, output=tmp_path / "run"),
    ):
        with pytest.raises(InvalidInput, match="must be a whole number, 0 or more; got"):
            ask()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["own.parquet", "points.csv"]


def test_a_run_of_a_seed_that_was_taken_once_still_opens(tmp_path) -> None:
    """Up to 2**32 they were, by some methods."""
    rng = np.random.default_rng(0)
    model = geogp.GPRegressor("local-gp").fit(rng.uniform(0, 1, (40, 2)), rng.normal(size=40))
    model.random_state = 2**31
    geogp.save(tmp_path / "run", model, {})
    assert geogp.load(tmp_path / "run").model.random_state == 2**31
