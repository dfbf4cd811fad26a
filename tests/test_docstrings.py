"""Every example in a docstring of the four packages runs and gives what it shows."""

import ast
import doctest
import importlib
import inspect
import pkgutil
import warnings

import pytest

from tests.maps.conftest import make

PACKAGES = ("app", "geogp", "maps", "data_pipelines")
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
#: To import these is to run them.
SCRIPTS = ("__main__", "dashboard.script")


def modules() -> list[str]:
    found = [
        module.name
        for name in PACKAGES
        for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}.")
    ]
    return sorted(name for name in (*PACKAGES, *found) if not name.endswith(SCRIPTS))


def examples(name: str) -> list[doctest.DocTest]:
    """Those of a module; in maps, `ds` is a prediction Dataset."""
    given = {"ds": make()} if name.startswith("maps.") else {}
    found = doctest.DocTestFinder().find(importlib.import_module(name), name, extraglobs=given)
    return [test for test in found if test.examples]


def source(name: str) -> str:
    return inspect.getsource(importlib.import_module(name))


def written(name: str) -> int:
    """How many docstrings with an example a file holds, counted another way."""
    documented = ast.Module, ast.ClassDef, ast.FunctionDef
    nodes = [node for node in ast.walk(ast.parse(source(name))) if isinstance(node, documented)]
    return sum(">>> " in (ast.get_docstring(node) or "") for node in nodes)


@pytest.mark.parametrize("name", modules())
def test_examples_run(name: str, tmp_path, monkeypatch) -> None:
    found = examples(name)
    assert "+SKIP" not in source(name)
    assert len(found) == written(name), f"the finder sees {[test.name for test in found]} only"
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        # An example may fit a method that says at fit that its latent sd is not distance-aware.
        warnings.simplefilter("ignore", UserWarning)
        runner = doctest.DocTestRunner(optionflags=OPTIONS)
        for test in found:
            runner.run(test)
    assert runner.failures == 0, f"{runner.failures} of {runner.tries} examples in {name} differ"


def test_there_are_examples() -> None:
    assert {name.split(".")[0] for name in modules() if written(name)} == set(PACKAGES)
