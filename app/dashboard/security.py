"""Who may ask, and headers on every answer: what a page may run and fetch. Nothing from outside this server, ever."""

import base64
import hashlib
import ipaddress
import re
import socket
from collections.abc import Collection
from functools import cache
from pathlib import Path

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.dashboard.paths import known

#: our own addresses answer with scripts, pictures and numbers for the page: none is a page itself
OUR_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

#: the map says in its own head which scripts it may run, by their hashes; both hold
MAP_POLICY = (
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; connect-src 'self'"
)


@cache
def page_policy() -> str:
    """For Streamlit's own page: its inline scripts by their hashes, its styles, its socket on this origin."""
    import streamlit

    page = (Path(streamlit.__file__).parent / "static" / "index.html").read_text("utf-8")
    inline = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}'" for body in inline
    )
    return (
        f"default-src 'self'; script-src 'self' {hashes}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; frame-src 'none'; "
        "worker-src 'self' blob:; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def named(host: str) -> str:
    """The name in a Host header, without its port.

    >>> named("127.0.0.1:8501"), named("[::1]:8501"), named("Maps.example"), named("")
    ('127.0.0.1', '::1', 'maps.example', '')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


def is_ours(host: str, names: Collection[str]) -> bool:
    """Whether a Host header names this machine: by number, as localhost, or by one of its names. Another name is that of
    a page elsewhere that had itself resolved to this machine, to read what only its users may.

    >>> is_ours("127.0.0.1:8501", ()), is_ours("localhost", ()), is_ours("evil.example:8501", ()), is_ours("office", ["office"])
    (True, True, False, True)
    """
    name = named(host)
    if name == "localhost" or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def own_names() -> frozenset[str]:
    """What this machine is called."""
    name = socket.gethostname().lower()
    return frozenset({name, name.partition(".")[0], f"{name}.local"})


class Policy:
    """ASGI middleware that turns away what is not for this machine, or is nowhere, and adds the headers.

    names : by which this machine may be asked, beside its numbers
    """

    def __init__(self, app: ASGIApp, names: Collection[str] = ()) -> None:
        self.app, self.names = app, frozenset(names) | own_names()

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, status: int, words: str) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = {"Content-Security-Policy": OUR_POLICY, "X-Content-Type-Options": "nosniff"}
        await JSONResponse({"error": words}, status, headers)(scope, receive, send)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        if not is_ours(host, self.names):
            words = "This address is not one of this server; ask it by its number, as localhost or by its own name."
            await self._refuse(scope, receive, send, 421, words)
            return
        if not known(scope["path"]):
            await self._refuse(scope, receive, send, 404, "There is nothing here; the map is at /.")
            return
        if scope["type"] == "websocket":
            await self.app(scope, receive, send)
            return
        path = scope["path"]
        if path.startswith("/geogp/") and dict(scope["headers"]).get(b"sec-fetch-site") == b"cross-site":
            await self._refuse(scope, receive, send, 403, "Another site may not ask for this.")
            return
        policy = MAP_POLICY if path == "/" else OUR_POLICY if path.startswith("/geogp/") else page_policy()

        async def add(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = policy
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
                headers["Cross-Origin-Resource-Policy"] = "same-origin"
            await send(message)

        await self.app(scope, receive, add)
