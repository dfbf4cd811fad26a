"""What is installed with GeoGP: which distributions, under which licences; and the page that `make docs` makes of it."""

import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import metadata, packages_distributions, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DISTRIBUTIONS = {canonicalize_name(name) for names in packages_distributions().values() for name in names}
#: Licences that may be passed on with other software: permissive, and weak copyleft by file (MPL).
ALLOWED = {
    "MIT", "MIT-CMU", "BSD", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "ISC", "Zlib", "BSL-1.0", "PSF-2.0", "CC0-1.0", "MPL-2.0",
    "Apache-2.0", "Apache-2.0 WITH LLVM-exception",
}  # fmt: skip
#: How metadata older than SPDX expressions call them.
WORDS = {
    "MIT License": "MIT", "BSD License": "BSD", "New BSD": "BSD-3-Clause", "3-Clause BSD License": "BSD-3-Clause",
    "BSD 3-Clause License": "BSD-3-Clause", "Apache Software License": "Apache-2.0", "Apache License": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0", "ISC License (ISCL)": "ISC", "Python Software Foundation License": "PSF-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}  # fmt: skip


def declared(part: str) -> list[Requirement]:
    """Requirements of a part of pyproject.toml: "dependencies" or an extra."""
    lines = PROJECT["dependencies"] if part == "dependencies" else PROJECT["optional-dependencies"][part]
    return [Requirement(line) for line in lines]


def pins() -> dict[str, str]:
    """Name -> version of constraints.txt."""
    lines = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    return {canonicalize_name(name): pinned for name, pinned in lines}


def installed(name: str) -> bool:
    return name in DISTRIBUTIONS


def brought_by(requirements: Iterable[Requirement]) -> set[str]:
    """Names of what installing `requirements` brings; what is not installed here brings only itself."""
    seen: set[tuple[str, frozenset[str]]] = set()
    todo = list(requirements)
    while todo:
        wanted = todo.pop()
        name, extras = canonicalize_name(wanted.name), frozenset(wanted.extras or {""})
        if (name, extras) not in seen:
            seen.add((name, extras))
            further = [Requirement(line) for line in (requires(name) if installed(name) else None) or []]
            todo += [
                r for r in further if not r.marker or any(r.marker.evaluate({"extra": e}) for e in extras)
            ]
    return {name for name, _ in seen}


def licence(name: str) -> str:
    """What a distribution says of its licence, as an SPDX expression where it is a usual one; "unknown" where nothing."""
    told = metadata(name)
    if told.get("License-Expression"):
        return str(told["License-Expression"])
    field = str(told.get("License") or "").split("\n")[0]  # some give the whole text
    classes = [
        c.rsplit(" :: ", 1)[-1] for c in told.get_all("Classifier") or [] if c.startswith("License ::")
    ]
    given = [*([field] if 0 < len(field) < 40 else []), *classes]
    known = [found for text in given if (found := WORDS.get(text, text)) in ALLOWED]
    return [*known, *given, "unknown"][0]


def may_be_passed_on(expression: str) -> bool:
    """Whether all parts of a licence expression that must hold are `ALLOWED`.

    Examples
    --------
    >>> may_be_passed_on("GPL-3.0-only OR (MIT AND ISC)"), may_be_passed_on("MIT AND GPL-3.0-only"), may_be_passed_on("unknown")
    (True, False, False)
    """

    def held(text: str) -> bool:
        return all(part.strip(" ()") in ALLOWED for part in re.split(r"\bAND\b", text))

    return any(held(choice) for choice in re.split(r"\bOR\b", expression))


def page() -> str:
    """The page of licences."""
    names = sorted(name for name in brought_by(declared("dependencies")) if installed(name))
    rows = "".join(f"| {name} | {version(name)} | {licence(name)} |\n" for name in names)
    return (
        "# What comes with GeoGP\n\n"
        "What `make setup` installs, and the licence that each says it has; a test holds them to a list of licences that "
        "may be passed on. Wheels bring libraries of their own: those of shapely, rasterio and pyogrio GEOS (LGPL-2.1, linked "
        "dynamically), those of a CUDA build of torch NVIDIA's, which are not free software. In this repository: Leaflet "
        "(BSD-2-Clause), us-atlas (ISC).\n\n"
        f"| distribution | version | licence |\n|---|---|---|\n{rows}"
    )
