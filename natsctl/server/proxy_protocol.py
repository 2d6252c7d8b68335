"""The PROXY protocol, versions 1 and 2: a proxy's first bytes name the client that it connects.

`ProxyHeader` reads them without I/O, in any pieces. A connection that does not begin like a header is a client's own,
and its bytes are the client's. The two connections here read the header before anything else, also before a TLS
handshake, and take the client's address from it. INFO leaves before the header, without an address in it. A header has
its time; nothing else of a connection is timed meanwhile. Source: nats-server, client_proxyproto.go.
"""

from __future__ import annotations

import asyncio
import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Any, Final

from natsctl.api.codec import go_quote
from natsctl.broker.refusals import CloseReason
from natsctl.server.listener import ClientConnection, peer_of
from natsctl.server.options import joined
from natsctl.server.tls.listener import TlsConnection, local_of, text_of

if TYPE_CHECKING:
    from natsctl.server.shell import Shell
    from natsctl.server.tls.listener_tls import ListenerTls


SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
"""The first bytes of version 2."""
LINE: Final = b"PROXY "
"""The first bytes of version 1."""
MAX_LINE_BYTES: Final = 107
"""Bytes of a header of version 1, its end included. Source: the specification."""
FIXED_BYTES: Final = 16
"""Bytes of version 2 before the address; the last two are its length."""
HEADER_S: Final = 5.0
"""Time for the first bytes, and again for the rest. Source: nats-server, proxyProtoReadTimeout."""

_DECIDING: Final = len(LINE)
_STREAM: Final = 1
_WORDS: Final = re.compile(r"[^\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
"""What Go's strings.Fields separates."""
_INVALID: Final = "invalid PROXY protocol header"
_UNSUPPORTED: Final = "unsupported PROXY protocol feature"

Address = tuple[str, int]


class ProxyHeaderError(Exception):
    """An invalid header, with nats-server's text."""


class ProxyHeader:
    """One header as it arrives; `source` is the client's address once it is complete, or None without one."""

    __slots__ = ("_begun", "_held", "_parsed", "_skip", "_where", "source")

    def __init__(self) -> None:
        self.source: Address | None = None
        self._held = b""
        self._parsed = False
        self._skip = 0
        """Bytes of the header that are still to be dropped: addresses of no use, and extensions."""
        self._where = "failed to read protocol version"
        self._begun = False
        """The part that is awaited has begun to arrive."""

    @property
    def decided(self) -> bool:
        """Return whether enough has arrived to know if there is a header."""
        return self._parsed or len(self._held) >= _DECIDING

    @property
    def rest(self) -> bytes:
        return self._held

    def feed(self, data: bytes) -> bool:
        """Return whether the header is complete with these bytes. Raises ProxyHeaderError."""
        self._held += data
        if not self._parsed:
            self._parsed = self._parse()
        if not self._parsed:
            return False
        dropped = min(self._skip, len(self._held))
        self._skip -= dropped
        self._held = self._held[dropped:]
        return self._skip == 0

    def broken_off(self, cause: str = "") -> str:
        """Return the error of a header that ends here, by default with the connection."""
        return f"{self._where}: {cause or ('unexpected EOF' if self._begun else 'EOF')}"

    def _parse(self) -> bool:
        held = self._held
        if len(held) < _DECIDING:
            self._begun = bool(held)
            return False
        if held.startswith(LINE):
            return self._parse_line()
        if held.startswith(SIGNATURE[:_DECIDING]):
            return self._parse_binary()
        return True

    def _await(self, where: str, size: int, have: int) -> bool:
        """Note which part is awaited; return whether its `size` bytes are there."""
        self._where, self._begun = f"failed to {where}", have > 0
        return have >= size

    def _parse_line(self) -> bool:
        held = self._held
        end = held.find(b"\r\n", len(LINE), MAX_LINE_BYTES)
        if end < 0:
            if len(held) >= MAX_LINE_BYTES:
                raise ProxyHeaderError(f"{_INVALID}: v1 line too long")
            return self._await("read v1 line", 1, 0)
        self._held = held[end + 2 :]
        self.source = _address_of_line(held[len(LINE) : end].decode("utf-8", "replace"))
        return True

    def _parse_binary(self) -> bool:
        held, signed = self._held, len(SIGNATURE)
        if not self._await("read v2 signature", signed - _DECIDING, len(held) - _DECIDING):
            return False
        if not held.startswith(SIGNATURE):
            raise ProxyHeaderError(f"{_INVALID}: invalid signature")
        if not self._await("read v2 header", FIXED_BYTES - signed, len(held) - signed):
            return False
        length = int.from_bytes(held[14:16], "big")
        name, size = _address_part(held[12], held[13], length)
        if not size:
            self._await(f"discard {name} address data", 1, 0)
        elif not self._await(f"read {name} address data", size, len(held) - FIXED_BYTES):
            return False
        else:
            self.source = _address_of(held[FIXED_BYTES : FIXED_BYTES + size])
        self._held = held[FIXED_BYTES + size :]
        self._skip = length - size
        return True


def _address_part(command: int, family: int, length: int) -> tuple[str, int]:
    """Return the name of a binary header's address for errors and its length, 0 if it is unused.

    Raises ProxyHeaderError.
    """
    if command & 0xF0 != 0x20:
        raise ProxyHeaderError(f"{_INVALID}: invalid version 0x{command & 0xF0:02x}")
    if command & 0x0F == 0:
        return "LOCAL command", 0
    if command & 0x0F != 1:
        raise ProxyHeaderError(f"unknown PROXY protocol command: 0x{command & 0x0F:02x}")
    if family & 0x0F != _STREAM:
        raise ProxyHeaderError(f"{_UNSUPPORTED}: only STREAM protocol supported")
    if family & 0xF0 == 0:
        return "UNSPEC address", 0
    name, size = {0x10: ("IPv4", 12), 0x20: ("IPv6", 36)}.get(family & 0xF0, ("", 0))
    if not name:
        raise ProxyHeaderError(f"{_UNSUPPORTED}: unsupported address family 0x{family & 0xF0:02x}")
    if length < size:
        raise ProxyHeaderError(f"{name} address data too short: {length} bytes")
    return name, size


def _address_of(data: bytes) -> Address:
    width = 4 if len(data) == 12 else 16
    host = IPv4Address(data[:4]) if width == 4 else IPv6Address(data[:16])
    return _shown(host), int.from_bytes(data[2 * width : 2 * width + 2], "big")


def _address_of_line(line: str) -> Address | None:
    """Return the source that a line names, None for an unknown one. Raises ProxyHeaderError."""
    words = _WORDS.findall(line)
    if words[:1] == ["UNKNOWN"]:
        return None
    if len(words) != 5:
        raise ProxyHeaderError(f"{_INVALID}: invalid v1 format")
    protocol, *hosts = words[:3]
    try:
        source, _ = (_host_of(host) for host in hosts)
    except AddressValueError:
        raise ProxyHeaderError(f"{_INVALID}: invalid address") from None
    port, _ = _port_of(words[3], "source"), _port_of(words[4], "dest")
    wide = [":" in host for host in hosts]
    if protocol == "TCP4" and any(wide):
        raise ProxyHeaderError(f"{_INVALID}: TCP4 with IPv6 address")
    if protocol == "TCP6" and not all(wide):
        raise ProxyHeaderError(f"{_INVALID}: TCP6 with IPv4 address")
    if protocol not in ("TCP4", "TCP6"):
        raise ProxyHeaderError(f"{_INVALID}: invalid protocol {protocol}")
    return _shown(source), port


def _host_of(text: str) -> IPv4Address | IPv6Address:
    """Return the address that a text is; raises AddressValueError, also for one with a zone."""
    if "%" in text:
        raise AddressValueError(text)
    return IPv6Address(text) if ":" in text else IPv4Address(text)


def _port_of(text: str, which: str) -> int:
    fault = "" if text.isascii() and text.isdigit() else "invalid syntax"
    if not fault and (len(text.lstrip("0")) > 5 or int(text) > 65535):
        fault = "value out of range"
    if fault:
        raise ProxyHeaderError(f"invalid {which} port: strconv.ParseUint: parsing {go_quote(text)}: {fault}")
    return int(text)


def _shown(host: IPv4Address | IPv6Address) -> str:
    """Return an address as Go shows it: one of IPv4 that is mapped to IPv6 as the former."""
    mapped = host.ipv4_mapped if isinstance(host, IPv6Address) else None
    return str(mapped or host)


class HeaderReader:
    __slots__ = ("_connection", "_late", "_shell", "_timer", "done", "header", "proxy")

    def __init__(self, connection: ClientConnection, shell: Shell) -> None:
        self.header = ProxyHeader()
        self.proxy: Address = ("", 0)
        """The other side of the connection."""
        self._connection = connection
        self._shell = shell
        self._timer: asyncio.TimerHandle | None = None
        self.done = False
        """The header is complete, and the connection is the client's."""
        self._late = False
        """The time for the first bytes is over, and that for the rest has begun."""

    def begin(self) -> None:
        self.proxy = peer_of(self._connection.transport)
        self._arm()

    def _arm(self) -> None:
        self.cancel()
        self._timer = self._shell.loop.call_later(HEADER_S, self._expire)

    def _expire(self) -> None:
        if not self._late and not self.header.decided:
            self._late = True
            self._arm()
        elif not self._shell.postpones(self._connection, b""):
            self.give_up()

    def give_up(self) -> None:
        self.fail(self.header.broken_off(f"{self._reading}: i/o timeout"))

    @property
    def _reading(self) -> str:
        return f"read tcp {joined(*local_of(self._connection.transport))}->{joined(*self.proxy)}"

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def feed(self, data: bytes) -> bool:
        """Return whether the header is complete with these bytes, and the session has its client's address then."""
        before = self.header.decided
        try:
            complete = self.header.feed(data)
        except ProxyHeaderError as fault:
            self.fail(str(fault))
            return False
        if complete:
            self.cancel()
            self._connection.session.locate(*(self.header.source or self.proxy))
        elif not before and self.header.decided and not self._late:
            self._late = True
            self._arm()
        return complete

    def lost(self, error: Exception | None) -> None:
        self.fail(self.header.broken_off(f"{self._reading}: read: {text_of(error)}" if error is not None else ""))

    def fail(self, why: str) -> None:
        self.cancel()
        connection, session = self._connection, self._connection.session
        if session.close_reason is not None or connection.closing:
            return
        self._shell.broker.log_warning(f"Error reading PROXY protocol header from {joined(*self.proxy)}: {why}")
        if not connection.ready:  # INFO, not for a clear-text connection
            session.take_output()
            connection.ready = True
        session.close(CloseReason.PROTOCOL_VIOLATION)
        self._shell.wake()


class _HeaderFirst(ClientConnection):
    """A connection that a proxy may have announced; everything after the header is the client's."""

    __slots__ = ()

    kind = "proxied"
    _reader: HeaderReader

    def _before_header(self) -> bool:
        return False

    def _after_header(self, handshake_first: bool) -> None:
        self.session.start_timers()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        session: Any = getattr(self, "session", None)  # none if the other side has already closed
        if session is not None and session.close_reason is None:
            session.hold_timers()
            self._reader.begin()

    def data_received(self, data: bytes) -> None:
        if self._reader.done:
            super().data_received(data)
        elif self.session.close_reason is None and not self._shell.postpones(self, data):
            self.shake_hands(data)

    def shake_hands(self, data: bytes) -> None:
        """Continue with the header; without data its time is over."""
        if not self._reader.done and not data:
            self._reader.give_up()
        elif self._reader.done and data:
            super().shake_hands(data)
        elif data and self.session.close_reason is None:
            handshake_first = self._before_header()
            if self._reader.feed(data):
                data, self._reader.done = self._reader.header.rest, True
                self._after_header(handshake_first)
                if data:
                    super().data_received(data)

    def eof_received(self) -> bool:
        if not self._reader.done:
            self._reader.lost(None)
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._reader.done:
            self._reader.lost(exc)
        super().connection_lost(exc)


class ProxiedConnection(_HeaderFirst):
    __slots__ = ("_reader",)

    def __init__(self, shell: Shell) -> None:
        super().__init__(shell)
        self._reader = HeaderReader(self, shell)


class ProxiedTlsConnection(_HeaderFirst, TlsConnection):
    """The same on a listener with TLS: the header is in clear, and a handshake begins after it."""

    __slots__ = ("_reader",)

    def __init__(self, shell: Shell, tls: ListenerTls) -> None:
        TlsConnection.__init__(self, shell, tls)
        self._reader = HeaderReader(self, shell)

    def proceed(self) -> None:
        if self._reader.done:
            super().proceed()

    def expect_handshake(self) -> None:
        if self._reader.done:
            super().expect_handshake()

    def _before_header(self) -> bool:
        return self.handshake_comes_first()

    def _after_header(self, handshake_first: bool) -> None:
        if handshake_first:
            self.expect_handshake()
        else:
            self.proceed()
