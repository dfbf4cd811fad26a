"""Serve the dashboard of runs on this machine, without the internet."""

import gc
import os
import socket
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.console import console
from app.dashboard.paths import PAGES
from app.errors import InvalidInput
from app.log import logs, mark, take_over, works_here_on

if TYPE_CHECKING:
    import streamlit as st

    from app.dashboard.atlas import Atlas

PAGE = Path(__file__).parent / "script.py"


def serve(
    *run_paths: str | Path,
    port: int = 8501,
    host: str = "127.0.0.1",
    open_browser: bool = False,
    places: str | Path | None = None,
    areas: str | Path | None = None,
) -> None:
    """Show the maps of runs in the browser until interrupted.

    Parameters
    ----------
    run_paths : run folders, the first shown first
    port : to listen on
    host : "127.0.0.1" shows it to this machine only; "0.0.0.0" to whoever reaches it
    open_browser : open the page when it is up
    places : a file of names and lines beside those of the region, see `app.workflow.naming.brought`
    areas : polygons that the page Areas offers, such as counties; they are found by name, too

    Raises
    ------
    ValueError with an `exit_code` (InvalidInput)
        the run is missing, unfinished or altered, or the port is taken: before anything is served.

    Notes
    -----
    Nothing is fetched from outside and nothing is sent: Streamlit's usage statistics are off, scripts and styles
    are served from the installed packages, and a Content-Security-Policy forbids the rest.
    """
    from app.dashboard.holding import held, hold, names

    _check_port(host, port)
    if (Path(run_paths[0]) / "run.json").is_file():
        console.say(f"Opening {run_paths[0]} ..")  # the model's libraries take seconds
    from app.workflow.naming import brought

    named = [brought(file) for file in (areas, places) if file is not None]
    hold(*run_paths, places=named, areas=areas)
    first, *_ = [held(name).atlas() for name in names()]  # refuses what is no run before anything is served
    works_here_on("")  # from here on all of them
    threading.Thread(target=_warm, args=(first,), name="first map", daemon=True).start()
    page = build(lambda: _announce(host, port, open_browser), names=(host.lower(),))
    with logs(console.verbose):
        page.run(config=settings(host, port))


def _warm(atlas: "Atlas") -> None:
    """The map that people see first, the other pages' libraries, a first click: while nobody waits. Failures are told to whoever
    asks."""
    from app.dashboard.atlas import Wanted
    from app.dashboard.holding import names

    with suppress(Exception):
        atlas.making.want(Wanted(atlas.choices.default.quarter))
        atlas.html(tuple(names()))
        import app.dashboard.page  # noqa: F401

        for town in atlas.names.places[:1]:  # what a first click asks of the model
            here = town["lat"], town["lon"]
            atlas.history(*here)
            atlas.slices.of(*here, atlas.choices.default.quarter)
    # What is imported by now lives as long as the process: no collection need look at it.
    gc.collect()
    gc.freeze()


def build(started: Callable[[], None] = lambda: None, *, names: Collection[str] = ()) -> "st.App":
    """The ASGI application: the map, Streamlit's pages, our headers; `names` are what this server may be called."""
    import streamlit as st
    from starlette.middleware import Middleware

    from app.dashboard.routes import routes
    from app.dashboard.security import Policy

    @asynccontextmanager
    async def lifespan(app: object) -> AsyncIterator[None]:
        # by now; loggers made later have the format in the settings
        take_over("streamlit", "uvicorn", "websockets")
        started()
        yield

    return st.App(PAGE, routes=routes(), middleware=[Middleware(Policy, names=names)], lifespan=lifespan)


def settings(host: str, port: int) -> dict[str, Any]:
    """Streamlit's settings: quiet, local, no statistics, fonts of the machine."""
    fonts = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
    return {
        "server.address": host,
        "server.port": port,
        "server.headless": True,
        "server.fileWatcherType": "none",
        "server.maxUploadSize": 100,  # MB
        "server.baseUrlPath": PAGES.strip("/"),
        "browser.gatherUsageStats": False,
        "runner.postScriptGC": False,  # Python collects by itself; after each rerun it took a twelfth of them
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        "client.showErrorLinks": False,
        "theme.light.primaryColor": "#0b4f8a",
        "theme.dark.primaryColor": "#7fb8ea",
        "theme.light.font": fonts,
        "theme.dark.font": fonts,
        "logger.hideWelcomeMessage": True,
        "logger.level": "warning",  # no line a request, which would say where people look
        "logger.messageFormat": f"{mark()}: %(name)s: %(message)s",
    }


def _check_port(host: str, port: int) -> None:
    if not 0 < port < 65536:
        raise InvalidInput(f"A port is a number from 1 to 65535; got {port}.")
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            if os.name == "posix":
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        raise InvalidInput(
            f"The dashboard cannot listen on {host}:{port} ({error.strerror or error}); give another --port."
        ) from None


def _announce(host: str, port: int, open_browser: bool) -> None:
    shown = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host
    url = f"http://{f'[{shown}]' if ':' in shown else shown}:{port}"
    console.say(f"The maps are at {url} (Ctrl-C ends it).")
    if open_browser:
        threading.Timer(0.5, webbrowser.open, (url,)).start()  # when the socket listens
