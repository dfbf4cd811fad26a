"""`pip install`, by uv, which takes a tenth of the time, where pip finds it and it succeeds; else by pip itself.

Called with pip's arguments, by the Python of the environment that is installed into. Uv reads no settings of pip: indexes,
folders of wheels and constraints are handed on, so that both install the same.
"""

import importlib.util
import os
import subprocess
import sys
from ast import literal_eval
from pathlib import Path

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
#: As pip does, the newest of all indexes; and nothing of what somebody told uv for other projects.
UV = [
    sys.executable,
    "-m",
    "uv",
    "--quiet",
    "--no-config",
    "pip",
    "install",
    "--index-strategy",
    "unsafe-best-match",
]
CONSTRAINTS = str(Path(__file__).parents[1] / "constraints.txt")
#: A setting of pip -> uv's option.
OPTIONS = {
    "constraint": "--constraint",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "index-url": "--default-index",
    "trusted-host": "--allow-insecure-host",
}
#: Settings that change nothing of what is installed.
ASIDE = {
    "cache-dir", "cert", "default-timeout", "disable-pip-version-check", "no-cache-dir", "no-input", "progress-bar",
    "quiet", "require-virtualenv", "retries", "root-user-action", "timeout", "user-agent",
}  # fmt: skip


def settings(listed: str) -> dict[str, str]:
    """Setting -> value, of the lines of `pip config list`; the environment's win."""
    found = {}
    for scope in ("global.", "install.", ":env:."):
        for line in listed.splitlines():
            name, _, value = line.partition("=")
            if name.startswith(scope):
                found[name.removeprefix(scope)] = str(literal_eval(value))
    return found


def handed_on(told: dict[str, str]) -> list[str]:
    """Uv's options for settings of pip.

    Raises
    ------
    KeyError
        for one of which nobody said what it is to uv
    """
    return [
        word
        for name, value in told.items()
        if name not in ASIDE
        for each in value.split()
        for word in (OPTIONS[name], each)
    ]


def with_uv(arguments: list[str]) -> bool:
    """Whether uv installed them."""
    listed = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=False).stdout
    told = settings(listed)
    if "--index-url" in arguments:  # instead of the usual one
        told.pop("index-url", None)
    try:
        options = handed_on(told)
    except KeyError:
        return False
    if importlib.util.find_spec("uv") is None:
        get = [*PIP, "install", "--quiet", "--only-binary", ":all:", "-c", CONSTRAINTS, "uv"]
        if subprocess.run(get, capture_output=True, check=False).returncode:
            return False
    environment = {"SSL_CERT_FILE": told["cert"]} if "cert" in told else {}
    line = [*UV, "--python", sys.executable, *options, *arguments]
    return not subprocess.run(line, env=environment | os.environ, capture_output=True, check=False).returncode


if __name__ == "__main__":
    if not with_uv(sys.argv[1:]):
        sys.exit(subprocess.run([*PIP, "install", "--quiet", *sys.argv[1:]], check=False).returncode)
