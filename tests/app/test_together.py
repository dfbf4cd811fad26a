"""`--with`: what misses either of two limits, per area and per pixel, from two runs of the same tiles."""

import json
from contextlib import nullcontext
from dataclasses import replace

import geopandas
import numpy as np
import pytest
import rasterio
from scipy.special import ndtr

from app.errors import InvalidInput
from app.workflow import areas
from geogp.run import load
from tests.app.conftest import TINY
from tests.app.test_areas import HALVES, boxes
from tests.others import Others

LIMITS = ("--below", 60, "--with-below", 12)


@pytest.fixture(scope="module")
def upload(table, tmp_path_factory):
    from app.cli import main

    path = tmp_path_factory.mktemp("runs") / "upload"
    line = [
        "fit",
        str(table),
        "--target",
        "upload",
        "--method",
        "dbk-silu",
        "--split",
        "random",
        *TINY,
        "-o",
        str(path),
    ]
    assert main([*line, "-q"]) == 0
    return path


@pytest.fixture
def file(world, tmp_path):
    path = tmp_path / "boxes.geojson"
    wide = [tuple(4 * v for v in half) for half in HALVES[:2]]
    boxes(world, *wide).assign(GEOID=["01", "02"], people=[1000, 300]).to_file(path)
    return path


def test_the_share_that_misses_either_lies_between_its_bounds(cli, run, upload, file, tmp_path):
    line = (
        "areas",
        run,
        "--areas",
        file,
        "-o",
        tmp_path / "a.parquet",
        "--with",
        upload,
        *LIMITS,
        "--weight-column",
    )
    result = cli(*line, "people", "--thresholds", 60, "--json")
    assert result.code == 0, result.err
    document = json.loads(result.out)
    told = document["with"]
    assert told["either"] == "download speed below 60 Mbit/s or upload speed below 12 Mbit/s"
    assert told["learned_from"] == "held-out" and -1 < told["correlation"]["surface"] < 1
    assert told["correlation"]["rows"] > 100 and "correlation" in result.err
    both = geopandas.read_parquet(tmp_path / "a.parquet")
    assert cli("areas", upload, "--areas", file, "-o", tmp_path / "b.parquet", "--thresholds", 12).code == 0
    alone = geopandas.read_parquet(tmp_path / "b.parquet")
    missed, one, two = both["share_either_missed"], both["share_below_60"], alone["share_below_12"]
    slack = 4 * 0.5 / np.sqrt(500)
    assert (missed >= np.maximum(one, two) - slack).all() and (
        missed <= np.minimum(one + two, 1) + slack
    ).all()
    assert (both["share_either_missed_lower"] <= missed).all() and (
        missed <= both["share_either_missed_upper"]
    ).all()
    np.testing.assert_allclose(both["people_either_missed"], missed * both["people"])
    whole = document["whole"]["people_either_missed"]
    assert whole["mean"] == pytest.approx(both["people_either_missed"].sum())
    assert whole["lower"] <= whole["mean"] <= whole["upper"]


def test_a_second_limit_that_nothing_misses_changes_nothing(cli, run, upload, file, tmp_path):
    """The first run's draws are those of the table, so the shares are the same to the last digit."""
    line = ("areas", run, "--areas", file, "-o", tmp_path / "a.parquet", "--thresholds", 60, "--with", upload)
    assert cli(*line, "--below", 60, "--with-below", 1e-9).code == 0
    table = geopandas.read_parquet(tmp_path / "a.parquet")
    for end in ("", "_sd", "_lower", "_upper"):
        np.testing.assert_allclose(
            table[f"share_either_missed{end}"], table[f"share_below_60{end}"], rtol=1e-12
        )
    assert (table["share_below_60"] > 0.01).all()


def test_others_draw_both_to_the_same_bytes(run, upload, file, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    others, written = Others(), []
    for name, workers in (("here", None), ("there", others)):
        monkeypatch.setattr(
            "app.workflow.steps.areas.workers", lambda asked, found=workers: nullcontext(found)
        )
        (tmp_path / name).mkdir()
        areas(run, file, tmp_path / name / "a.parquet", beside=upload, either=(60, 12), n_samples=150)
        written.append([p.read_bytes() for p in sorted((tmp_path / name).iterdir())])
    assert written[0] == written[1] and len(written[0]) == 2
    assert others.done.count("_batch") == 3 and others.done.count("_missed") == 3


def test_the_layer_is_the_chance_at_each_pixel(cli, run, upload, tmp_path):
    line = (
        "export",
        run,
        "-o",
        tmp_path,
        "--format",
        "cog",
        "--layers",
        "either_missed",
        "--resolution",
        12_000,
    )
    result = cli(*line, "--with", upload, *LIMITS)
    assert result.code == 0, result.err
    with rasterio.open(tmp_path / "either_missed.tif") as src:
        values, transform = src.read(1), src.transform
        assert "upload speed below 12" in src.tags()["either_missed"]
    row, col = (v[::7] for v in np.nonzero(np.isfinite(values)))
    r = json.loads((tmp_path / "manifest.json").read_text())["with"]["correlation"]["surface"]
    xy = np.column_stack(transform * (col + 0.5, row + 0.5))
    z = np.random.default_rng(0).multivariate_normal([0, 0], [[1, r], [r, 1]], 40_000).T
    under = []
    for name, limit, draw in ((run, 60, z[0]), (upload, 12, z[1])):
        loaded = load(name)
        model = loaded.model
        found = model.distribution(model.moments(loaded.inputs(xy), model.reference_count_), latent=True)
        h = (found.transform.forward(np.array(loaded.target.to_score(limit))) - found.location) / found.scale
        under.append(draw[None] < h[:, None])
        assert (values[row, col] >= ndtr(h) - 1e-6).all()
    np.testing.assert_allclose(values[row, col], (under[0] | under[1]).mean(1), atol=4 * 0.5 / 200)


@pytest.mark.parametrize(
    ("options", "words", "code"),
    [
        (("--below", 60), "belong to --with", 2),
        (("--with", "RUN", "--below", 60), "a threshold for each run", 3),
        (("--with", "RUN", "--below", -1, "--with-below", 12), "got -1", 3),
        (("--with", "nowhere", *LIMITS), "not a run folder", 3),
    ],
)
def test_bad_input_is_one_sentence(options, words, code, cli, run, upload, file, tmp_path):
    options = [upload if option == "RUN" else option for option in options]
    for line in (
        ("areas", run, "--areas", file, "-o", tmp_path / "a.csv"),
        ("export", run, "-o", tmp_path / "o"),
    ):
        result = cli(*line, *options)
        assert result.code == code and words in result.err, result.err
    assert not (tmp_path / "a.csv").exists() and not (tmp_path / "o").exists()


def test_how_two_runs_go_together_is_learned_once(run, upload, tmp_path, monkeypatch):
    from app.workflow import together

    monkeypatch.setenv("GEOGP_CACHE", str(tmp_path / "cache"))
    a, b = load(run), load(upload)
    first = together.learned_together(a, b)
    assert together._learned(a, b, None) == first

    def never(*of):
        raise AssertionError("learned again")

    monkeypatch.setattr(together, "_learned", never)
    assert together.learned_together(a, b) == first
    with pytest.raises(AssertionError, match="again"):
        together.learned_together(b, a)  # another pair
    (note,) = (tmp_path / "cache").rglob(together.NOTE)
    note.write_text('{"correlation": 1}')
    with pytest.raises(AssertionError, match="again"):
        together.learned_together(a, b)  # what is no answer is none


def test_rows_that_both_runs_were_fitted_to_are_predicted_as_if_they_were_not(
    table, tmp_path, monkeypatch, kernels_in_parts
):
    """Of rows that it knows a run's errors are too small, and its surface's and noise's offset each other."""
    from app.cli import main
    from app.workflow import together

    made = []
    for target in ("download", "upload"):
        path = tmp_path / target
        settings = ("--set", "options={steps=40,n_targets=200,metric=false}")
        line = ["fit", str(table), "--target", target, "--method", "local-gp", *settings, "-o", str(path)]
        assert main([*line, "-q"]) == 0
        made.append(load(path))
    told = []

    def kept(*columns):
        told.append(columns)
        return honest(*columns)

    honest = together.cross_correlation
    monkeypatch.setattr(together, "cross_correlation", kept)
    _, words = together._learned(*made, None)
    assert words == "training"
    monkeypatch.setattr(together, "_without", lambda run, *_: run.model)
    together._learned(*made, None)
    (a, b, *shares), (known_a, known_b, *_) = told
    assert np.mean(known_a**2) < 0.9 * np.mean(a**2) and np.mean(known_b**2) < 0.9 * np.mean(b**2)
    assert all(0.8 < np.mean(z**2) < 1.25 for z in (a, b))
    assert all(share.max() <= 1 for share in shares)


def test_a_method_that_cannot_forget_is_taken_as_it_is(run, upload, table, tmp_path):
    from app.cli import main
    from app.workflow.rows import observations_of
    from app.workflow.together import _without

    path = tmp_path / "trees"
    assert (
        main(["fit", str(table), "--method", "dnn", "--hidden", "8", "--epochs", "1", "-o", str(path), "-q"])
        == 0
    )
    found = load(path)
    assert _without(found, observations_of(found, None), np.arange(50)) is found.model


@pytest.mark.parametrize(
    ("n", "words"), [(1, "share 1 row, and it takes 30"), (29, "share 29 rows, and it takes 30")]
)
def test_runs_that_share_few_rows_are_refused(run, upload, n, words):
    from app.workflow.rows import observations_of
    from app.workflow.together import _shared

    a, b = load(run), load(upload)
    rows, others = (observations_of(one, None) for one in (a, b))
    first = np.flatnonzero(rows.usable & others.usable)[:n]
    few = replace(rows, usable=np.isin(np.arange(len(rows.t)), first))
    with pytest.raises(InvalidInput, match=words):
        _shared(a, b, few, others)
