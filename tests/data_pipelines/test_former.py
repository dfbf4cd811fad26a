"""A source of the same name and date that is another file than before is told of, in one sentence."""

import json
import warnings
from pathlib import Path

import pytest

from data_pipelines import former
from data_pipelines.errors import DataWarning
from data_pipelines.observations import ingest

COLUMNS = {"x": "lon", "y": "lat", "value": "v"}


def said(output: Path, file: Path, **more) -> list[str]:
    """What an ingest of the file warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataWarning)
        ingest(source="csv", file=file, columns=COLUMNS, output=output, **more)
    return [str(w.message) for w in caught if issubclass(w.category, DataWarning)]


def points(path: Path, value: float) -> Path:
    path.write_text(f"lon,lat,v\n-158.0,21.0,{value}\n-158.1,21.1,2.0\n")
    return path


def test_another_file_of_the_same_name_is_told_of(tmp_path):
    first, second = tmp_path / "a.parquet", tmp_path / "b.parquet"
    source = points(tmp_path / "points.csv", 1.0)
    assert said(first, source) == [] and said(second, source) == []
    points(source, 1.5)
    (words,) = said(first, source, overwrite=True)
    assert words.startswith("points.csv is not what ")
    assert "was made from" in words and "--expect-sha256" in words and "\n" not in words


def test_another_name_or_another_quarter_is_another_source(tmp_path):
    said(tmp_path / "a.parquet", points(tmp_path / "points.csv", 1.0))
    assert said(tmp_path / "b.parquet", points(tmp_path / "others.csv", 7.0)) == []
    q3, q4 = (
        {"sources": [{"url": "x/t.parquet", "quarter": quarter, "sha256": quarter}]}
        for quarter in ("2023Q3", "2023Q4")
    )
    assert former.changed(q3, q4) == []


def test_a_mirror_that_differs_is_told_of():
    """Quarters are the same file wherever they lie; boundaries and urban areas count, too; no hash, no word."""
    old = {
        "sources": [{"url": "https://bucket/q=4/tiles.parquet", "quarter": "2023Q4", "sha256": "aa"}],
        "boundary_source": {"url": "states.zip", "sha256": "bb"},
        "urban": {"source": "urban.zip", "sha256": "cc"},
    }
    new = json.loads(json.dumps(old).replace("https://bucket", "/mirror"))
    assert former.changed(new, old) == []
    for digest, name in (("aa", "tiles.parquet"), ("bb", "states.zip"), ("cc", "urban.zip")):
        altered = json.loads(json.dumps(new).replace(f'"{digest}"', '"ff"'))
        assert former.changed(altered, old) == [name]
        assert former.changed(json.loads(json.dumps(new).replace(f'"{digest}"', "null")), old) == []
    assert former.changed(new, {}) == former.changed({}, old) == []


@pytest.mark.parametrize("junk", [b"", b"PAR1junkPAR1", b'{"data": 7}'])
def test_files_of_others_beside_the_output_are_passed_over(tmp_path, junk):
    (tmp_path / "other.parquet").write_bytes(junk)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_bytes(junk)
    assert said(tmp_path / "a.parquet", points(tmp_path / "points.csv", 1.0)) == []
