"""What a result was made with: device, versions, and how much memory it took."""

import os
import resource
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

import geogp

PACKAGES = ("geogp", "torch", "numpy", "scipy", "scikit-learn", "gpytorch", "pyarrow", "xarray", "odc-geo")


def peak_rss_mb() -> float:
    """Largest resident memory of this process so far, MB (2**20 bytes).

    Linux' VmHWM where there is one: ru_maxrss starts at the size of the process that started this one.
    """
    if (told := resident("VmHWM")) is not None:
        return told / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def resident(name: str) -> int | None:
    """Bytes of this process' memory that Linux tells under a name, "VmRSS" now or "VmHWM" at most; None elsewhere."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 2**10 for line in lines if line.startswith(f"{name}:")), None)


def versions() -> dict[str, str]:
    """Versions of Python and the packages that decide a result."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = geogp.__version__ if name == "geogp" else "absent"
    return found | {"threads": str(torch.get_num_threads()), "platform": os.uname().machine}
