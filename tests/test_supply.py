"""What is installed is what is pinned, fits together and may be passed on; nothing but the named addresses is asked."""

import ast
import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.supply import ROOT, brought_by, declared, installed, licence, may_be_passed_on, page, pins

PACKAGES = ("app", "geogp", "maps", "data_pipelines")
#: What a build of torch for GPUs brings beside: versions are that build's, and licences NVIDIA's, as the page says in words.
OF_A_GPU_BUILD = {
    name for name in brought_by([Requirement("torch")]) if re.fullmatch(r"(nvidia|cuda)-.+|triton", name)
}
RUNTIME = sorted(name for name in brought_by(declared("dependencies")) - OF_A_GPU_BUILD if installed(name))
#: The files that may open connections, or listen, and by what.
NETWORK = {
    "data_pipelines/download.py": {"http.client", "urllib.request", "urllib.error"},
    "data_pipelines/readers/mirror.py": {"pyarrow.fs"},
    # the scheduler that was named; 127.0.0.1
    "app/cluster/__init__.py": {
        "distributed",
        "distributed.Client",
        "distributed.KilledWorker",
        "distributed.LocalCluster",
        "distributed.comm",
        "distributed.comm.CommClosedError",
    },
    "app/dashboard/security.py": {"socket"},  # this machine's name
    "app/dashboard/server.py": {"socket", "webbrowser"},  # listens; opens the page
}
#: Modules by which a program asks others.
ASKING = re.compile(
    r"(urllib\.(request|error)|http\.client|socket|ssl|ftplib|smtplib|webbrowser|asyncio\.streams|requests|httpx2?|aiohttp|"
    r"urllib3|fsspec|s3fs|boto3?|paramiko|pyarrow\.fs|websockets?|distributed)(\..*)?"
)
#: Hosts that are named and never asked: namespaces, schemas, links to follow, an example.
NAMED = {
    "www.w3.org", "mrcc.com", "raw.githubusercontent.com", "reproducible-builds.org", "github.com", "example.org", "10.0.0.5",
}  # fmt: skip


def test_what_is_installed_fits_together() -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_what_is_installed_is_what_is_pinned() -> None:
    """A build's own mark, as +cpu of torch, aside."""
    other = {
        n: version(n) for n, pinned in pins().items() if installed(n) and version(n).split("+")[0] != pinned
    }
    assert not other


def test_all_that_a_setup_brings_is_pinned() -> None:
    assert len(RUNTIME) > 60 and not set(RUNTIME) - set(pins()) - {"geogp"}


@pytest.mark.parametrize("name", RUNTIME)
def test_a_licence_may_be_passed_on(name: str) -> None:
    assert may_be_passed_on(licence(name)), f"{name} says {licence(name)!r}"


def test_the_page_lists_them_all() -> None:
    text = page()
    assert all(f"| {name} | {version(name)} | " in text for name in RUNTIME)


# -- addresses ------------------------------------------------------------------------------------------


def files(*endings: str) -> list[Path]:
    return [p for package in PACKAGES for p in sorted((ROOT / package).rglob("*")) if p.suffix in endings]


def test_only_the_named_files_open_connections() -> None:
    found: dict[str, set[str]] = {}
    for path in files(".py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            asking = {name for name in names if ASKING.fullmatch(name)}
            if asking:
                found.setdefault(str(path.relative_to(ROOT)), set()).update(asking)
    assert found == NETWORK


def test_only_the_addresses_of_the_security_page_are_asked() -> None:
    """Its table names each host that the code holds; all others that stand in the code are names, not asked."""
    section = (
        (ROOT / ".github/SECURITY.md").read_text(encoding="utf-8").split("## Addresses")[1].split("\n## ")[0]
    )
    told = set(re.findall(r"`(?:https|s3)://([\w.-]+)", section))
    held = {
        host
        for path in files(".py", ".js", ".html", ".css", ".j2")
        if "vendor" not in path.parts
        for host in re.findall(r"(?:https?:)?//([\w-]+(?:\.[\w-]+)+)", path.read_text(encoding="utf-8"))
    }
    assert {"ookla-open-data.s3.amazonaws.com", "www2.census.gov"} <= held & told
    assert not held - told - NAMED


#: Ends at any attempt to find or reach a host.
DEAF = """
import json, sys
def deaf(event, arguments):
    asked = event in ("socket.getaddrinfo", "socket.gethostbyname", "urllib.Request", "webbrowser.open")
    if asked or (event in ("socket.connect", "socket.sendto") and isinstance(arguments[1], tuple)):
        print(event, arguments, file=sys.stderr)
        sys.stderr.flush()
        import os
        os._exit(77)
sys.addaudithook(deaf)
from app.cli import main
for line in json.loads(sys.argv[1]):
    if code := main(line):
        sys.exit(code)
"""


def test_a_map_with_its_catalogue_is_made_without_a_network(tmp_path: Path) -> None:
    from data_pipelines.synthetic import write_world
    from tests.app.conftest import TINY

    write_world(tmp_path / "world", size="small")
    table, run = str(tmp_path / "obs.parquet"), str(tmp_path / "run")
    lines = [
        ["ingest", "--source", "synthetic", "--root", str(tmp_path / "world"), "-o", table],
        ["fit", table, "--method", "dbk-silu", *TINY, "-o", run],
        ["export", run, "-o", str(tmp_path / "maps"), "--format", "cog,html", "--resolution", "20000"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", DEAF, json.dumps(lines)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    line = [
        "ingest",
        "--quarters",
        "2023Q1",
        "--region",
        "HI",
        "--root",
        "http://127.0.0.1:9",
        "-o",
        f"{table}2",
    ]
    heard = subprocess.run(
        [sys.executable, "-c", DEAF, json.dumps([line])], capture_output=True, text=True, cwd=ROOT
    )
    assert heard.returncode == 77  # what it would hear
