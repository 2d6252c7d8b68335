"""The pages of the monitoring port: which path is answered by what, and what goes with every answer.

A browser on the server's machine reaches loopback addresses for any page that it shows. There a page of another site
may read nothing, neither as itself (CORS) nor under a name of its own that points here (DNS rebinding).
"""

from __future__ import annotations

import posixpath
import re
import socket
from collections.abc import Callable
from contextlib import suppress
from html import escape
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes, urlsplit

from msgspec.structs import replace

from natsctl.api.codec import encode
from natsctl.api.syntax import go_quote
from natsctl.server.http import Page, Request
from natsctl.server.monitor import (
    accountz,
    accstatz,
    connz,
    gatewayz,
    healthz,
    ipqueuesz,
    jsz,
    leafz,
    routez,
    subsz,
)
from natsctl.server.monitor.document import pieces
from natsctl.server.monitor.expvarz import expvarz
from natsctl.server.monitor.index import index_page
from natsctl.server.monitor.metrics import metrics_page
from natsctl.server.monitor.query import BAD_ESCAPE, Query
from natsctl.server.monitor.refused import BadRequestError
from natsctl.server.monitor.stacksz import stacksz
from natsctl.server.monitor.varz import varz

if TYPE_CHECKING:
    from natsctl.server.view import ServerView

TEXT: Final = "text/plain; charset=utf-8"
ANYBODY: Final = (("Access-Control-Allow-Origin", "*"),)
"""Pages of other origins may read what the endpoints answer, as with nats-server."""
FORBIDDEN: Final = Page(403, b"403 Forbidden: not a name of this server\n", TEXT)
BAD_REQUEST: Final = Page(400, b"400 Bad Request", TEXT)
_ABSOLUTE: Final = re.compile(r"^https?://[^/?]*", re.IGNORECASE)
"""What stands before the path in a request through a proxy."""
NOT_FOUND: Final = Page(404, b"404 page not found\n", TEXT, (("X-Content-Type-Options", "nosniff"),))

Answer = Callable[["ServerView", Query], Page]


class Endpoint(NamedTuple):
    """What answers a path; requests are counted under `counted`, or not at all."""

    answer: Answer
    counted: str = ""
    strict: bool = False
    """Requests whose query can not be read are not counted."""


class Monitor:
    """The pages of one server."""

    def __init__(self, server: ServerView) -> None:
        """Answer for `server`, which is running."""
        self._server = server
        base = server.options.http_base_path
        options, machine = server.options, socket.gethostname()
        called = {machine, machine.partition(".")[0], options.server_name, options.monitoring_host}
        called.add(options.client_advertise.rpartition(":")[0] or options.client_advertise)
        self._names = {name.lower() for name in called if name}
        self._paths = {_joined(base, path): endpoint for path, endpoint in ENDPOINTS.items()}

    def answer(self, request: Request) -> Page:
        """Return the page of a request, whatever its method."""
        if not request.loopback:
            return self._page(request)
        if request.host and not self._is_local(f"//{request.host}", any_address=True):
            return FORBIDDEN
        page = self._page(request)
        if not request.origin or self._is_local(request.origin):
            return page
        return replace(page, headers=tuple(pair for pair in page.headers if pair not in ANYBODY))

    def _is_local(self, url: str, *, any_address: bool = False) -> bool:
        """Return whether a URL's host is this machine: localhost, a loopback address, or a name of the server.

        With `any_address` every address counts: nobody can make one point elsewhere, as with a name.
        """
        try:
            host = (urlsplit(url).hostname or "").rstrip(".")
        except ValueError:
            return False
        if host == "localhost" or host.endswith(".localhost") or host in self._names:
            return True
        with suppress(ValueError):
            return ip_address(host.partition("%")[0]).is_loopback or any_address
        return False

    def _page(self, request: Request) -> Page:
        target, _, query = _ABSOLUTE.sub("", request.target).partition("?")
        if not target.startswith("/") or BAD_ESCAPE.search(target):
            return BAD_REQUEST
        if _short(target) != target:
            return _elsewhere(_short(target) + ("?" + query if query else ""), request.method)
        endpoint = self._paths.get(unquote_to_bytes(target).decode("utf-8", "replace"))
        if endpoint is None:
            return NOT_FOUND
        if not endpoint.strict:
            self._count(endpoint)
        try:
            page = endpoint.answer(self._server, Query(query))
        except BadRequestError as refusal:
            return Page(400, str(refusal).encode(), TEXT)
        if endpoint.strict:
            self._count(endpoint)
        return page

    def _count(self, endpoint: Endpoint) -> None:
        if endpoint.counted:
            counts = self._server.http_requests
            counts[endpoint.counted] = counts.get(endpoint.counted, 0) + 1


def _joined(base: str, path: str) -> str:
    """Return a path below the base path, with neither `//` nor `..` in it."""
    joined = posixpath.normpath("/" + base.strip("/") + path)
    return "/" + joined.lstrip("/") if joined != "/." else "/"


def _short(target: str) -> str:
    """Return a path without the `//`, `.` and `..` that are spelled out in it."""
    short = "/" + posixpath.normpath(target).lstrip("/")
    return short + "/" if target.endswith("/") and short != "/" else short


def _elsewhere(place: str, method: str) -> Page:
    """Send who spells a path in a roundabout way to its short form."""
    if method not in ("GET", "HEAD"):
        return Page(307, b"", "", (("Location", place),))
    body = f'<a href="{escape(place)}">Temporary Redirect</a>.\n\n'.encode()
    return Page(307, body, "text/html; charset=utf-8", (("Location", place),))


def _json(value: Any, step: int = 2) -> Page:
    return Page(200, pieces(value, step=step), headers=ANYBODY)


def _endpoint(
    path: str, read: Callable[[Query], Any], answer: Callable[[Any, Any], Any], *, strict: bool = False
) -> Endpoint:
    """Return an endpoint of JSON: a query read into options, and a function of server and options."""
    return Endpoint(lambda server, query: _json(answer(server, read(query))), path, strict)


def _healthz(server: ServerView, query: Query) -> Page:
    options = healthz.read(query)
    if options.js_enabled:
        server.log.warn("Healthcheck: js-enabled deprecated, use js-enabled-only instead")
    health = healthz.healthz(server, options)
    code = health.pop("status_code")
    if "error" in health:
        server.log.warn(f"Healthcheck failed: {go_quote(health['error'])}")
    elif "errors" in health:
        server.log.warn(f"Healthcheck failed: {len(health['errors'])} errors")
    return Page(code, encode(health), headers=ANYBODY)


def _raftz(server: ServerView, query: Query) -> Page:
    return Page(404, b"No Raft nodes registered", TEXT)


def _expvarz(server: ServerView, query: Query) -> Page:
    lines = [b"%b: %b" % (encode(key), encode(value)) for key, value in expvarz(server).items()]
    return Page(200, b"{\n%b\n}\n" % b",\n".join(lines), "application/json; charset=utf-8")


def _ipqueuesz(server: ServerView, query: Query) -> Page:
    return _json(ipqueuesz.ipqueuesz(server, ipqueuesz.read(query)), step=3)


_SUBSZ: Final = _endpoint("/subsz", subsz.read, subsz.subsz_in_pieces)
ENDPOINTS: Final = {
    "/": Endpoint(lambda server, query: index_page(server), "/"),
    "/varz": Endpoint(lambda server, query: _json(varz(server)), "/varz"),
    "/connz": _endpoint("/connz", connz.read, connz.connz_in_pieces, strict=True),
    "/routez": _endpoint("/routez", routez.read, routez.routez, strict=True),
    "/gatewayz": _endpoint("/gatewayz", gatewayz.read, gatewayz.gatewayz),
    "/leafz": _endpoint("/leafz", leafz.read, leafz.leafz),
    "/subsz": _SUBSZ,
    "/subscriptionsz": _SUBSZ,
    "/stacksz": Endpoint(lambda server, query: Page(200, stacksz(), headers=ANYBODY)),
    "/accountz": _endpoint("/accountz", accountz.read, accountz.accountz),
    "/accstatz": _endpoint("/accstatz", accstatz.read, accstatz.accstatz),
    "/jsz": _endpoint("/jsz", jsz.read, jsz.jsz_in_pieces),
    "/healthz": Endpoint(_healthz, "/healthz"),
    "/ipqueuesz": Endpoint(_ipqueuesz),
    "/raftz": Endpoint(_raftz),
    "/debug/vars": Endpoint(_expvarz),
    "/metrics": Endpoint(lambda server, query: metrics_page(server)),
}
