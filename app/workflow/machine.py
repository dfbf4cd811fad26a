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
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 2**10
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def versions() -> dict[str, str]:
    """Versions of Python and the packages that decide a result."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = geogp.__version__ if name == "geogp" else "absent"
    return found | {"threads": str(torch.get_num_threads()), "platform": os.uname().machine}
