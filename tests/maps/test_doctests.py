"""Every example in a docstring of maps runs and gives what it shows; `ds` in them is a prediction Dataset."""

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import maps

MODULES = sorted(["maps", *(m.name for m in pkgutil.walk_packages(maps.__path__, "maps."))])


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name, make, tmp_path, monkeypatch) -> None:
    module = importlib.import_module(name)
    assert "doctest: +SKIP" not in Path(str(module.__file__)).read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(
        module,
        extraglobs={"ds": make()},
        optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS,
    )
    assert result.failed == 0, f"{result.failed} of {result.attempted} examples in {name} differ"
