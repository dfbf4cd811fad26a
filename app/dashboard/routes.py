"""Our own addresses beside Streamlit's, on the same origin: the map page, pictures, values, slices. Only GET.

Every parameter is checked by `view.py`; a bad one is answered with one sentence and 400, a run that is gone or
altered with one sentence and 409. No parameter ever becomes part of a path on disk.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from app.dashboard.holding import held
from app.dashboard.point import reading
from app.dashboard.view import place
from app.errors import InvalidInput
from maps.web import LEAFLET_CSS, LEAFLET_JS

HERE = Path(__file__).parent / "map"
#: the only files served, by the only names they are served under
FILES: dict[str, tuple[Path, str]] = {
    "": (HERE / "index.html", "text/html"),
    "map.js": (HERE / "map.js", "text/javascript"),
    "map.css": (HERE / "map.css", "text/css"),
    "leaflet.js": (LEAFLET_JS, "text/javascript"),
    "leaflet.css": (LEAFLET_CSS, "text/css"),
}
FOREVER = {
    "Cache-Control": "private, max-age=31536000, immutable"
}  # addresses of pictures name the run's hash
FRESH = {"Cache-Control": "no-cache"}

Answer = Callable[[Request], Response]


def routes() -> list[BaseRoute]:
    """For `st.App(routes=...)`."""
    return [
        Route("/geogp/map/{name}", _file, methods=["GET"]),
        Route("/geogp/map/", _file, methods=["GET"]),
        Route("/geogp/about", _careful(_about), methods=["GET"]),
        Route("/geogp/layers", _careful(_layers), methods=["GET"]),
        Route("/geogp/layer/{name}", _careful(_picture), methods=["GET"]),
        Route("/geogp/tiles/{name}/{z}/{x}/{y}.png", _one_at_a_time(_careful(_tile)), methods=["GET"]),
        Route("/geogp/value", _careful(_value), methods=["GET"]),
        Route("/geogp/slice", _careful(_slice), methods=["GET"]),
        Route("/geogp/slice.png", _careful(_slice_picture), methods=["GET"]),
        Route("/geogp/progress", _progress, methods=["GET"]),
    ]


def _careful(answer: Answer) -> Callable[[Request], Any]:
    """Run in a thread; an error meant for people becomes its sentence as JSON."""

    def answered(request: Request) -> Response:
        try:
            held().atlas()
        except ValueError as error:
            if not hasattr(error, "exit_code"):
                raise
            return JSONResponse({"error": str(error)}, 409, FRESH)
        try:
            return answer(request)
        except ValueError as error:
            if not hasattr(error, "exit_code"):
                raise
            return JSONResponse({"error": str(error)}, 400, FRESH)

    async def endpoint(request: Request) -> Response:
        return await run_in_threadpool(answered, request)

    return endpoint


def _one_at_a_time(endpoint: Callable[[Request], Any]) -> Callable[[Request], Any]:
    """Squares queue here, not in threads, so that a pointer's question is answered in between; who left is skipped."""
    turns = asyncio.Semaphore(1)

    async def waited(request: Request) -> Response:
        async with turns:
            if await request.is_disconnected():
                return Response(status_code=499)
            return await endpoint(request)

    return waited


async def _file(request: Request) -> Response:
    name = request.path_params.get("name", "")
    if name not in FILES:
        return JSONResponse({"error": "There is no such file."}, 404)
    path, kind = FILES[name]
    text = path.read_text("utf-8")
    return Response(text, media_type=f"{kind}; charset=utf-8", headers=FRESH)


def _about(request: Request) -> Response:
    return JSONResponse(held().atlas().about(), headers=FRESH)


def _layers(request: Request) -> Response:
    atlas = held().atlas()
    view = atlas.choices.read(request.query_params)
    return JSONResponse(
        {
            "layers": atlas.layers(view),
            "view": view.params,
            "id": atlas.id,
            "similar": _similar(),
            "subtitle": atlas.subtitle(view),
        },
        headers=FRESH,
    )


def _similar() -> dict[str, Any]:
    """A kernel slice in the list of layers; its legend comes with the slice."""
    about = (
        "correlation of the surface with the surface at the marked place, as the model sees it before data"
    )
    return {
        "id": "similar",
        "title": "Correlation with the marked place",
        "short": "Similar to here",
        "about": about,
        "unit": "",
        "group": "Kernel slice",
        "ramp": [],
        "ticks": [],
    }


def _picture(request: Request) -> Response:
    name = request.path_params["name"]
    if not name.endswith(".png"):
        raise InvalidInput("Pictures of layers are named like median.png.")
    atlas = held().atlas()
    view = atlas.choices.read(request.query_params)
    return Response(atlas.picture(name.removesuffix(".png"), view), media_type="image/png", headers=FOREVER)


def _tile(request: Request) -> Response:
    atlas = held().atlas()
    view = atlas.choices.read(request.query_params)
    numbers = []
    for axis in "zxy":
        text = request.path_params[axis]
        if not (text.isascii() and text.isdigit() and len(text) <= 6):
            raise InvalidInput(f"{axis} of a square must be a whole number; got {text[:20]!r}.")
        numbers.append(int(text))
    z, x, y = numbers
    return Response(
        atlas.tile(request.path_params["name"], view, z, x, y), media_type="image/png", headers=FOREVER
    )


def _value(request: Request) -> Response:
    atlas = held().atlas()
    view = atlas.choices.read(request.query_params)
    return JSONResponse(reading(atlas, *place(request.query_params), view), headers=FRESH)


def _slice(request: Request) -> Response:
    found = _found(request)
    return JSONResponse(
        {
            "lat": found.lat,
            "lon": found.lon,
            "words": found.words,
            "legend": found.legend(),
        },
        headers=FRESH,
    )


def _slice_picture(request: Request) -> Response:
    return Response(_found(request).picture(), media_type="image/png", headers=FOREVER)


def _found(request: Request) -> Any:
    atlas = held().atlas()
    view = atlas.choices.read(request.query_params)
    lat, lon = place(request.query_params)
    if not atlas.ground.contains(lat, lon):
        raise InvalidInput(f"{lat:.4f}, {lon:.4f} lies outside the mapped region.")
    return held().slices().of(lat, lon, view)


async def _progress(request: Request) -> Response:
    try:
        atlas = held().known
        return JSONResponse(
            atlas.progress.to_json() if atlas else {"what": "Opening the run", "done": 0, "total": 0}
        )
    except InvalidInput as error:
        return JSONResponse({"error": str(error)}, 409)
