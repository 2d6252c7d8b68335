"""Fuzzing nats.conf: good files, spoilt; whatever comes is read or refused with its place, in bounded time.

The corpus are the files of tests/server/conf/corpus where they are at hand. Inputs that once found a fault lie beside
them and are tried like the others.
"""

import random
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Final

from natsctl.server.conf.config import apply, config_digest
from natsctl.server.conf.syntax import ConfError, load_text
from natsctl.server.options import ServerOptions

CORPUS: Final = Path(__file__).parents[2] / "server" / "conf" / "corpus"

_ENVIRONMENT: Final = {
    "LOOP": "$LOOP",
    "NUMBER": "4222",
    "BLOCK": "{ a: 1 }",
    "BROKEN": "{",
    "EMPTY": "",
    "TWO": "$NUMBER",
}
_WORDS: Final = (
    "{", "}", "[", "]", "(", ")", "\n)\n", ":", "=", ",", ";", "#", "//", "/", "'", '"', "\\", "\\x4", "\\x41", "\\q",
    "\n",
    "\r",
    "\t", " ", "\0", "\x85", "\u2028", "\ud800", "é", "$", "$LOOP", "$NUMBER", "$BLOCK", "$BROKEN", "$EMPTY", "$TWO",
    "$2a$11$x", "include ", "include x\n", "include '.'\n", "true", "off", "0", "-1", "-", ".", "1.5", "1e9", "1.5s",
    "10s", '"10s"', '"-1s"', "64MB", '"64M"', "9223372036854775807", "9223372036854775808", "999999999E",
    "1" * 400 + ".0",
    "2026-01-31T00:00:00Z", "2026-02-31T00:00:00Z", "127.0.0.1:4222", "[::1]:4222", "[", "nats://h:1", "*", ">", "a..b",
    "",
    "{" * 70, "[" * 70, "a " * 40, "users", "user", "password", "token", "permissions", "publish", "allow", "accounts",
    "jetstream", "exports", "imports", "stream", "service", "mappings", "weight: 50%", "websocket", "leafnodes",
    "tls",
    "resolver", "operator", "nkey", "limits", "authorization", "remotes", "url", "timeout",
)  # fmt: skip


@lru_cache(maxsize=1)
def corpus() -> tuple[str, ...]:
    """Return the good files, and those that once found a fault."""
    found = tuple(path.read_text(encoding="utf-8") for path in sorted(CORPUS.glob("*.conf")))
    return found or ("port: 4222\nauthorization { users: [ { user: a, password: b } ] }\n",)


@lru_cache(maxsize=1)
def _empty_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="natsctl-fuzz-"))


def make(chance: random.Random) -> bytes:
    text = chance.choice(corpus())
    if chance.random() < 0.7:  # a part of it: most of the time goes into what is read to its end
        lines = text.split("\n")
        at = chance.randrange(len(lines))
        text = "\n".join(lines[at : at + chance.randrange(1, 12)])
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        text = _spoilt(text, chance)
    return text.encode("utf-8", "surrogatepass")


def _spoilt(text: str, chance: random.Random) -> str:
    at = chance.randrange(len(text) + 1)
    end = min(len(text), at + chance.randrange(1, 20))
    match chance.randrange(7):
        case 0:
            return text[:at] + text[end:]
        case 1:
            return text[:at] + text[at:end] * chance.randrange(2, 5) + text[end:]
        case 2:
            return text[:at] + chance.choice(_WORDS) + text[at:]
        case 3:
            return text[:at] + chr(chance.randrange(1, 256)) + text[at + 1 :]
        case 4:
            return text[:at]
        case 5:
            other = chance.choice(corpus())
            start = chance.randrange(len(other))
            return text[:at] + other[start : start + chance.randrange(1, 80)] + text[end:]
    words = text.split(" ")
    words[chance.randrange(len(words))] = chance.choice(_WORDS)
    return " ".join(words)


def check(data: bytes, chance: random.Random) -> None:
    """Read a file as a server does; raises whatever is no ConfError."""
    text = data.decode("utf-8", "replace")
    try:
        block = load_text(text, _ENVIRONMENT, folder=_empty_folder())
        assert len(config_digest(block)) == len("sha256:") + 64
        apply(block, ServerOptions())
    except ConfError as error:
        assert ":" in str(error), "an error names its place"
