"""Examples in docstrings run, and the package stays light and apart."""

import doctest
import importlib
import subprocess
import sys

import pytest

import data_pipelines

MODULES = ["quadkey", "quarters", "observations", "splits", "sources.synthetic_world"]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    result = doctest.testmod(importlib.import_module(f"data_pipelines.{name}"))
    assert result.attempted and not result.failed


def test_importing_the_package_loads_nothing_heavy():
    heavy = ["numpy", "pandas", "geopandas", "pyarrow", "shapely", "torch", "scipy", "geogp", "maps"]
    code = (
        f"import sys, data_pipelines, data_pipelines.errors; print([m for m in {heavy} if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
    assert data_pipelines.__doc__
