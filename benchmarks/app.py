"""How long people wait at the dashboard: `python -m benchmarks.app RUN`, in Chromium, with nothing else from outside.

From the command to an open port, from the page to its map, from a choice to its picture, for one person; then for many
at once, who open the page and its planes, ask for quarters of places and hold a session with the page of a place. A cache of its own, filled before what is
called warm is timed.

With `--beside TABLE` fits to that table and exports of the run are made beside the many, one of each at a time and again and
again, into folders that are thrown away.
"""

import argparse
import functools
import itertools
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.exceptions import WebSocketException
from websockets.sync.client import connect
from websockets.typing import Subprotocol

#: seconds that whatever is waited for may take
PATIENCE = 900
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def served(run: Path, cache: Path, *more: str) -> Iterator[tuple[str, float, int]]:
    """The dashboard's address, the seconds from its command to its first answer, and the number of its process.

    more : arguments of `geogp app`, such as a second run
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = time.perf_counter()
    command = [sys.executable, "-m", "app", "app", str(run), *more, "--port", str(port), "--no-open"]
    with subprocess.Popen(
        command, env=os.environ | {"GEOGP_CACHE": str(cache)}, stderr=subprocess.DEVNULL
    ) as process:
        address = f"http://127.0.0.1:{port}"
        while time.perf_counter() - started < PATIENCE:
            try:
                with urllib.request.urlopen(f"{address}/geogp/progress", timeout=5):
                    break
            except OSError:
                time.sleep(0.05)
        try:
            yield address, time.perf_counter() - started, process.pid
        finally:
            process.terminate()


class Page:
    """One page in the browser, with what it asked for."""

    def __init__(self, browser: Any, address: str) -> None:
        self.context = browser.new_context(viewport={"width": 1440, "height": 900})
        self.page = self.context.new_page()
        self.page.set_default_timeout(1000 * PATIENCE)
        self.requests, self.bytes = 0, 0
        self.page.on("requestfinished", self._count)
        started = time.perf_counter()
        self.page.goto(address)
        self.wait("[data-ready]")
        self.seconds = time.perf_counter() - started

    def _count(self, request: Any) -> None:
        if request.url.startswith("http"):
            self.requests += 1
            self.bytes += request.sizes()["responseBodySize"]

    def wait(self, condition: str) -> None:
        self.page.locator(f"#frame{condition}").wait_for(state="attached")

    def timed(self, do: Callable[[], object], condition: str) -> float:
        """Seconds from doing something to what the page then says of itself."""
        started = time.perf_counter()
        do()
        self.wait(condition)
        return time.perf_counter() - started


def one_person(browser: Any, address: str) -> dict[str, float]:
    """Seconds of each thing that one person does."""
    visit = Page(browser, address)
    page = visit.page
    first = {"page open to first map": visit.seconds, "requests": visit.requests, "MB": visit.bytes / 1e6}

    def pick(layer: str) -> float:
        return visit.timed(lambda: page.check(f"input[name=layer][value={layer}]"), f"[data-layer={layer}]")

    layers = [pick(layer) for layer in ("exceedance", "measured", "median") if _has(page, layer)]
    level = visit.timed(lambda: page.select_option("#level", "80"), "[data-level='80']")
    threshold = visit.timed(lambda: page.fill("#threshold", "42"), "[data-threshold='42']")
    lat, lon = page.evaluate("(() => { const c = map_geogp.getCenter(); return [c.lat, c.lng]; })()")
    place = page.evaluate("JSON.parse(document.getElementById('geogp-data').textContent).places[0] ?? null")
    lat, lon = (place["lat"], place["lon"]) if place else (lat, lon)
    page.evaluate(f"map_geogp.setView([{lat}, {lon}], 10, {{animate: false}})")
    box = page.locator(".leaflet-container").bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    told = page.get_attribute("#frame", "data-said") or ""
    pointer = visit.timed(lambda: page.mouse.move(*middle), f"[data-said]:not([data-said='{told}'])")
    page.mouse.click(*middle)
    visit.wait("[data-card]")
    out = {
        **first,
        "layer": statistics.median(layers),
        "level": level,
        "threshold": threshold,
        "pointer read-out": pointer,
    }
    if _has(page, "similar"):
        out["click to kernel slice"] = pick("similar")
        pick("median")
    quarters = page.evaluate("[...document.querySelectorAll('#quarter option')].map((o) => o.value)")
    if len(quarters) > 1:
        before = quarters[-2]
        page.wait_for_timeout(1000)
        while (
            page.evaluate(
                "performance.getEntriesByType('resource').filter((e) => e.name.includes('ahead')).length"
            )
            < 1
        ):
            page.wait_for_timeout(500)
        step = visit.timed(lambda: page.select_option("#quarter", before), f"[data-quarter='{before}']")
        out["quarter, prefetched"] = step
    visit.context.close()
    return out


def _has(page: Any, layer: str) -> bool:
    return bool(page.locator(f"input[name=layer][value={layer}]").count())


def many(address: str, pid: int, users: int, seconds: float) -> dict[str, float]:
    """What as many people at once meet who open the page, its planes, the quarters of a place and, each in a session of their own,
    the page of a place in another quarter, again and again."""
    took, reruns, failed = list[float](), list[float](), list[str]()
    spec = json.loads(_get(address + "/").decode().split('id="geogp-data">')[1].split("</script>")[0])
    quarter, place = spec["start"]["q"] or "", (spec["places"] or [None])[0]
    paths = ["/", f"/geogp/planes?q={quarter}&v={spec['id']}"]
    if place and quarter:
        paths.append(f"/geogp/history?lat={place['lat']}&lon={place['lon']}")
    lat, lon = (place["lat"], place["lon"]) if place else (0.0, 0.0)
    quarters = spec["settings"]["quarters"] or [""]
    started = time.perf_counter()
    over, memory = started + seconds, [_megabytes(pid)]

    def timed(into: list[float], what: Callable[[], object]) -> None:
        begun = time.perf_counter()
        try:
            what()
            into.append(time.perf_counter() - begun)
        except (OSError, ConnectionError, WebSocketException) as error:
            failed.append(f"{type(error).__name__}: {error}")

    def user(k: int) -> None:
        time.sleep(k % 10 / 5)
        with session(address) as rerun:
            visits = itertools.count(k)
            while time.perf_counter() < over:
                for path in paths:
                    timed(took, functools.partial(_get, address + path))
                query = f"at={lat},{lon}&q={quarters[next(visits) % len(quarters)]}"
                timed(reruns, functools.partial(rerun, "place", query))
                time.sleep(2 + k % 5)

    people = [threading.Thread(target=user, args=(k,)) for k in range(users)]
    for person in people:
        person.start()
    for part in (0.25, 0.5, 0.75, 1.0):
        time.sleep(max(0.0, started + part * seconds - time.perf_counter()))
        memory.append(_megabytes(pid))
    for person in people:
        person.join()
    for said in sorted(set(failed))[:5]:
        print(f"failed: {said}", file=sys.stderr)
    quarters_of_it = ("before", "after a quarter of it", "after half", "after three quarters", "after")
    return {
        "answers": len(took),
        "reruns": len(reruns),
        "errors": len(failed),
        "p95": _p95(took),
        "p95 of reruns": _p95(reruns),
        **{f"memory {when}, MB": v for when, v in zip(quarters_of_it, memory, strict=True)},
    }


@contextmanager
def working_beside(run: Path, table: Path | None) -> Iterator[dict[str, float]]:
    """Fits to the table and exports of the run until the end, one of each at a time: how many ended well, and how many did not.

    The counts are there once it has ended; without a table nothing is done.
    """
    done: dict[str, float] = {}
    if table is None:
        yield done
        return
    over = threading.Event()
    with tempfile.TemporaryDirectory() as place:
        lines = {
            "fits": ["fit", str(table), "-o", f"{place}/run"],
            "exports": ["export", str(run), "-o", f"{place}/maps", "--format", "cog,netcdf"],
        }

        def work(name: str) -> None:
            while not over.is_set():
                command = [sys.executable, "-m", "app", *lines[name], "--overwrite", "-q"]
                with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
                    while process.poll() is None and not over.wait(0.2):
                        pass
                    if process.poll() is None:  # the users have gone
                        process.terminate()
                    elif process.returncode == 0:
                        done[f"{name} beside"] += 1
                    else:
                        done["errors beside"] += 1
                        print(f"failed: {process.stderr.read() if process.stderr else ''}", file=sys.stderr)

        done |= {"fits beside": 0, "exports beside": 0, "errors beside": 0}
        workers = [threading.Thread(target=work, args=(name,)) for name in lines]
        for worker in workers:
            worker.start()
        try:
            yield done
        finally:
            over.set()
            for worker in workers:
                worker.join()


def _p95(took: list[float]) -> float:
    return statistics.quantiles(took, n=20)[-1] if len(took) > 1 else float("nan")


@contextmanager
def session(address: str) -> Iterator[Callable[[str, str], None]]:
    """A session with one of the other pages over its websocket: a function that runs a page with an address and waits for its end."""
    from streamlit.proto.BackMsg_pb2 import BackMsg
    from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

    stream = address.replace("http", "ws", 1) + "/pages/_stcore/stream"
    with connect(stream, subprotocols=[Subprotocol("streamlit")], max_size=None) as socket:

        def rerun(page: str, query: str) -> None:
            asked = BackMsg()
            asked.rerun_script.query_string, asked.rerun_script.page_name = query, page
            socket.send(asked.SerializeToString())
            told = ForwardMsg()
            while told.WhichOneof("type") != "script_finished":
                told.ParseFromString(socket.recv(timeout=60, decode=False))
            if told.script_finished != ForwardMsg.FINISHED_SUCCESSFULLY:
                raise ConnectionError(f"the page {page} did not end well")

        yield rerun


def _get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return bytes(answer.read())


def _megabytes(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return float(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def chromium() -> str:
    """The program; without one this ends."""
    found = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    if found is None:
        sys.exit("There is no Chromium on this machine; install one.")
    return found


def crowd(chosen: argparse.Namespace, address: str, pid: int) -> dict[str, float]:
    """What the many meet, with what is asked for beside them."""
    with working_beside(chosen.run, chosen.beside) as done:
        told = many(address, pid, chosen.users, chosen.seconds)
    return {f"{chosen.users} users: {k}": v for k, v in (told | done).items()}


def alone_and_many(chosen: argparse.Namespace, cache: Path) -> dict[str, float]:
    """What one person meets in Chromium, with nothing kept and with all, and then the many."""
    from playwright.sync_api import sync_playwright

    rows: dict[str, float] = {}
    program = chromium()
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=program, args=["--no-sandbox"])
        with served(chosen.run, cache) as (address, seconds, _):
            rows["command to listening, first"] = seconds
            rows["page open to first map, first"] = Page(browser, address).seconds
        with served(chosen.run, cache) as (address, seconds, pid):
            rows["command to listening"] = seconds
            rows |= one_person(browser, address)
            rows |= crowd(chosen, address, pid)
        browser.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="run folder made by geogp fit")
    parser.add_argument("--users", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=30.0, help="that the users stay")
    parser.add_argument(
        "--beside", type=Path, metavar="TABLE", help="fit and export while the users are there"
    )
    parser.add_argument("--cache", type=Path, help="default: a new one, which is slow for a large run")
    parser.add_argument(
        "--crowd", action="store_true", help="the many alone, for which no Chromium is needed"
    )
    chosen = parser.parse_args()
    rows: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as new:
        cache = chosen.cache or Path(new)
        if chosen.crowd:
            with served(chosen.run, cache) as (address, _, pid):
                _get(address + "/")
                rows |= crowd(chosen, address, pid)
        else:
            rows |= alone_and_many(chosen, cache)
    width = max(map(len, rows))
    for name, value in rows.items():
        counted = any(
            name.endswith(w) for w in ("requests", "answers", ": reruns", "errors", "beside", ", MB")
        )
        print(f"{name:<{width}}  {value:8.0f}" if counted else f"{name:<{width}}  {value:8.2f}")


if __name__ == "__main__":
    main()
