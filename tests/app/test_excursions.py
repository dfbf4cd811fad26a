"""`geogp excursions`: the sets hold their probability among other joint draws, and never exceed single pixels' maps."""

import json

import numpy as np
import pytest
import rasterio

from geogp.areas import surface
from geogp.run import load


@pytest.mark.parametrize("side", ["above", "below"])
def test_the_set_holds_its_probability_in_fresh_draws(side, cli, run, tmp_path):
    line = (
        "excursions",
        run,
        "-o",
        tmp_path / "out",
        "--resolution",
        12_000,
        "--level",
        0.8,
        "--samples",
        1500,
    )
    result = cli(*line, f"--{side}", 60, "--json")
    assert result.code == 0, result.err
    document = json.loads(result.out)
    assert [f["path"] for f in document["files"] if f["kind"] == "cog"] == [
        "excursion_60.tif",
        "excursion_set_60.tif",
    ]
    with rasterio.open(tmp_path / "out" / "excursion_60.tif") as src:
        function, transform, tags = src.read(1), src.transform, src.tags()
    with rasterio.open(tmp_path / "out" / "excursion_set_60.tif") as src:
        inside = src.read(1)
    known = np.isfinite(function)
    assert tags["excursion_side"] == side
    np.testing.assert_array_equal(inside[known], function[known] >= 0.8)
    row, col = np.nonzero(inside == 1)
    assert 0 < len(row) < known.sum()
    loaded = load(run)
    found = surface(loaded.model, loaded.inputs(np.column_stack(transform * (col + 0.5, row + 0.5))))
    y = np.concatenate(list(found.batches(1500, 99)), axis=1)
    score = float(loaded.target.to_score(60))
    hold = (y > score if side == "above" else y < score).all(axis=0).mean()
    assert hold >= 0.8 - 4 * np.hypot(*[0.4 / np.sqrt(1500)] * 2)
    told = document["sets"][0]
    assert told["set_km2"] == pytest.approx(144 * len(row)) and told["set_km2"] <= told["single_km2"]
    assert told["set_share"] == pytest.approx(len(row) / known.sum())
    again = cli(*line, f"--{side}", 60)
    assert again.code == 3 and "exists" in again.err


@pytest.mark.parametrize(
    ("options", "words", "code"),
    [
        (("--above", 60, "--below", 20), "one at a time", 2),
        (("--above", 60, "--resolution", 300), "at most", 3),
        (("--above", -3), "got -3", 3),
        (("--samples", 50), "at least 100", 3),
        (("--level", 1), "--level", 3),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(options, words, code, cli, run, tmp_path):
    result = cli("excursions", run, "-o", tmp_path / "out", *options)
    assert result.code == code and words in result.err, result.err
    assert len(result.err.strip().splitlines()) == 1 and not (tmp_path / "out").exists()
