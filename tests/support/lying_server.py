"""A server that lies: a proxy in front of a real one, which changes what the server sends to clients.

Requests go through as they are. So every answer of the JetStream API, of services and of the system account, every
stored message and every INFO may be changed, and commands get as far as a real server takes them.
"""

import json
import random
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

from tests.support.relay import Relay, Way

Body = Callable[[bytes], bytes]
"""Change of one body."""

ESCAPE: Final = "\x1b]0;owned\x07\x1b[2J"
HUGE: Final = 10**400
DEEP: Final = b'{"a":' * 100_000 + b"1" + b"}" * 100_000


class LyingServer(Relay):
    """A proxy of the server at `url`; usable as a context manager.

    `body` changes what a message has, `block` its header block, `reply` its reply subject, and `line` every other line;
    `extra` returns what comes before a message.
    """

    def __init__(
        self,
        url: str,
        body: Body | None = None,
        *,
        line: Body | None = None,
        block: Body | None = None,
        reply: Body | None = None,
        extra: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self.body, self.line, self.block, self.reply, self.extra = body, line, block, reply, extra
        super().__init__(url)

    def _pass_on(self, source: socket.socket, sink: socket.socket, way: Way, port: int) -> None:
        if way == "to_client":
            with suppress(OSError), source.makefile("rb") as lines:
                for line in lines:
                    sink.sendall(self._frame(line, lines))
        super()._pass_on(source, sink, way, port)

    def _frame(self, line: bytes, lines: Any) -> bytes:
        verb, *words = line.split()
        if verb not in (b"MSG", b"HMSG"):
            return self.line(line) if self.line else line
        size = int(words[-1])
        whole = lines.read(size + 2)[:-2]
        head = int(words[-2]) if verb == b"HMSG" else 0
        reply = words[2] if len(words) == 4 + (verb == b"HMSG") else b""
        block, body = whole[:head], whole[head:]
        block = self.block(block) if self.block and block else block
        body = self.body(body) if self.body else body
        reply = self.reply(reply) if self.reply and reply else reply
        names = b" ".join(filter(None, (words[0], words[1], reply)))
        before = self.extra(names) if self.extra else b""
        if verb == b"HMSG":
            return before + b"HMSG %b %d %d\r\n%b%b\r\n" % (names, len(block), len(block) + len(body), block, body)
        return before + b"MSG %b %d\r\n%b\r\n" % (names, len(body), body)


# -- changes of JSON answers


def json_only(change: Callable[[Any], Any]) -> Body:
    """Return a change of bodies that are JSON objects; others stay as they are."""

    def changed(body: bytes) -> bytes:
        try:
            value = json.loads(body)
        except ValueError:
            return body
        if not isinstance(value, dict):
            return body
        result = change(value)
        return result if isinstance(result, bytes) else json.dumps(result).encode()

    return changed


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in entries:
        yield from leaves(below, (*path, key))


def replaced(value: Any, kind: type, by: Any) -> Any:
    """Return the same with every value of a type replaced."""
    if type(value) is kind:
        return by
    if isinstance(value, dict):
        return {key: replaced(below, kind, by) for key, below in value.items()}
    return [replaced(below, kind, by) for below in value] if isinstance(value, list) else value


def _each(kind: type, by: Any) -> Body:
    return json_only(lambda value: {k: replaced(v, kind, by) if k != "type" else v for k, v in value.items()})


def _objects(by: Any) -> Body:
    return json_only(lambda value: {key: by if isinstance(below, dict) else below for key, below in value.items()})


def _pages(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "total": 10**9, "limit": 1} if "total" in value else value


def _empty_pages(value: dict[str, Any]) -> dict[str, Any]:
    lists: dict[str, Any] = {key: [] for key, below in value.items() if isinstance(below, list)}
    return {**value, **lists, "total": 10**9, "limit": 1} if "total" in value else value


def _always(body: bytes) -> Body:
    return json_only(lambda _: body)


BODIES: Final[dict[str, Body]] = {
    "deep": _always(DEEP),
    "deep list": _always(b"[" * 100_000),
    "garbage": lambda _: b"\xff\x1b[2J{",
    "empty": lambda _: b"",
    "garbage above max_payload": lambda _: b"[" * (2 << 20),
    "list": _always(b"[]"),
    "null": _always(b"null"),
    "number": _always(b"1e400"),
    "no fields": _always(b"{}"),
    "numbers as texts": _each(int, ESCAPE),
    "numbers as lists": _each(int, []),
    "numbers null": _each(int, None),
    "numbers negative": _each(int, -7),
    "numbers beyond 64 bits": _each(int, HUGE),
    "numbers large": _each(int, 2**63 - 1),
    "numbers NaN": _each(int, float("nan")),
    "numbers infinite": _each(int, float("inf")),
    "numbers fractions": _each(int, 1.5),
    "texts as numbers": _each(str, 7),
    "texts as objects": _each(str, {}),
    "texts null": _each(str, None),
    "texts escaping": _each(str, ESCAPE + "\u202e"),
    "texts half": _each(str, "\ud800"),
    "texts empty": _each(str, ""),
    "texts late": _each(str, "9999-99-99T99:99:99Z"),
    "texts later": _each(str, "9999-12-31T23:59:59.999999999+23:59"),
    "texts huge": _each(str, "x" * 100_000),
    "lists as objects": _each(list, {}),
    "lists as texts": _each(list, "abc"),
    "lists null": _each(list, None),
    "lists of lists": _each(list, [[], 7, None, {}]),
    "booleans as texts": _each(bool, "x"),
    "objects": _objects([]),
    "objects null": _objects(None),
    "objects of texts": _objects({"a": "b"}),
    "error number": _always(b'{"error": 7}'),
    "error list": _always(b'{"error": [1]}'),
    "error text": _always(b'{"error": "\\u001b[2J"}'),
    "error fields": _always(b'{"error": {"code": "x", "err_code": [], "description": {"a": NaN}}}'),
    "error beyond": _always(b'{"error": {"code": 1e400, "err_code": -1, "description": "\\u001b[2J\\u202e"}}'),
    "endless pages": json_only(_pages),
    "empty pages": json_only(_empty_pages),
}  # fmt: skip

VALUES: Final[tuple[Any, ...]] = (
    None, "", ESCAPE, "x", "\ud800", 7, -1, 0, HUGE, 2**63, -(2**63), 10**18, 1.5, float("nan"), float("inf"),
    True, False, [], {}, [7], [None], [[]], {"a": "b"}, {"": None},
    "9999-99-99T99:99:99Z", "0001-01-01T00:00:00Z", "10000-01-01T00:00:00Z",
)  # fmt: skip


def one_changed(seed: int) -> Body:
    """Return a change of one value of each answer, or of its absence."""
    chance = random.Random(seed)

    def change(value: dict[str, Any]) -> dict[str, Any]:
        paths = [path for path in leaves(value) if path != ("type",)]
        if paths:
            *above, last = chance.choice(paths)
            holder: Any = value
            for key in above:
                holder = holder[key]
            if chance.random() < 0.15:
                del holder[last]
            else:
                holder[last] = chance.choice(VALUES)
        return value

    return json_only(change)
