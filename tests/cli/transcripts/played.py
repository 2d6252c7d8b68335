"""Lines of the nats tool played on a server, by whatever program: what each ended with and printed, and what is left.

`python -m tests.cli.transcripts.played` plays them with the `nats` on PATH on the `nats-server` on PATH, and writes
recorded.json; run it after lines.txt has changed, or for another version of the tool.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

HERE = Path(__file__).parent
RECORDED = HERE / "recorded.json"
WITHIN_S = 60.0

Play = Callable[[list[str], bytes], tuple[int, bytes]]
"""Runs the words of a line with bytes on stdin; returns status and stdout."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)")
_VOLATILE = frozenset(("ts", "created", "time", "last_active", "first_ts", "last_ts", "pause_remaining", "paused"))
_OF_SERVERS = frozenset(("type", "cluster"))
"""What names the kind of an answer, which the tool leaves out, and the server."""
_NOTHING = (None, "", 0, False, [], {}, "none", "0001-01-01T00:00:00Z")


class Line(NamedTuple):
    """One line as it is typed, its words behind the tool's name, and what is on stdin."""

    text: str
    words: list[str]
    stdin: bytes

    @property
    def compared(self) -> str:
        words = set(self.words)
        return "raw" if words & {"--raw", "-r"} else "json" if words & {"--json", "-j"} else ""


def groups() -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = {}
    for text in (HERE / "lines.txt").read_text().splitlines():
        if text.startswith("## "):
            found[text[3:]] = []
        elif text and not text.startswith("#"):
            stdin, _, line = text[1:].rpartition(" | ") if text.startswith("<") else ("", "", text)
            found[next(reversed(found))].append(
                Line(text, shlex.split(line)[1:], stdin.encode().decode("unicode_escape").encode())
            )
    return found


def played(lines: list[Line], play: Play, natsctl: Play) -> dict[str, Any]:
    """Return what each line did and what it printed, and the account behind the last, read with `natsctl`."""
    done = []
    for line in lines:
        status, out = play(line.words, line.stdin)
        shown: Any = None
        if line.compared == "raw" and status == 0:
            shown = out.decode("utf-8", "backslashreplace")
        elif line.compared == "json" and status == 0:
            shown = plain(first_document(out)) or None
        done.append({"line": line.text, "fails": status != 0, "out": shown})
    return {"done": done, "left": left(natsctl)}


def first_document(out: bytes) -> Any:
    """Return the JSON document that an output begins with, None for none; the tool adds words to some of its own."""
    try:
        return json.JSONDecoder().raw_decode(out.decode().lstrip())[0]
    except ValueError:
        return None


def left(natsctl: Play) -> dict[str, Any]:
    """Return streams with their configuration and messages, and consumers with their state."""

    def asked(*words: str) -> Any:
        status, out = natsctl([*words, "-j"], b"")
        assert status == 0, words
        return json.loads(out)

    found: dict[str, Any] = {}
    for name in sorted(asked("str", "ls", "-a", "-n")):
        info = asked("str", "info", name)
        messages = [_message(json.loads(row)) for row in natsctl(["str", "view", name, "-j"], b"")[1].splitlines()]
        state = {key: info["state"].get(key, 0) for key in ("messages", "first_seq", "last_seq")}
        found[name] = {"config": plain(info["config"]), "state": state, "messages": messages, "consumers": {}}
        for consumer in sorted(asked("con", "ls", name, "-n")):
            about = asked("con", "info", name, consumer)
            if not about["config"].get("durable_name"):
                continue  # the tool leaves ephemeral consumers to their end
            kept = {key: about[key] for key in ("num_ack_pending", "num_pending", "num_redelivered")}
            kept |= {key: about[key]["stream_seq"] for key in ("delivered", "ack_floor")}
            found[name]["consumers"][consumer] = kept | {"config": plain(about["config"])}
    return found


def _message(row: dict[str, Any]) -> list[Any]:
    """Return a stored message without what differs at every run."""
    headers = base64.b64decode(row.get("hdrs") or "").decode("utf-8", "backslashreplace").split("\r\n")[1:]
    data = base64.b64decode(row.get("data") or "")
    subject = re.sub(r"^(\$O\.\w+\.C\.)\w+$", r"\1*", row["subject"])
    if subject.startswith("$O.") and ".M." in subject:
        about = json.loads(data)
        data = json.dumps({key: about[key] for key in ("name", "size", "chunks", "digest") if about.get(key)}).encode()
    lines = sorted(re.sub(r": +", ":", line) for line in headers if line)
    return [row["seq"], subject, lines, data.decode("utf-8", "backslashreplace")]


def plain(value: Any) -> Any:
    """Return a document without zeros, times and what only the server's version decides."""
    if isinstance(value, dict):
        masked = _VOLATILE | _OF_SERVERS
        kept = {key: plain(one) for key, one in value.items() if key not in masked and not key.startswith("_nats.")}
        return {key: one for key, one in kept.items() if one not in _NOTHING}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return _TIME.sub("TIME", value) if isinstance(value, str) and value not in _NOTHING else value


def by_program(command: list[str], url: str) -> Play:
    """Return what runs a program for each line, in a folder of its own."""
    home = tempfile.mkdtemp()
    environment = {"PATH": os.environ["PATH"], "HOME": home, "NATS_URL": url}

    def play(words: list[str], stdin: bytes) -> tuple[int, bytes]:
        done = subprocess.run(
            [*command, *words], input=stdin, capture_output=True, env=environment, cwd=home, timeout=WITHIN_S
        )
        return done.returncode, done.stdout

    return play


def in_process(url: str) -> Play:
    """Return what runs natsctl for each line in this process."""
    from natsctl.cli.main import run

    def play(words: list[str], stdin: bytes) -> tuple[int, bytes]:
        with _streams(stdin) as out, mock.patch.dict(os.environ, {"NATS_URL": url, "NO_COLOR": "1"}):
            status = run(words)
            sys.stdout.flush()
            return int(status), out.getvalue()

    return play


@contextlib.contextmanager
def _streams(stdin: bytes) -> Iterator[io.BytesIO]:
    """Put pipes in the place of stdin, stdout and stderr, and yield what stdout takes."""
    out = io.BytesIO()
    put = {
        "stdin": io.TextIOWrapper(io.BytesIO(stdin)),
        "stdout": io.TextIOWrapper(out, encoding="utf-8", errors="surrogateescape", write_through=True),
        "stderr": io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="replace"),
    }
    with contextlib.ExitStack() as stack:
        for name, stream in put.items():
            stack.enter_context(mock.patch.object(sys, name, stream))
        yield out


def record() -> None:
    """Play every group with the tool itself, each on a new nats-server, and write what it did."""
    from natsctl.testing.process import ServerProcess

    found = {}
    for name, lines in groups().items():
        with tempfile.TemporaryDirectory() as folder, ServerProcess(Path(folder), "reference") as server:
            found[name] = played(lines, by_program(["nats"], server.url), in_process(server.url))
        print(name, len(lines), file=sys.stderr)
    RECORDED.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    record()
