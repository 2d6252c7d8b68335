"""The protocol trace of the log: a line for each operation and for each payload of one side of a connection.

The bytes are parsed apart from the session, so that a server without a trace pays nothing.
Bytes that are no operation leave no line.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from natsctl.broker.refusals import quoted

MAX_KEPT_BYTES: Final = 1 << 20
"""Bytes kept of a payload or of an unfinished line; a server has longer payloads only where configured."""
MASK: Final = "[REDACTED]"
SECRETS: Final = frozenset({"sig", "proxy_sig", "nkey", "jwt"})
"""Hidden options of CONNECT, in addition to names that begin with SECRET_HEADS. nats-server shows the JWT."""
SECRET_HEADS: Final = ("pass", "auth_token")
SECRET_SUBJECT: Final = b"$SYS.REQ.USER.AUTH "
"""Subject of requests that hold the secrets of clients: their payloads are hidden. nats-server shows them."""
BARE: Final = frozenset({b"PING", b"PONG"})
SHOWN: Final = frozenset({b"PUB", b"HPUB", b"SUB", b"UNSUB", b"MSG", b"HMSG", b"LS+", b"LS-", b"LMSG"})
SIZED: Final = frozenset({b"PUB", b"HPUB", b"MSG", b"HMSG", b"LMSG"})
"""Operations with the length of a payload as last argument."""
_LINE: Final = re.compile(rb"[ \t]*([+-]?[A-Za-z]+[+-]?)[ \t]*(.*?)[ \t\r]*", re.DOTALL)
_CRLF_BYTES: Final = 2
_QUOTE: Final = b"'"


class ProtocolTrace:
    def __init__(self, *, sent: bool) -> None:
        self._sent = sent
        self._arrow = "->>" if sent else "<<-"
        self._tail = b""
        self._body = bytearray()
        self._left = self._size = 0
        self._hidden = False

    def lines(self, chunk: bytes, most: int) -> list[str]:
        """Return the lines of operations that `chunk` completes; of each payload the first `most` bytes, 0 for all."""
        data, at, found = self._tail + chunk, 0, list[str]()
        while at < len(data):
            if self._left:
                piece = data[at : at + self._left]
                self._body += piece[: MAX_KEPT_BYTES - len(self._body)]
                self._left -= len(piece)
                at += len(piece)
                if not self._left:
                    found += self._payload(most)
                continue
            end = data.find(b"\n", at)
            if end < 0:
                break
            found += self._operation(data[at:end])
            at = end + 1
        self._tail = data[at : at + MAX_KEPT_BYTES]
        return found

    def _operation(self, line: bytes) -> list[str]:
        match = _LINE.fullmatch(line)
        if match is None:
            return []
        verb, args = match[1].upper(), match[2]
        if verb in SIZED and (size := args.rpartition(b" ")[2]).isdigit() and len(size) < 10:
            self._size = int(size)
            self._left = self._size + _CRLF_BYTES
            self._hidden = args.startswith(SECRET_SUBJECT)
        text = self._text(verb, args)
        return [f"{self._arrow} [{text}]"] if text else []

    def _text(self, verb: bytes, args: bytes) -> str:
        if verb in BARE:
            return verb.decode()
        if verb in SHOWN:
            return f"{verb.decode()} {printable(args)}"
        if self._sent:
            return {b"+OK": "OK", b"-ERR": "-ERR " + printable(args.strip(_QUOTE))}.get(verb, "")
        return f"CONNECT {masked(args)}" if verb == b"CONNECT" else ""

    def _payload(self, most: int) -> list[str]:
        body, size = bytes(self._body[: self._size]), self._size
        self._body.clear()
        kept = min(most or size, size, MAX_KEPT_BYTES)
        text = f'"{MASK}"' if self._hidden else quoted(body[:kept])
        if kept < size and not self._hidden:
            text = f'{text[:-1]}..."'
        return [f"{self._arrow} MSG_PAYLOAD: [{text}]"] if size else []


def printable(data: bytes) -> str:
    """Return arguments of an operation as one line of text that does nothing to a terminal."""
    text = data.decode("utf-8", "replace")
    return text if text.isprintable() else "".join(each if each.isprintable() else "�" for each in text)


def masked(connect: bytes) -> str:
    """Return the options of CONNECT without its secrets; nothing of malformed ones."""
    try:
        options: Any = json.loads(connect)
    except ValueError:
        return MASK
    if not isinstance(options, dict):
        return MASK
    shown = {
        name: MASK if value and (name.lower() in SECRETS or name.lower().startswith(SECRET_HEADS)) else value
        for name, value in options.items()
    }
    return printable(json.dumps(shown, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace"))
