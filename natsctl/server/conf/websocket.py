"""The block `websocket` of nats.conf."""

from __future__ import annotations

from dataclasses import replace

from natsctl.server.conf.syntax import Item
from natsctl.server.conf.tls import tls_block
from natsctl.server.conf.values import address_of, block_of, flag_of, port_of, text_of
from natsctl.server.options import ServerOptions, WebSocketOptions


def websocket_block(options: ServerOptions, item: Item) -> ServerOptions:
    """Return `options` with what the block sets; raises ConfError."""
    websocket = WebSocketOptions(port=0)
    for key, value in block_of(item).items():
        match key.lower():
            case "port":
                websocket = replace(websocket, port=port_of(value))
            case "host" | "net":
                websocket = replace(websocket, host=text_of(value))
            case "listen":
                host, port = address_of(value, websocket.host)
                websocket = replace(websocket, host=host, port=port)
            case "no_tls":
                websocket = replace(websocket, no_tls=flag_of(value))
            case "compression":
                websocket = replace(websocket, compression=flag_of(value))
            case "tls":
                websocket = replace(websocket, tls=tls_block(value))
            case _:
                raise value.fault(f"{key} of websocket: not available in this version of natsctl server")
    if not websocket.port:
        return options
    if websocket.tls is None and not websocket.no_tls:
        raise item.fault("websocket requires TLS configuration, or no_tls: true")
    return replace(options, websocket=replace(websocket, tls=None if websocket.no_tls else websocket.tls))
