"""The block `websocket` of nats.conf."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from msgspec.structs import replace

from natsctl.server.conf.syntax import ConfItem
from natsctl.server.conf.tls import tls_block
from natsctl.server.conf.values import (
    Reader,
    address_fields,
    duration_text_of,
    fields_of,
    flag_of,
    keyed,
    number_of,
    port_of,
    seconds_of,
    text_of,
)
from natsctl.server.options import WS_HANDSHAKE_TIMEOUT_S, ServerOptions, WebSocketOptions


def websocket_block(options: ServerOptions, item: ConfItem) -> ServerOptions:
    fields = fields_of(item, WEBSOCKET_KEYS, "Expected websocket to be a map, got {}")
    return replace(options, websocket=WebSocketOptions(**fields)) if fields.get("port") else options


def _handshake_timeout(item: ConfItem) -> float:
    if isinstance(item.value, str):
        return duration_text_of(item, "handshake timeout") or WS_HANDSHAKE_TIMEOUT_S
    if isinstance(item.value, bool) or not isinstance(item.value, int):
        raise item.fault(f"error parsing handshake timeout: unsupported type {type(item.value).__name__}")
    return float(number_of(item)) or WS_HANDSHAKE_TIMEOUT_S


def _origins(item: ConfItem) -> tuple[str, ...]:
    if isinstance(item.value, str):
        return (item.value,)
    if not isinstance(item.value, list):
        raise item.fault(f"error parsing allowed origins: unsupported type {type(item.value).__name__}")
    return tuple(text_of(entry) for entry in item.value)


def _headers(item: ConfItem) -> tuple[tuple[str, str], ...]:
    if not isinstance(item.value, dict):
        raise item.fault(f"error parsing headers: unsupported type {type(item.value).__name__}")
    headers = tuple((key, text_of(value)) for key, value in item.value.items())
    for name, value in headers:
        if any(ord(c) < 32 or ord(c) == 127 for c in name + value):
            raise item.fault(f"header {name!r} has control characters")
    return headers


def _ping_interval(item: ConfItem) -> float:
    return duration_text_of(item, "ping_interval") if isinstance(item.value, str) else seconds_of(item)


AUTHORIZATION_KEYS: Final[dict[str, Reader]] = keyed(
    ("user username", ("user", text_of)),
    ("pass password", ("password", text_of)),
    ("token", ("token", text_of)),
    ("timeout", ("auth_timeout_s", seconds_of)),
)
WEBSOCKET_KEYS: Final[dict[str, Reader]] = keyed(
    ("listen", ("", address_fields)),
    ("port", ("port", port_of)),
    ("host net", ("host", text_of)),
    ("advertise", ("advertise", text_of)),
    ("no_tls", ("no_tls", flag_of)),
    ("tls", ("tls", tls_block)),
    ("same_origin", ("same_origin", flag_of)),
    ("allowed_origins allowed_origin allow_origins allow_origin origins origin", ("allowed_origins", _origins)),
    ("handshake_timeout", ("handshake_timeout_s", _handshake_timeout)),
    ("compress compression", ("compression", flag_of)),
    ("jwt_cookie", ("jwt_cookie", text_of)),
    ("user_cookie", ("user_cookie", text_of)),
    ("pass_cookie", ("pass_cookie", text_of)),
    ("token_cookie", ("token_cookie", text_of)),
    ("no_auth_user", ("no_auth_user", text_of)),
    ("headers", ("headers", _headers)),
    ("ping_interval", ("ping_interval_s", _ping_interval)),
    ("authorization authentication", ("", partial(fields_of, readers=AUTHORIZATION_KEYS))),
)


def websocket_faults(options: ServerOptions) -> Iterator[str]:
    websocket = options.websocket
    if websocket is None:
        return
    from natsctl.server.websocket.protocol import HEADERS_REFUSED, allowed_origin  # slow to import

    if websocket.tls is None and not websocket.no_tls:
        yield "websocket requires TLS configuration"
    for origin in websocket.allowed_origins:
        try:
            allowed_origin(origin)
        except ValueError as error:
            yield str(error)
    for what, given in (("username", websocket.user), ("token", websocket.token)):
        if options.users and given:
            yield f"websocket authentication {what} not compatible with presence of users/nkeys"
    if websocket.jwt_cookie and options.operator is None:
        cookie = f'"{websocket.jwt_cookie}"'
        yield f"trusted operators or trusted keys configuration is required for JWT authentication via cookie {cookie}"
    for name, _ in websocket.headers:
        if name.lower() in HEADERS_REFUSED:
            yield f'websocket: invalid header "{name}" not allowed'
        if name.lower().startswith("sec-websocket-"):
            yield f'websocket: invalid header "{name}", "Sec-WebSocket-" prefix not allowed'
