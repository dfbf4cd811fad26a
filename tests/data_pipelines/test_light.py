"""What the command line imports of the sources stays light and apart."""

import subprocess
import sys

from data_pipelines.sources import SOURCES


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
