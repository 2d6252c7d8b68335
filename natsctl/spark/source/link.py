"""The data source's connection to a NATS server or cluster, and the reply subjects of deliveries."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, NamedTuple

from natsctl.client.blocking import READ_BYTES, BlockingConnection
from natsctl.spark.source.errors import (
    JetStreamSourceError,
    NoResponseError,
    OptionError,
    ServerUnreachableError,
    SourceConnectionLostError,
    SourceNotAuthorisedError,
)
from natsctl.spark.source.handshake import Encryption, ServerSettings, credentials_at, server_url
from natsctl.spark.source.outages import Outage
from natsctl.wire.client import INFO_VERB, ClientProtocol, ServerLineError, TlsNotOfferedError
from natsctl.wire.ed25519 import SeedError
from natsctl.wire.server_frames import LINE_END, BrokenFrameError, frames

REPLY_AT: Final = {b"MSG": 5, b"HMSG": 6}
"""The number of fields in a message's line with a reply subject, by verb."""


LONGEST_REPLY: Final = 11
"""Tokens of a reply subject with domain and account; one more is a token after the place."""
PLACES: Final = 4
"""Numbers that end a reply subject: sequence, delivery, time, pending."""


class Message(NamedTuple):
    """One delivered message; `headers` is the whole header block, empty without one."""

    subject: bytes
    sid: bytes
    reply: bytes
    headers: bytes
    body: bytes


class Place(NamedTuple):
    """The place of a delivered message in its stream and in its consumer's deliveries, and how many are to come."""

    seq: int
    delivery: int
    time_ns: int
    pending: int


def read_frames(data: bytes, at: int = 0) -> Iterator[tuple[int, Message | bytes]]:
    """Yield the messages, and the lines between them, that are complete in `data` from `at` on, each after its end.

    Raises ServerUnreachableError for bytes that no server sends.
    """
    try:
        for end, sid, subject, reply, headers, body in frames(data, at):
            yield end, Message(subject, sid, reply, headers, body) if sid else subject
    except BrokenFrameError as failure:
        raise ServerUnreachableError(f"the other side does not speak the NATS protocol: {failure}") from failure


def status_of(headers: bytes) -> int:
    """Return the status in the first line of a header block (503, 408, …); 0 without one."""
    words = headers[: headers.find(LINE_END)].split(None, 2) if headers else []
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


def description_of(headers: bytes) -> str:
    """Return the text after the status in the first line of a header block."""
    words = headers[: headers.find(LINE_END)].split(None, 2) if headers else []
    return words[2].decode(errors="replace").strip() if len(words) > 2 else ""


def place_of(reply: bytes) -> Place:
    """Parse a delivery's reply subject: $JS.ACK.[domain.account.]stream.consumer.tries.seq.delivery.time.pending.

    Raises ServerUnreachableError for any other subject.
    """
    words = reply.split(b".")
    try:
        last = len(words) - 1 if len(words) > LONGEST_REPLY else len(words)
        return Place(*map(int, words[last - PLACES : last]))
    except (ValueError, TypeError) as failure:
        raise ServerUnreachableError(
            f"the server delivers with {reply[:200]!r} as the place to acknowledge"
        ) from failure


def ack_prefix(reply: bytes) -> bytes:
    """Return the beginning of a consumer's acknowledgement subjects, up to its name."""
    return b".".join(reply.split(b".")[: _before_places(reply)])


def deliveries_of(reply: bytes) -> int:
    """Return how often a message has been delivered, by the subject that acknowledges it."""
    return int(reply.split(b".")[_before_places(reply)])


def delivered(reply: bytes) -> tuple[int, bool]:
    """Return a message's sequence in its stream and whether it was delivered before, by the subject to acknowledge.

    Raises ServerUnreachableError for any other subject.
    """
    words = reply.split(b".")
    at = len(words) - (1 if len(words) > LONGEST_REPLY else 0) - PLACES
    try:
        return int(words[at]), words[at - 1] != b"1"
    except (ValueError, IndexError) as failure:
        raise ServerUnreachableError(
            f"the server delivers with {reply[:200]!r} as the place to acknowledge"
        ) from failure


def _before_places(reply: bytes) -> int:
    """Return the number of tokens before the count of deliveries and the four numbers of a place."""
    words = reply.count(b".") + 1
    return words - PLACES - (2 if words > LONGEST_REPLY else 1)


class Reply(NamedTuple):
    """The answer to a request; status 0 without one, 503 if there is no listener."""

    status: int
    headers: bytes
    body: bytes


class Link(BlockingConnection):
    """One connection; after `SourceConnectionLostError`, `reopen` makes another, without its subscriptions."""

    def __init__(self, settings: ServerSettings) -> None:
        super().__init__(settings.inbox_prefix)
        self.settings = settings
        self._servers = [(url, "") for url in settings.urls]
        self._current = -1
        self._greeted = False

    @classmethod
    def open(cls, settings: ServerSettings, *, resolve: bool = False) -> Link:
        """Connect to the first server that answers; with `resolve`, fail at once if no host name is known.

        Raises ServerUnreachableError, SourceNotAuthorisedError, OptionError.
        """
        addresses = [server_url(url) for url in settings.urls]
        if resolve:
            _check_names([(address.host, address.port) for address in addresses])
        link = cls(settings)
        link.reopen()
        return link

    def __enter__(self) -> Link:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def lame_duck(self) -> bool:
        """Return whether the server has announced that it is about to stop."""
        return bool(self.info.get("ldm"))

    def reopen(self) -> None:
        """Reconnect, to the next server first; every server is tried once, then again until an outage is too long."""
        self.close()
        outage = Outage(self.settings, "" if self._greeted else _NEVER_GREETED)
        failure: JetStreamSourceError = ServerUnreachableError("no server is given")
        while True:
            for _ in range(len(self._servers)):
                self._current = (self._current + 1) % len(self._servers)
                try:
                    self._greet(*self._servers[self._current])
                except ServerUnreachableError as unreachable:
                    failure = unreachable
                else:
                    self._greeted = True
                    self._learn_servers()
                    outage.end()
                    return
            outage.pause(failure)

    def _greet(self, url: str, certificate_name: str) -> None:
        """Connect and log in; raises ServerUnreachableError, SourceNotAuthorisedError, OptionError.

        `certificate_name` is the host that the certificate must name if the address came from another server's INFO.
        """
        settings, parts = self.settings, server_url(url)
        address = parts.address
        wants_tls = any(server_url(each).scheme == "tls" for each in (url, *settings.urls))
        encryption = Encryption(settings, certificate_name or parts.host, wanted=wants_tls)
        protocol = ClientProtocol(
            credentials_at(parts, settings),
            name="natsctl-spark",
            wants_tls=encryption.asked,
            secured=settings.tls_first,
        )
        try:
            self.connect(
                parts.host, parts.port, protocol, encryption.of,
                timeout_s=settings.timeout_s, tls_first=settings.tls_first,
            )  # fmt: skip
        except SeedError as failure:
            raise OptionError("nkey, credentials: the NKey seed in it is not valid") from failure
        except ssl.SSLCertVerificationError as failure:
            text = f"{address}: the server's certificate is not accepted: {failure.verify_message}"
            raise SourceNotAuthorisedError(text) from failure
        except TlsNotOfferedError:
            raise ServerUnreachableError(f"{address}: TLS was requested, but this server does not offer it") from None
        except ServerLineError as failure:
            kind = SourceNotAuthorisedError if failure.refuses_login else ServerUnreachableError
            raise kind(f"{address}: the server refuses the login: {failure.text}") from None
        except OSError as failure:
            raise ServerUnreachableError(f"no server answers at {address}: {failure}") from failure
        except ValueError as failure:
            raise ServerUnreachableError(f"{address}: the server does not speak the NATS protocol{_HINT}") from failure

    def send(self, data: bytes) -> None:
        """Send raw protocol lines; raises SourceConnectionLostError, also if the server reads nothing for long."""
        try:
            super().send(data)
        except OSError as failure:
            raise _lost(failure) from failure

    def read(self, timeout_s: float, max_bytes: int = READ_BYTES) -> bytes:
        """Return received bytes, possibly ending within a frame; 0 does not wait.

        Raises NoResponseError, SourceConnectionLostError.
        """
        try:
            return super().read(timeout_s, max_bytes)
        except TimeoutError as failure:
            raise NoResponseError(f"the server sent nothing for {timeout_s:g} s") from failure
        except OSError as failure:
            raise _lost(failure) from failure

    def read_into(self, room: memoryview, timeout_s: float) -> int:
        """Receive bytes into `room` and return their number; raises as `read`."""
        try:
            return super().read_into(room, timeout_s)
        except TimeoutError as failure:
            raise NoResponseError(f"the server sent nothing for {timeout_s:g} s") from failure
        except OSError as failure:
            raise _lost(failure) from failure

    def handle_line(self, line: bytes) -> None:
        """Handle a line between messages; raises SourceNotAuthorisedError, SourceConnectionLostError for an error."""
        try:
            super().handle_line(line)
        except ServerLineError as failure:
            if failure.refused:
                raise SourceNotAuthorisedError(f"the server refuses it: {failure.text}") from None
            raise SourceConnectionLostError(f"the server ends the connection: {failure.text}") from None
        except ValueError as failure:
            raise SourceConnectionLostError(f"the server sends an {failure}") from None
        if line.startswith(INFO_VERB):
            self._learn_servers()

    def request(
        self, subject: str, body: bytes = b"", *, timeout_s: float | None = None, headers: bytes = b""
    ) -> Reply:
        """Return the answer to a request.

        Raises NoResponseError, SourceNotAuthorisedError, SourceConnectionLostError.
        """
        wait_s = self.settings.timeout_s if timeout_s is None else timeout_s
        try:
            block, answer = self.exchange(subject, body, headers, wait_s)
        except NoResponseError as failure:
            raise NoResponseError(f"no answer on {subject} within {wait_s:g} s") from failure
        return Reply(status_of(block), block, answer)

    def _wait(self, awaited_sid: bytes, awaited: bytes, deadline_s: float) -> tuple[bytes, bytes, bytes, bytes]:
        try:
            return super()._wait(awaited_sid, awaited, deadline_s)
        except BrokenFrameError as failure:
            raise ServerUnreachableError(f"the other side does not speak the NATS protocol: {failure}") from failure

    def _learn_servers(self) -> None:
        """Add servers of its cluster that INFO names."""
        url, name = self._servers[self._current]
        current = server_url(url)
        known = {server_url(each).address for each, _ in self._servers}
        for address in self.info.get("connect_urls") or []:
            if address not in known:
                offered = server_url(f"{current.scheme}://{address}")
                url = current._replace(host=offered.host, port=offered.port).full
                self._servers.append((url, name or current.host))


def _check_names(addresses: Sequence[tuple[str, int]]) -> None:
    """Raise OptionError if DNS knows no host of that name; failures that may pass are left to the connection."""
    for address in addresses:
        try:
            socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
        except socket.gaierror as failure:
            if failure.errno == socket.EAI_NONAME:
                continue
        return
    names = ", ".join(host for host, _ in addresses)
    raise OptionError(f"option servers: no host has the name {names}")


def _lost(failure: OSError) -> SourceConnectionLostError:
    return SourceConnectionLostError(f"the connection to the server was lost: {failure}")


_NEVER_GREETED: Final = " (no server has answered yet: is option servers right? retryTimeout limits the wait)"
_HINT: Final = " (it may want TLS at once: tlsFirst)"
