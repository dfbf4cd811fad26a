"""Examples in docstrings run, and what the command line imports stays light and apart."""

import doctest
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import data_pipelines
from data_pipelines.sources import SOURCES

MODULES = [module.name for module in pkgutil.walk_packages(data_pipelines.__path__, "data_pipelines.")]
WITH_EXAMPLES = [
    name
    for name in MODULES
    if any(test.examples for test in doctest.DocTestFinder().find(importlib.import_module(name)))
]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_run(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted and not result.failed


def test_every_example_is_found():
    """Counted another way: in the files, as text."""
    files = {name: Path(importlib.import_module(name).__file__) for name in MODULES}
    written = [name for name, file in files.items() if " >>> " in file.read_text(encoding="utf-8")]
    assert written == WITH_EXAMPLES and len(written) >= 10


def test_the_command_line_can_list_the_sources_without_loading_anything_heavy():
    heavy = [
        "numpy",
        "pandas",
        "geopandas",
        "pyarrow",
        "shapely",
        "pyproj",
        "torch",
        "scipy",
        "geogp",
        "maps",
    ]
    code = (
        "import sys, data_pipelines.errors; from data_pipelines.sources import SOURCES; "
        f"print(*SOURCES, [m for m in {heavy} if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == f"{' '.join(SOURCES)} []"
    assert data_pipelines.__doc__
