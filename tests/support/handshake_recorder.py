"""A server that records what clients send in clear and under TLS, whatever it offers in INFO."""

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from natsctl.testing.certificates import Authority

PATIENCE_S: Final = 30.0
CLIENT_HELLO: Final = b"\x16"
"""First byte of a TLS handshake."""
INFO: Final = {
    "server_id": "RECORDER", "version": "2.15.2", "headers": True, "proto": 1, "max_payload": 1 << 20, "client_id": 7,
    "nonce": "bm9uY2U", "jetstream": True, "auth_required": True, "leafnode_urls": ["127.0.0.1:1"],
}  # fmt: skip
ANSWER: Final = json.dumps({"streams": ["ORDERS"], "total": 1, "offset": 0, "limit": 1024}).encode()


@dataclass
class Recording:
    """Bytes that one connection sent in clear, and those that it sent under TLS; `upgraded` if it began TLS."""

    clear: bytes = b""
    secret: bytes = b""
    upgraded: bool = False
    ended: bool = False


class HandshakeRecorder:
    """Sends INFO with `offers`, takes part in a TLS handshake only if it offers one, and answers every request."""

    def __init__(self, context: ssl.SSLContext, **offers: Any) -> None:
        self.offers = offers
        self.behind_info = b""
        """What is sent in clear together with INFO."""
        self.recordings: list[Recording] = []
        self._context = context
        self._changed = threading.Condition()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

    def hang_up(self) -> None:
        with self._changed:
            for peer in self._open:
                with suppress(OSError):
                    peer.shutdown(socket.SHUT_RDWR)

    def recorded(self, count: int = 1) -> list[Recording]:
        """Return the recordings of at least `count` connections, all of which have ended."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: len(self.recordings) >= count and all(each.ended for each in self.recordings), PATIENCE_S
            )
        return self.recordings

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                self._threads.append(threading.Thread(target=self._serve, args=(peer,)))
                self._threads[-1].start()

    def _serve(self, peer: socket.socket) -> None:
        recording = Recording()
        with self._changed:
            self.recordings.append(recording)
            self._open.add(peer)
        peer.settimeout(PATIENCE_S)
        try:
            with suppress(OSError):
                peer.sendall(b"INFO %b\r\n" % json.dumps({**INFO, **self.offers}).encode() + self.behind_info)
                if peer.recv(1, socket.MSG_PEEK) == CLIENT_HELLO and self.offers:
                    recording.upgraded = True
                    self._open.discard(peer)
                    peer = self._context.wrap_socket(peer, server_side=True)
                    self._open.add(peer)
                self._answer(peer, recording)
        finally:
            with self._changed:
                self._open.discard(peer)
            peer.close()
            with self._changed:
                recording.ended = True
                self._changed.notify_all()

    def _answer(self, peer: socket.socket, recording: Recording) -> None:
        """Answer PINGs and requests until the end of the connection."""
        sids: dict[bytes, bytes] = {}
        rest = b""
        while chunk := peer.recv(65536):
            with self._changed:
                if isinstance(peer, ssl.SSLSocket):
                    recording.secret += chunk
                else:
                    recording.clear += chunk
                self._changed.notify_all()
            *lines, rest = (rest + chunk).split(b"\r\n")
            for line in lines:
                verb, *words = line.split(b" ")
                if verb == b"PING":
                    peer.sendall(b"PONG\r\n")
                elif verb == b"SUB":
                    sids[words[0].removesuffix(b"*")] = words[-1]
                elif verb == b"PUB" and len(words) == 3:
                    sid = next((sid for inbox, sid in sids.items() if words[1].startswith(inbox)), b"1")
                    peer.sendall(b"MSG %b %b %d\r\n%b\r\n" % (words[1], sid, len(ANSWER), ANSWER))


def server_context(authority: Authority) -> ssl.SSLContext:
    """Return the context of a server at 127.0.0.1 whose certificate `authority` has issued."""
    issued = authority.issue("server", dns=["localhost"], addresses=["127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(issued.cert, issued.key)
    return context


@contextmanager
def recording(folder: Path, **offers: Any) -> Iterator[HandshakeRecorder]:
    """Run a recorder; the authority of its certificate is `folder`/authority.pem."""
    with closing(HandshakeRecorder(server_context(Authority(folder)), **offers)) as recorder:
        yield recorder
