"""Our own addresses beside Streamlit's, on the same origin: the map's script, pictures, values, slices. Only GET.

Every parameter is checked by `setting.py`; a bad one is answered with one sentence and 400, a run that is gone or
altered with one sentence and 409. No parameter ever becomes part of a path on disk.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from app.dashboard.atlas import Atlas
from app.dashboard.holding import held
from app.dashboard.setting import Setting, place
from app.dashboard.slices import Slice
from app.errors import InvalidInput
from maps.web import LEAFLET_CSS, LEAFLET_JS

#: the only files served, by the only names they are served under
FILES: dict[str, Path] = {
    "leaflet.js": LEAFLET_JS,
    "leaflet.css": LEAFLET_CSS,
    **{path.name: path for path in (Path(__file__).parent / "map").glob("*.js")},
}
KINDS = {".js": "text/javascript", ".css": "text/css"}
#: addresses of pictures name the run's hash, so they may be kept for good
FOREVER = {"Cache-Control": "private, max-age=31536000, immutable"}
FRESH = {"Cache-Control": "no-cache"}
#: A kernel slice in the list of layers; its legend comes with the slice.
SIMILAR: dict[str, Any] = {
    "id": "similar",
    "title": "Correlation with the marked place",
    "short": "Similar to here",
    "about": "correlation of the surface with the surface at the marked place, as the model sees it before data",
    "unit": "",
    "group": "Kernel slice",
    "ramp": [],
    "ticks": [],
}

Answer = Callable[[Request], Response]
Endpoint = Callable[[Request], Awaitable[Response]]


def routes() -> list[BaseRoute]:
    """For `st.App(routes=...)`."""
    return [
        Route("/geogp/map/{name}", _file, methods=["GET"]),
        Route("/geogp/about", _careful(_about), methods=["GET"]),
        Route("/geogp/layers", _careful(_layers), methods=["GET"]),
        Route("/geogp/layer/{name}", _careful(_picture), methods=["GET"]),
        Route("/geogp/tiles/{name}/{z}/{x}/{y}.png", _one_at_a_time(_careful(_tile)), methods=["GET"]),
        Route("/geogp/value", _careful(_value), methods=["GET"]),
        Route("/geogp/slice", _careful(_slice), methods=["GET"]),
        Route("/geogp/slice.png", _careful(_slice_picture), methods=["GET"]),
        Route("/geogp/progress", _progress, methods=["GET"]),
    ]


def _careful(answer: Answer) -> Endpoint:
    """Run in a thread; an error meant for people becomes its sentence as JSON."""

    def said(error: ValueError, status: int) -> Response:
        if not hasattr(error, "exit_code"):
            raise error
        return JSONResponse({"error": str(error)}, status, FRESH)

    def answered(request: Request) -> Response:
        try:
            held().atlas()
        except ValueError as error:
            return said(error, 409)
        try:
            return answer(request)
        except ValueError as error:
            return said(error, 400)

    async def endpoint(request: Request) -> Response:
        return await run_in_threadpool(answered, request)

    return endpoint


def _one_at_a_time(endpoint: Endpoint) -> Endpoint:
    """Squares queue here, not in threads, so that a pointer's question is answered in between; who left is skipped."""
    turns = asyncio.Semaphore(1)

    async def waited(request: Request) -> Response:
        async with turns:
            if await request.is_disconnected():
                return Response(status_code=499)
            return await endpoint(request)

    return waited


async def _file(request: Request) -> Response:
    path = FILES.get(request.path_params["name"])
    if path is None:
        return JSONResponse({"error": "There is no such file."}, 404)
    kind = f"{KINDS[path.suffix]}; charset=utf-8"
    return Response(path.read_text("utf-8"), media_type=kind, headers=FRESH)


def _asked(request: Request) -> tuple[Atlas, Setting]:
    """The atlas, and the setting that an address asks for."""
    atlas = held().atlas()
    return atlas, atlas.choices.read(request.query_params)


def _about(request: Request) -> Response:
    return JSONResponse(held().atlas().about(), headers=FRESH)


def _layers(request: Request) -> Response:
    atlas, setting = _asked(request)
    return JSONResponse(
        {
            "layers": atlas.layers(setting),
            "setting": setting.params,
            "id": atlas.id,
            "similar": {**SIMILAR, "of": atlas.subtitle(setting, "correlation")},
            "subtitle": atlas.subtitle(setting),
        },
        headers=FRESH,
    )


def _picture(request: Request) -> Response:
    name = request.path_params["name"]
    if not name.endswith(".png"):
        raise InvalidInput("Pictures of layers are named like median.png.")
    atlas, setting = _asked(request)
    return _png(atlas.picture(name.removesuffix(".png"), setting))


def _tile(request: Request) -> Response:
    atlas, setting = _asked(request)
    numbers = []
    for axis in "zxy":
        text = request.path_params[axis]
        if not (text.isascii() and text.isdigit() and len(text) <= 6):
            raise InvalidInput(f"{axis} of a square must be a whole number; got {text[:20]!r}.")
        numbers.append(int(text))
    z, x, y = numbers
    return _png(atlas.tile(request.path_params["name"], setting, z, x, y))


def _png(content: bytes) -> Response:
    return Response(content, media_type="image/png", headers=FOREVER)


def _value(request: Request) -> Response:
    atlas, setting = _asked(request)
    return JSONResponse(atlas.reading(*place(request.query_params), setting), headers=FRESH)


def _slice(request: Request) -> Response:
    found = _found(request)
    told = {"lat": found.lat, "lon": found.lon, "words": found.words, "legend": found.legend()}
    return JSONResponse(told, headers=FRESH)


def _slice_picture(request: Request) -> Response:
    return _png(_found(request).picture())


def _found(request: Request) -> Slice:
    atlas, setting = _asked(request)
    lat, lon = place(request.query_params)
    if not atlas.canvas.contains(lat, lon):
        raise InvalidInput(f"{lat:.4f}, {lon:.4f} lies outside the mapped region.")
    return atlas.slices.of(lat, lon, setting.quarter)


async def _progress(request: Request) -> Response:
    try:
        atlas = held().known
    except InvalidInput as error:
        return JSONResponse({"error": str(error)}, 409)
    return JSONResponse(
        atlas.progress.to_json() if atlas else {"what": "Opening the run", "done": 0, "total": 0}
    )
