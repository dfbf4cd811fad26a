"""The pages of `make docs`, made from README, CONTRIBUTING, CHANGELOG, the table of methods, the tests and the docstrings.

A new module, method or package is a new page without a line here.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from geogp.methods import METHODS
from geogp.pages import page

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # tests and benchmarks are no packages that are installed

from benchmarks import page as measured  # noqa: E402
from benchmarks import strata  # noqa: E402
from tests import agreement, mutants, supply  # noqa: E402
from tests.faults import table  # noqa: E402

PACKAGES = ("geogp", "maps", "data_pipelines", "app")
#: Written elsewhere -> the page it becomes. Links between them are followed.
WRITTEN = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    ".docs/cluster.md": "cluster.md",
    "tests/faults/README.md": "faults.md",
    ".github/SECURITY.md": "security.md",
    "benchmarks/RESULTS.md": "results.md",
    "benchmarks/NOTES.md": "notes.md",
    "benchmarks/SPEED.md": "speed.md",
}
#: Tables and figures that `geogp reproduce NAME -o benchmarks/reproductions` wrote.
REPRODUCED = ROOT / "benchmarks" / "reproductions"
PICTURES = (".github/demo.png", ".github/dashboard.png", ".github/areas.png")
#: Scripts, styles and pictures of another host; a link to follow is none.
OUTSIDE = re.compile(r"<(?:script|img|iframe|source|link)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


def modules(package: str) -> Iterator[str]:
    """Names of a package and all its public modules, rooms before what is in them."""
    for path in sorted((ROOT / package).rglob("*.py"), key=lambda p: (p.parent / p.stem).parts):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1] == "__init__":
            yield ".".join(parts[:-1])
        elif not any(part.startswith("_") for part in parts):
            yield ".".join(parts)


def rewritten(text: str) -> str:
    """With its links to other files turned into links to their pages."""
    for file, target in {**WRITTEN, **{picture: Path(picture).name for picture in PICTURES}}.items():
        text = re.sub(rf"\]\((?:\.\./)?{re.escape(file)}", f"]({target}", text)
    return text.replace("](LICENSE)", "](https://www.apache.org/licenses/LICENSE-2.0)")


def pages() -> dict[str, str]:
    """Where each page goes -> its markdown."""
    out = {target: rewritten((ROOT / file).read_text(encoding="utf-8")) for file, target in WRITTEN.items()}
    out |= {f"methods/{name}.md": page(name) for name in METHODS}
    out |= reproductions()
    rows = "".join(f"| [{name}]({name}.md) | {row.summary} |\n" for name, row in METHODS.items())
    out["correctness.md"] = agreement.page(list(METHODS), agreement.agreements())
    out["licences.md"] = supply.page()
    out["faults.md"] += (
        f"\n## Played in full\n\nBy `make test-faults`, what it keeps of each test.\n\n{table.page()}"
    )
    out["faults.md"] += (
        f"\n## What the tests notice\n\nBy `python -m tests.mutants --table`.\n\n{mutants.table()}"
    )
    out["faults.md"] += "\n".join(strata.report(measured.read(strata.RESULTS)["rows"])) + "\n"
    out["methods/index.md"] = f"# Methods\n\n| method | what it is |\n|---|---|\n{rows}"
    out |= {f"api/{name}.md": f"::: {name}\n" for package in PACKAGES for name in modules(package)}
    return out


def reproductions() -> dict[str, str]:
    """A page for each table or figure of the papers that was kept, with its picture, and one that lists them."""
    out, lines = {}, ["# The papers' tables and figures, ours beside theirs", ""]
    for file in sorted(REPRODUCED.glob("*.md")):
        text = file.read_text(encoding="utf-8")
        picture = f"\n![{file.stem}]({file.stem}.png)\n" if file.with_suffix(".png").exists() else ""
        out[f"reproductions/{file.name}"] = f"{text}{picture}\nBy `geogp reproduce {file.stem}`.\n"
        lines.append(f"- [{text.splitlines()[0].removeprefix('# ')}]({file.name})")
    lines += [
        "",
        "`geogp reproduce` names all there are; those that are missing here have not been run in full size.",
    ]
    return {**out, "reproductions/index.md": "\n".join(lines) + "\n"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    def room(package: str) -> list[Any]:
        return [{name.removeprefix(f"{package}."): f"api/{name}.md"} for name in modules(package)]

    methods = ["methods/index.md", *({name: f"methods/{name}.md"} for name in METHODS)]
    papers = [{Path(where).stem: where} for where in reproductions()]
    config.nav = [
        {"GeoGP": "index.md"},
        {
            "Guide": [
                {"Contributing": "contributing.md"},
                {"Methods": methods},
                {"Past one machine": "cluster.md"},
                {"Correctness": "correctness.md"},
                {"Faults": "faults.md"},
                {"Security and privacy": "security.md"},
                {"Licences": "licences.md"},
                {"Changelog": "changelog.md"},
            ]
        },
        {"Reference": [{package: room(package)} for package in PACKAGES]},
        {
            "Benchmarks": [
                {"Results": "results.md"},
                {"Speed": "speed.md"},
                {"Notes": "notes.md"},
                {"Papers": papers},
            ]
        },
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for where, text in pages().items():
        files.append(File.generated(config, where, content=text))
    for picture in PICTURES:
        files.append(File.generated(config, Path(picture).name, abs_src_path=str(ROOT / picture)))
    for path in sorted(REPRODUCED.glob("*.png")):
        files.append(File.generated(config, f"reproductions/{path.name}", abs_src_path=str(path)))
    return files


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Refuse a page that a reader's browser could not show without another host."""
    if found := OUTSIDE.search(output):
        raise PluginError(f"{page.file.src_uri} fetches from outside: {found[0]}")
    return output
