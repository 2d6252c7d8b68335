"""The monitoring port: its listener, its paths, the headers of its answers, and the status page at `/`.

The listener speaks HTTP, or HTTPS with the certificate of the clients' listener.

A browser on the server's machine reaches loopback addresses for any page that it shows. There a page of another site
may read nothing, neither as itself (CORS) nor under a name of its own that points here (DNS rebinding).
"""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
import socket
import ssl
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import cache, partial
from html import escape
from importlib.resources import files
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes, urlsplit

from msgspec.structs import replace

from natsctl.api.codec import encode, go_quote
from natsctl.server.monitor import accountz, cluster, connz, healthz, jsz, problemz, streamz
from natsctl.server.monitor.document import pieces, pieces_of
from natsctl.server.monitor.http import HttpPage, HttpRequest, HttpServer
from natsctl.server.monitor.metrics import metrics_page
from natsctl.server.monitor.query import BAD_ESCAPE, BadRequestError, EndpointOptions, Query
from natsctl.server.monitor.varz import IpqueueszOptions, expvarz, ipqueuesz, stacksz, varz
from natsctl.server.options import TlsOptions, joined
from natsctl.server.tls.contexts import TlsFileError, server_context

if TYPE_CHECKING:
    import asyncio

    from natsctl.server.instance import ServerInstance


_INLINE: Final = re.compile(rb"<(script|style)>(.*?)</\1>", re.DOTALL)


def index_page(server: ServerInstance) -> HttpPage:
    body, policy = _document()
    base = "/" + server.options.http_base_path.strip("/")
    body = body.replace(b"{{BASE}}", escape(base.rstrip("/")).encode())
    body = body.replace(b"{{VERSION}}", escape(server.broker.options.version).encode())
    headers = (
        ("Content-Security-Policy", policy),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("Cache-Control", "no-cache"),
    )
    return HttpPage(200, body, "text/html; charset=utf-8", headers)


@cache
def _document() -> tuple[bytes, str]:
    """Return the document, and the policy that allows its own scripts and styles only."""
    document = files("natsctl.server.monitor").joinpath("status.html").read_bytes()
    hashes = {b"script": "", b"style": ""}
    for kind, text in _INLINE.findall(document):
        digest = base64.b64encode(hashlib.sha256(text).digest()).decode()
        hashes[kind] += f" 'sha256-{digest}'"
    policy = (
        f"default-src 'none'; script-src{hashes[b'script']}; style-src{hashes[b'style']}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return document, policy


TEXT: Final = "text/plain; charset=utf-8"
ANY_ORIGIN: Final = (("Access-Control-Allow-Origin", "*"),)
"""Pages of other origins may read the answers of endpoints, as with nats-server."""
FORBIDDEN: Final = HttpPage(403, b"403 Forbidden: not a name of this server\n", TEXT)
BAD_REQUEST: Final = HttpPage(400, b"400 Bad Request", TEXT)
_ABSOLUTE: Final = re.compile(r"^https?://[^/?]*", re.IGNORECASE)
"""The part before the path in a request through a proxy."""
NOT_FOUND: Final = HttpPage(404, b"404 page not found\n", TEXT, (("X-Content-Type-Options", "nosniff"),))

Answer = Callable[["ServerInstance", Query], HttpPage]


class MonitorPage(NamedTuple):
    """The responder of a path; requests are counted under `counted`, or not at all."""

    answer: Answer
    counted: str = ""
    strict: bool = False
    """Requests with a malformed query are not counted."""


class Monitor:
    def __init__(self, server: ServerInstance) -> None:
        self._server = server
        base = server.options.http_base_path
        options, machine = server.options, socket.gethostname()
        called = {machine, machine.partition(".")[0], options.server_name, options.monitoring_host}
        called.add(options.client_advertise.rpartition(":")[0] or options.client_advertise)
        self._names = {name.lower() for name in called if name}
        self._paths = {_joined(base, path): endpoint for path, endpoint in ENDPOINTS.items()}

    def answer(self, request: HttpRequest) -> HttpPage:
        if not request.loopback:
            return self._page(request)
        if request.host and not self._is_local(f"//{request.host}", any_address=True):
            return FORBIDDEN
        page = self._page(request)
        if not request.origin or self._is_local(request.origin):
            return page
        return replace(page, headers=tuple(pair for pair in page.headers if pair not in ANY_ORIGIN))

    def _is_local(self, url: str, *, any_address: bool = False) -> bool:
        """Return whether a URL's host is this machine: localhost, a loopback address, or a name of the server.

        With `any_address` every address counts: unlike a name, an address cannot be made to point elsewhere.
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

    def _page(self, request: HttpRequest) -> HttpPage:
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
            return HttpPage(400, str(refusal).encode(), TEXT)
        if endpoint.strict:
            self._count(endpoint)
        return page

    def _count(self, endpoint: MonitorPage) -> None:
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


def _elsewhere(place: str, method: str) -> HttpPage:
    if method not in ("GET", "HEAD"):
        return HttpPage(307, b"", "", (("Location", place),))
    body = f'<a href="{escape(place)}">Temporary Redirect</a>.\n\n'.encode()
    return HttpPage(307, body, "text/html; charset=utf-8", (("Location", place),))


def _json(value: Any, step: int = 2) -> HttpPage:
    body = pieces_of(value, step) if isinstance(value, Generator) else pieces(value, step=step)
    return HttpPage(200, body, headers=ANY_ORIGIN)


def _endpoint(
    path: str, options: type[EndpointOptions], answer: Callable[[Any, Any], Any], *, strict: bool = False, step: int = 2
) -> MonitorPage:
    """Return an endpoint of JSON: the options in a query, and a function of server and options."""
    return MonitorPage(lambda server, query: _json(answer(server, options.of(query)), step), path, strict)


def _listing(path: str, read: Callable[[Query], Any], answer: Callable[[Any, Any], Iterator[bytes]]) -> MonitorPage:
    return MonitorPage(lambda server, query: HttpPage(200, answer(server, read(query)), headers=ANY_ORIGIN), path)


def _healthz(server: ServerInstance, query: Query) -> HttpPage:
    options = healthz.HealthzOptions.of(query)
    if options.js_enabled:
        server.log.warn("Healthcheck: js-enabled deprecated, use js-enabled-only instead")
    health = healthz.healthz(server, options)
    code = health.pop("status_code")
    if "error" in health:
        server.log.warn(f"Healthcheck failed: {go_quote(health['error'])}")
    elif "errors" in health:
        server.log.warn(f"Healthcheck failed: {len(health['errors'])} errors")
    return HttpPage(code, encode(health), headers=ANY_ORIGIN)


def _expvarz(server: ServerInstance, query: Query) -> HttpPage:
    lines = [b"%b: %b" % (encode(key), encode(value)) for key, value in expvarz(server).items()]
    return HttpPage(200, b"{\n%b\n}\n" % b",\n".join(lines), "application/json; charset=utf-8")


_SUBSZ: Final = _endpoint("/subsz", connz.SubszOptions, connz.subsz)
ENDPOINTS: Final = {
    "/": MonitorPage(lambda server, query: index_page(server), "/"),
    "/varz": MonitorPage(lambda server, query: _json(varz(server)), "/varz"),
    "/connz": _endpoint("/connz", connz.ConnzOptions, connz.connz, strict=True),
    "/routez": _endpoint("/routez", cluster.RoutezOptions, cluster.routez, strict=True),
    "/gatewayz": _endpoint("/gatewayz", cluster.GatewayzOptions, cluster.gatewayz),
    "/leafz": _endpoint("/leafz", cluster.LeafzOptions, cluster.leafz),
    "/subsz": _SUBSZ,
    "/subscriptionsz": _SUBSZ,
    "/stacksz": MonitorPage(lambda server, query: HttpPage(200, stacksz(), headers=ANY_ORIGIN)),
    "/accountz": _endpoint("/accountz", accountz.AccountzOptions, accountz.accountz),
    "/accstatz": _endpoint("/accstatz", accountz.AccstatzOptions, accountz.accstatz),
    "/jsz": _endpoint("/jsz", jsz.JszOptions, jsz.jsz),
    "/streamz": _listing("/streamz", streamz.read_streamz, streamz.streamz),
    "/consumerz": _listing("/consumerz", streamz.read_consumerz, streamz.consumerz),
    "/problemz": _listing("/problemz", problemz.read, problemz.problemz),
    "/healthz": MonitorPage(_healthz, "/healthz"),
    "/ipqueuesz": _endpoint("", IpqueueszOptions, ipqueuesz, step=3),
    "/raftz": MonitorPage(lambda server, query: HttpPage(404, b"No Raft nodes registered", TEXT)),
    "/debug/vars": MonitorPage(_expvarz),
    "/metrics": MonitorPage(lambda server, query: metrics_page(server)),
}


def monitoring_endpoint(server: ServerInstance) -> HttpServer:
    """Return the listener; raises TlsFileError where the server's certificate is unusable.

    It requests no certificate of clients, unless other sides are checked at their OCSP responders at the start.
    """
    options = server.options

    def fault(where: str, error: Exception) -> None:
        server.log.error(f"internal fault in {where}: " + "".join(traceback.format_exception(error)).rstrip())

    context = _context(server) if options.https_port else None
    checked = context is not None and options.tls is not None and options.tls.checks_peers
    return HttpServer(
        options.monitoring_host,
        options.https_port or options.http_port,
        Monitor(server).answer,
        fault,
        context,
        partial(_admit, server) if checked else None,
    )


async def _admit(server: ServerInstance, writer: asyncio.StreamWriter) -> bool:
    from natsctl.server.tls.certificates import verified_chain_of

    tls, ocsp = server.options.tls, server.ocsp
    if tls is None or tls.ocsp_peer is None or not tls.checks_peers or ocsp is None:  # switched off by a reload
        return True
    chain = verified_chain_of(writer.get_extra_info("ssl_object"))
    fault = await ocsp.peers.verdict(chain, tls.ocsp_peer, "Client")
    if fault:
        host, port = writer.get_extra_info("peername")[:2]
        server.log.error(f"monitoring: http: TLS handshake error from {joined(host, port)}: {fault}")
    return not fault


def _context(server: ServerInstance) -> ssl.SSLContext:
    """Return the context of the listener; it uses the newest certificates for each handshake."""
    if server.options.tls is None:
        raise TlsFileError("TLS cert and key required for HTTPS")
    made = server_context if server.options.checks_peers else _unverifying
    known: tuple[TlsOptions, ssl.SSLContext] = server.options.tls, made(server.options.tls)

    def follow(handshake: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        nonlocal known
        newest = server.options.tls
        if newest is not None and newest is not known[0]:
            known = newest, made(newest)
        handshake.context = known[1]

    first = made(server.options.tls)
    first.sni_callback = follow
    return first


def _unverifying(tls: TlsOptions) -> ssl.SSLContext:
    return server_context(replace(tls, verify=False, verify_and_map=False))
