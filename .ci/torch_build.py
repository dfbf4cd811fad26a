"""Which build of torch `make setup` takes when TORCH is unset: prints pip's option for it, and says why on stderr.

Without an NVIDIA driver the CPU build does all that can be done, in a tenth of the download. It has an index of its
own; where that does not answer, the build is whichever pip's own index has.
"""

import shutil
import sys
import threading
import urllib.request
from http.client import HTTPException
from pathlib import Path

#: Waiting for the index at most this long, names looked up included.
SECONDS = 4


def has_driver() -> bool:
    return bool(shutil.which("nvidia-smi")) or Path("/proc/driver/nvidia/version").exists()


def answers(url: str, seconds: float = SECONDS) -> bool:
    """Whether `url` can be opened. In a thread, for no time-out covers the look-up of a name."""
    opened = []

    def probe() -> None:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=seconds) as reply:
                opened.append(reply.status)
        except (OSError, HTTPException):  # no name, no route, no reply, refused, not trusted, not HTTP
            pass

    thread = threading.Thread(target=probe, daemon=True)
    thread.start()
    thread.join(seconds)
    return bool(opened)


def choose(index: str) -> tuple[str, str]:
    """(pip's option, the sentence that says what is taken and why)."""
    if has_driver():
        return "", "pip's own build, since this machine has an NVIDIA driver"
    if answers(f"{index}/torch/"):
        return f"--index-url {index}", "the CPU build, since this machine has no NVIDIA driver"
    return (
        "",
        f"pip's own build: this machine has no NVIDIA driver, but the CPU builds at {index} do not answer",
    )


if __name__ == "__main__":
    option, why = choose(sys.argv[1])
    print(f"torch: {why} (TORCH=cpu or TORCH=cuda chooses otherwise)", file=sys.stderr)
    print(option)
