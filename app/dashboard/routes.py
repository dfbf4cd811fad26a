"""Our own addresses beside Streamlit's, on the same origin: the map page, its planes, places, slices. Only GET.

Every parameter is checked by `setting.py`; a bad one is answered with one sentence and 400, a run that is gone or
altered with one sentence and 409. No parameter ever becomes part of a path on disk.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import suppress
from typing import TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from app.dashboard import areas, picking, taking
from app.dashboard.atlas import Atlas, Wanted
from app.dashboard.holding import held, names
from app.dashboard.jobs import jobs
from app.dashboard.making import Making, Superseded, answer
from app.dashboard.setting import place
from app.errors import InvalidInput

#: addresses of planes name the run's content, so they may be kept for good
FOREVER = {"Cache-Control": "private, max-age=31536000, immutable"}
FRESH = {"Cache-Control": "no-cache"}
PACK = "application/octet-stream"
#: windows of exports that are read at once
READS = 2
#: seconds between two looks at whether somebody still waits
LOOK = 0.1

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
Answer = Callable[[Atlas, Mapping[str, str]], Response]
Endpoint = Callable[[Request], Awaitable[Response]]


def routes() -> list[BaseRoute]:
    """For `st.App(routes=...)`."""
    return [
        Route("/", _careful(_page), methods=["GET"]),
        Route("/geogp/planes", _planes, methods=["GET"]),
        Route("/geogp/beside", _careful(_beside), methods=["GET"]),
        Route("/geogp/apart", _careful(_apart), methods=["GET"]),
        Route("/geogp/detail", _detail(), methods=["GET"]),
        Route("/geogp/window", _window, methods=["GET"]),
        Route("/geogp/names", _careful(_names), methods=["GET"]),
        Route("/geogp/history", _careful(_history), methods=["GET"]),
        Route("/geogp/slice", _careful(_slice), methods=["GET"]),
        Route("/geogp/download", _careful(_download), methods=["GET"]),
        Route("/geogp/file", _careful(_file), methods=["GET"]),
        Route("/geogp/areas", _careful(_areas), methods=["GET"]),
        Route("/geogp/area", _careful(_area), methods=["GET"]),
        Route("/geogp/progress", _progress, methods=["GET"]),
    ]


def _said(error: Exception, status: int) -> Response:
    """An error meant for people as its sentence; others are raised."""
    if not hasattr(error, "exit_code"):
        raise error
    return JSONResponse({"error": str(error)}, status, FRESH)


def _opened(request: Request) -> Atlas | Response:
    """The atlas, or why there is none: the run is gone or altered, or is another than the page was made of."""
    try:
        atlas = held(request.query_params.get("run")).atlas()
    except ValueError as error:
        return _said(error, 409)
    named = request.query_params.get("v")
    if named is not None and named != atlas.id:
        return JSONResponse({"error": "The run was fitted again.", "changed": True}, 409, FRESH)
    return atlas


def _careful(what: Answer) -> Endpoint:
    """Run in a thread; an error meant for people becomes its sentence."""

    def answered(request: Request) -> Response:
        atlas = _opened(request)
        if isinstance(atlas, Response):
            return atlas
        try:
            return what(atlas, request.query_params)
        except ValueError as error:
            return _said(error, 400)

    async def endpoint(request: Request) -> Response:
        return await run_in_threadpool(answered, request)

    return endpoint


def _page(atlas: Atlas, params: Mapping[str, str]) -> Response:
    return HTMLResponse(atlas.html(tuple(names())), headers=FRESH)


async def _planes(request: Request) -> Response:
    """Planes of a quarter: at the usual number of tests, or `counts=all` others; they wait for nobody who has left."""
    atlas = await run_in_threadpool(_opened, request)
    if isinstance(atlas, Response):
        return atlas
    try:
        wanted = await run_in_threadpool(_wanted, atlas, request.query_params)
        packs = await _made(atlas.kept, atlas.making, wanted, request)
    except Superseded:
        return Response(status_code=499)
    except ValueError as error:
        return _said(error, 400)
    data = packs[1] if request.query_params.get("counts") else packs[0]
    if data is None:
        return JSONResponse({"error": "This run has no numbers of tests to choose from."}, 404, FRESH)
    return Response(data, media_type=PACK, headers=FOREVER)


def _wanted(atlas: Atlas, params: Mapping[str, str]) -> Wanted:
    """Which planes an address asks for: of a quarter, of the run `other` on the pixels of this, joint `draws`."""
    if params.get("other"):
        other = held(params["other"]).atlas()
        return Wanted(other.choices.quarter(params), other)
    return Wanted(atlas.choices.quarter(params), draws=bool(params.get("draws")))


def _detail() -> Endpoint:
    """Pixels of an export in a window; a few are read at once, in turn, so that no other answer waits for them."""
    room = asyncio.Semaphore(READS)

    async def endpoint(request: Request) -> Response:
        async with room:
            return Response(status_code=499) if await request.is_disconnected() else await read(request)

    read = _careful(_pixels)
    return endpoint


def _pixels(atlas: Atlas, params: Mapping[str, str]) -> Response:
    found = atlas.details.read(params, atlas.choices.read(params))
    return Response(status_code=204) if found is None else Response(found, media_type=PACK, headers=FRESH)


def _beside(atlas: Atlas, params: Mapping[str, str]) -> Response:
    return JSONResponse(atlas.pair(held(params.get("other", "")).atlas()), headers=FRESH)


def _apart(atlas: Atlas, params: Mapping[str, str]) -> Response:
    """The runs that this one cannot be told together with, and why; one that cannot be opened is another page's to say."""
    found = {}
    for name in names():
        with suppress(ValueError):
            if (other := held(name).atlas()) is not atlas and (why := atlas.apart(other)):
                found[name] = why
    return JSONResponse(found, headers=FRESH)


async def _window(request: Request) -> Response:
    """The distributions at the finest pixels of a window, as `_planes` has them; 204 where the page shows as much, or nothing has a value."""
    atlas = await run_in_threadpool(_opened, request)
    if isinstance(atlas, Response):
        return atlas
    windows = atlas.windows
    try:
        view = await run_in_threadpool(windows.view, request.query_params, atlas.choices)
        if view is None:
            return Response(status_code=204)
        packs = await _made(windows.kept, windows.making, view, request)
    except Superseded:
        return Response(status_code=499)
    except ValueError as error:
        return _said(error, 400)
    found = packs.others if request.query_params.get("counts") else packs.usual
    return Response(found, media_type=PACK, headers=FRESH) if found else Response(status_code=204)


async def _made(kept: Callable[[K], T | None], making: Making[T], wanted: K, request: Request) -> T:
    """What was made before, or is made now while somebody waits."""
    if (known := await run_in_threadpool(kept, wanted)) is not None:
        return known
    job = making.want(wanted, ahead=bool(request.query_params.get("ahead")))
    try:
        while not job.over.is_set():
            if await request.is_disconnected():
                raise Superseded
            await asyncio.sleep(LOOK)
        return answer(job)
    finally:
        making.leave(job)


def _names(atlas: Atlas, params: Mapping[str, str]) -> Response:
    """Towns of a name, or the towns and lines of a part of the page."""
    if params.get("name"):
        return JSONResponse({"places": atlas.gazetteer.find(params["name"])}, headers=FRESH)
    return JSONResponse(atlas.gazetteer.closer(params), headers=FRESH)


def _history(atlas: Atlas, params: Mapping[str, str]) -> Response:
    return JSONResponse(atlas.of(params.get("finer")).history(*place(params)), headers=FRESH)


def _slice(atlas: Atlas, params: Mapping[str, str]) -> Response:
    lat, lon = place(params)
    if not atlas.contains(lat, lon):
        raise InvalidInput(f"{lat:.4f}, {lon:.4f} lies outside the mapped region.")
    found = atlas.slices.of(lat, lon, atlas.choices.quarter(params))
    return Response(found.pack(), media_type=PACK, headers=FRESH)


def _download(atlas: Atlas, params: Mapping[str, str]) -> Response:
    """Begins to write what is shown, or says how far that is; with `cancel` ends it."""
    job = taking.start(atlas, params)
    if params.get("cancel"):
        jobs().cancel(job)
    told = {"job": job.id, "state": job.state, "share": job.share, "command": job.shown}
    return JSONResponse(told | ({"error": job.problem} if job.state == "failed" else {}), headers=FRESH)


def _file(atlas: Atlas, params: Mapping[str, str]) -> Response:
    job = jobs().get(params.get("job", ""))
    if job is None or job.state != "done":
        raise InvalidInput("This download is not there any more; begin it again.")
    named = {"Content-Disposition": 'attachment; filename="maps.zip"'}
    return Response(taking.packed(job), media_type="application/zip", headers=FRESH | named)


def _areas(atlas: Atlas, params: Mapping[str, str]) -> Response:
    """Outlines of a table that was computed here, with what is said of each."""
    job = jobs().get(params.get("job", ""))
    if job is None or job.state != "done":
        raise InvalidInput("This table of areas is not known any more; compute it again on the page Areas.")
    south_west, north_east = atlas.focus
    return JSONResponse(
        areas.outlines(areas.found_of(job), (south_west[1] + north_east[1]) / 2), headers=FRESH
    )


def _area(atlas: Atlas, params: Mapping[str, str]) -> Response:
    """What the surface comes to over an area that was drawn, or over the county or hexagon around a place."""
    return JSONResponse(picking.told(atlas, params), headers=FRESH)


async def _progress(request: Request) -> Response:
    try:
        atlas = held(request.query_params.get("run")).known
    except InvalidInput as error:
        return _said(error, 409)
    if atlas is None:
        return JSONResponse({"what": "Opening the run", "done": 0, "total": 0}, headers=FRESH)
    try:
        wanted = await run_in_threadpool(_wanted, atlas, request.query_params)
        what, done, total = atlas.making.progress(wanted)
    except ValueError as error:
        return _said(error, 400)
    return JSONResponse({"what": what, "done": done, "total": total}, headers=FRESH)
