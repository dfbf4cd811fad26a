"""Shared by every test. Importing geogp first sets OpenMP's waiting before torch is loaded."""

import sys

from tests.shapes import install

install("app", "geogp", "maps", "data_pipelines")  # before their first import

import gc  # noqa: E402
import os  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from pathlib import Path  # noqa: E402

import pytest  # noqa: E402

import geogp  # noqa: E402, F401
from tests.quick import in_parts  # noqa: E402

gc.set_threshold(20_000, 20, 100)  # the usual 700, 10, 10 spends 1.7 of 17 s on collecting, this .65


def pytest_collection_finish() -> None:
    """What is there by now stays: the collector need not look at it again."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Notebooks first: each takes long, one after the other, and another worker would wait for the last of them. Files that
    drive a browser, which waits for a third of its time, lie evenly among the others, so that one of these runs beside."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.split("::")[0], []).append(item)
    browsing = [name for name, held in files.items() if any(i.get_closest_marker("browser") for i in held)]
    others = sorted(
        files.keys() - {*browsing}, key=lambda name: ("tests/notebooks/" not in name, [*files].index(name))
    )
    between = len(others) / (len(browsing) + 1)
    place = {name: float(k) for k, name in enumerate(others)}
    place.update((name, (k + 1) * between - 0.5) for k, name in enumerate(browsing))
    items[:] = [item for name in sorted(files, key=place.__getitem__) for item in files[name]]


@pytest.fixture(autouse=True)
def nothing_said_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said once in a session is said once in a test."""
    if "geogp.engines.asked" in sys.modules:
        monkeypatch.setattr("geogp.engines.asked._TOLD", set())


@pytest.fixture
def kernels_in_parts() -> Iterator[None]:
    """No kernel is fitted to all rows together: for what does not hang on the kernel."""
    with in_parts():
        yield


@pytest.fixture
def compared_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """`compare` fits in this process: each of its own takes seconds to import. `tests/app/test_apart.py` starts them."""
    monkeypatch.setattr("app.workflow.steps.compare.apart", lambda work, what, /, **asked: work(**asked))


@pytest.fixture
def tolerance(request: pytest.FixtureRequest) -> float:
    """The bound that a test's mark `agrees` promises (`tests/agreement.py`)."""
    mark = request.node.get_closest_marker("agrees")
    assert mark is not None, "only a test marked `agrees` has a tolerance"
    asked = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    for name in ("name", "method"):
        assert name not in asked or asked[name] in mark.kwargs["methods"], f"{asked} is not in the mark"
    return float(mark.kwargs["tolerance"])


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """No test reads or writes the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    old, os.environ["GEOGP_CACHE"] = os.environ.get("GEOGP_CACHE"), str(folder)
    yield folder
    os.environ.pop("GEOGP_CACHE") if old is None else os.environ.update(GEOGP_CACHE=old)
