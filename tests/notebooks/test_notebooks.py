"""The notebooks run from a fresh kernel, show what they promise, and are stored without outputs."""

import base64
import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

FOLDER = Path(__file__).parents[2] / "notebooks"
#: notebook -> pictures that it shows.
BOOKS = {"1-quick-start": 2, "2-your-state": 1, "3-methods": 1, "4-other-data": 1, "5-areas-change": 1}
#: The first and the last call most of what the others do; `make test-notebooks` runs all.
RUN = list(BOOKS) if os.environ.get("GEOGP_NOTEBOOKS") == "all" else ["1-quick-start", "5-areas-change"]


def test_these_are_all_and_they_are_stored_bare() -> None:
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(BOOKS)
    for path in FOLDER.glob("*.ipynb"):
        book = nbformat.read(path, 4)
        nbformat.validate(book)
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in book.cells)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", RUN)
def test_a_notebook_runs_and_shows_its_pictures(name: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FOLDER.parent), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # other tests draw into files
    book = nbformat.read(FOLDER / f"{name}.ipynb", 4)
    client = nbclient.NotebookClient(
        book, timeout=200, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    outputs = [output for cell in book.cells for output in cell.get("outputs", [])]
    pictures = [o["data"]["image/png"] for o in outputs if "image/png" in o.get("data", {})]
    assert len(pictures) == BOOKS[name]
    for picture in pictures:
        shown = np.array(Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB"))
        assert min(shown.shape[:2]) > 200 and len(np.unique(shown.reshape(-1, 3), axis=0)) > 30  # not a blank
    if os.environ.get("GEOGP_SHOWN"):
        nbformat.write(book, Path(os.environ["GEOGP_SHOWN"]) / f"{name}.ipynb")
