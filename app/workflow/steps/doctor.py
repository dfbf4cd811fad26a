"""What this machine has: versions, device, libraries, memory, disk; and what is missing."""

import importlib
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.workflow.machine import versions

#: Importable or something does not work: module -> what needs it.
NEEDED = {
    "torch": "models",
    "safetensors": "runs",
    "pyarrow": "tables",
    "geopandas": "regions",
    "rasterio": "rasters",
    "h5netcdf": "NetCDF",
    "matplotlib": "figures",
    "folium": "maps in HTML",
    "streamlit": "the dashboard",
}
LOW_MEMORY_GIB, LOW_DISK_GIB = 2.0, 1.0


@dataclass(frozen=True)
class Report:
    """Findings by topic, and a sentence for each problem."""

    findings: dict[str, dict[str, Any]]
    problems: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        return {"schema": 1, "ok": not self.problems, **self.findings, "problems": list(self.problems)}

    def rows(self) -> list[list[str]]:
        return [
            [f"{topic} {name}", str(v)] for topic, facts in self.findings.items() for name, v in facts.items()
        ]


def doctor(folder: str | Path = ".") -> Report:
    """Look around; nothing is written or fetched."""
    problems = []
    for name, purpose in NEEDED.items():
        try:
            importlib.import_module(name)
        except Exception as error:  # a broken binary raises anything
            problems.append(f"{name} cannot be imported ({error}), which {purpose} need; install geogp again")
    libraries, trouble = _libraries()
    problems += trouble
    memory = _memory()
    disk: dict[str, Any] = {
        "free_gib": round(shutil.disk_usage(folder).free / 2**30, 1),
        "folder": str(Path(folder).resolve()),
    }
    if "available_gib" in memory and memory["available_gib"] < LOW_MEMORY_GIB:
        problems.append(f"only {memory['available_gib']} GiB of memory are available; close other programs")
    if disk["free_gib"] < LOW_DISK_GIB:
        problems.append(f"only {disk['free_gib']} GiB of disk are free in {disk['folder']}")
    found: dict[str, dict[str, Any]] = {
        "versions": dict(versions()),
        "device": _device(),
        "libraries": libraries,
        "memory": memory,
        "disk": disk,
    }
    return Report(found, tuple(problems))


def _libraries() -> tuple[dict[str, Any], list[str]]:
    """GDAL and PROJ as they are linked, and whether they work."""
    found: dict[str, Any] = {}
    problems = []
    try:
        import rasterio
        from rasterio.drivers import raster_driver_extensions

        found["gdal"] = rasterio.__gdal_version__
        if "tif" not in raster_driver_extensions():
            problems.append("GDAL has no GeoTIFF driver; install rasterio from a wheel")
        import pyproj

        found["proj"] = pyproj.__proj_version__
        found["proj_data"] = pyproj.datadir.get_data_dir()
        lon, _ = pyproj.Transformer.from_crs(4326, 3857, always_xy=True).transform(180.0, 0.0)
        if abs(lon - 20037508.342789244) > 1e-3:
            problems.append("PROJ does not project as it should; look at PROJ_DATA in the environment")
        import shapely

        found["geos"] = ".".join(map(str, shapely.geos_version))
    except Exception as error:
        problems.append(f"GDAL, PROJ or GEOS do not work ({error}); install geogp again")
    return found, problems


def _device() -> dict[str, Any]:
    try:
        import torch
    except Exception:
        return {"compute": "torch is missing"}
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "compute": "cuda: " + ", ".join(names) if names else "cpu",
        "cores": str(os.cpu_count()),
        "torch_threads": str(torch.get_num_threads()),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY", "not set"),
        "gomp_spincount": os.environ.get("GOMP_SPINCOUNT", "not set"),
        "python": sys.executable,
    }


def _memory() -> dict[str, Any]:
    """Total and available memory; empty where /proc is not there."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    kib = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return {
        "total_gib": round(kib["MemTotal"] / 2**20, 1),
        "available_gib": round(kib.get("MemAvailable", kib["MemFree"]) / 2**20, 1),
    }
