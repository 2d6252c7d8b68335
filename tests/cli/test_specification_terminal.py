"""The specification's interactive transcripts at a pseudo-terminal, in document order: questions answered as it shows.

`nats` is read as `natsctl`. Questions are found by their texts; those that the document does not show (today's `nats`
tool asks more than that of 2020) are answered with enter, which takes their default.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from natsctl.cli.main import run as run_main
from natsctl.testing.process import ServerProcess

pexpect = pytest.importorskip("pexpect")

WITHIN_S = 60.0
DRAWN_S = 0.05
"""Within this a question that has begun to appear mostly stands there as a whole."""
ENTER = "\r"
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][A-Z0-9]|[=>78])")
_QUESTION = re.compile(r"^\? ([A-Z][^\n]*)", re.MULTILINE)
"""A question that is asked begins a line; one that is drawn anew stands behind what was drawn before."""

Keys = str | list[str]


class Terminal:
    """Types command lines of the document into a terminal of 80 columns, in one folder, against one server."""

    def __init__(
        self, server: ServerProcess, folder: Path, capsys: pytest.CaptureFixture[str], spawn: Callable[..., Any]
    ) -> None:
        self.folder = folder
        self._spawn = spawn
        self._url = server.url
        self._capsys = capsys
        self.environment = {**os.environ, "NATS_URL": server.url, "TERM": "xterm-256color"}
        self.environment.pop("COLUMNS", None)
        self._child: Any = None
        self._seen = ""

    def __call__(self, line: str, dialogue: dict[str, Keys] | None = None, exit_code: int = 0) -> str:
        """Type a line, answer what it asks, and return what the screen showed, without what moves the cursor.

        A question is answered by the entry whose key its text begins with, several times by a list; all must be asked.
        """
        words = shlex.split(line)
        assert words[0] == "nats"
        self._child = self._spawn(words[1:], self.environment, cwd=str(self.folder), dimensions=(40, 80))
        self._seen = ""
        try:
            asked = self._converse(line, {start: self._keys(keys) for start, keys in (dialogue or {}).items()})
        finally:
            self._child.close(force=True)
        screen = self.screen
        assert not asked, f"{line}\nnever asked: {asked}\n{screen}"
        assert self._child.exitstatus == exit_code, f"{line}\n{self._child.exitstatus}\n{screen}"
        return screen

    def aside(self, line: str) -> str:
        """Run a line that the transcript only needs, without a terminal and in this process; return its stdout."""
        self._capsys.readouterr()
        code = run_main(["-s", self._url, *shlex.split(line)[1:]])
        out, err = self._capsys.readouterr()
        assert code == 0, f"{line}\n{err}"
        return out

    def config(self, line: str) -> Any:
        """The `.config` of what an info line prints with -j."""
        return json.loads(self.aside(line + " -j"))["config"]

    @property
    def screen(self) -> str:
        """What was shown so far."""
        return _ESCAPES.sub("", self._seen).replace("\r", "")

    @staticmethod
    def _keys(keys: Keys) -> list[str]:
        return [keys] if isinstance(keys, str) else list(keys)

    def _converse(self, line: str, dialogue: dict[str, list[str]]) -> dict[str, list[str]]:
        """Answer until the command ends, and return the answers that were not needed."""
        deadline = time.monotonic() + WITHIN_S
        answered = 0
        while self._more():
            assert time.monotonic() < deadline, f"{line}\n{self.screen}"
            if self._question(answered) is None:
                continue
            self._more(DRAWN_S)
            text = self._question(answered) or ""
            while any(start.startswith(text) and start != text for start in dialogue) and self._more():
                assert time.monotonic() < deadline, f"{line}\n{self.screen}"
                text = self._question(answered) or ""
            answered = len(self.screen)
            start = next((start for start in dialogue if text.startswith(start)), None)
            self._child.send(dialogue[start].pop(0) if start is not None else ENTER)
            if start is not None and not dialogue[start]:
                del dialogue[start]
        return dialogue

    def _question(self, answered: int) -> str | None:
        """The question behind what was answered already."""
        return next((one[1] for one in _QUESTION.finditer(self.screen) if one.start() >= answered), None)

    def _more(self, wait_s: float = 1.0) -> bool:
        """Whether the command still runs; what it wrote meanwhile was read."""
        try:
            self._seen += self._child.read_nonblocking(65536, wait_s)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        return True


@pytest.fixture
def nats(
    server: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str], spawn: Callable[..., Any]
) -> Terminal:
    folder = tmp_path / "work"
    folder.mkdir()
    return Terminal(server, folder, capsys, spawn)


ADD = (
    'nats str add ORDERS --subjects "ORDERS.*" --ack --max-msgs=-1 --max-bytes=-1 --max-age=1y --storage file'
    " --retention limits --max-msg-size=-1"
)


@pytest.mark.both
def test_streams_as_the_document_types_them(nats: Terminal) -> None:
    screen = nats(
        "nats str add ORDERS",
        {
            "Subjects": "ORDERS.*\r",
            "Storage": "file\r",
            "Retention Policy": "Limits\r",
            "Discard Policy": "Old\r",
            "Stream Messages Limit": "-1\r",
            "Total Stream Size": "-1\r",
            "Message TTL": "1y\r",
            "Max Message Size": ["?\r", "-1\r"],
        },
    )
    assert "Settable using --max-msg-size" in screen
    assert "Stream ORDERS was created" in screen
    for shown in ("Information for Stream ORDERS", "Subjects: ORDERS.*", "Maximum Age: 1y0d0h0m0s", "Replicas: 1"):
        assert shown in screen
    config = nats.config("nats str info ORDERS")
    assert (config["max_age"], config["retention"], config["storage"]) == (31536000000000000, "limits", "file")

    nats.aside("nats str rm ORDERS -f")
    # The document's own line leaves out --replicas and others: at a terminal they are asked for, and enter will do.
    assert "Stream ORDERS was created" in nats(ADD + " --discard old", {"Replication": ENTER})
    assert nats.config("nats str info ORDERS") == config
    (nats.folder / "orders.json").write_text(json.dumps(config))
    assert "Stream ORDERS was created" in nats("nats str add ORDERS --config orders.json")
    assert "│ ORDERS" in nats("nats str ls")
    assert "Information for Stream ORDERS" in nats("nats str info", {"Select a Stream": "ORDERS\r"})

    nats('nats str cp ORDERS ARCHIVE --subjects "ORDERS_ARCVHIVE.*" --max-age 2y')
    assert nats.config("nats str info ARCHIVE")["max_age"] == 2 * 31536000000000000
    assert "Information for Stream ARCHIVE" in nats("nats str info", {"Select a Stream": "ARCH\r"})
    changed = nats('nats str edit ORDERS --subjects "ORDERS.new"', {"Really edit Stream ORDERS": "y\r"})
    assert "Subjects (subjects): ORDERS.* → ORDERS.new" in changed
    nats('nats str edit ORDERS --subjects "ORDERS.*"', {"Really edit Stream ORDERS": "n\r"})
    assert nats.config("nats str info ORDERS")["subjects"] == ["ORDERS.new"]
    assert "Stream ORDERS was updated" in nats("nats str edit ORDERS --config orders.json", {"Really edit": "y\r"})
    assert nats.config("nats str info ORDERS") == config

    assert 'Published 5 bytes to "ORDERS.scratch"' in nats("nats pub ORDERS.scratch hello")
    assert "Sequence: 2" in nats("nats pub ORDERS.scratch hello --wait")
    assert '"seq":3' in nats("nats req ORDERS.scratch hello").replace(" ", "")
    assert "Messages: 3" in nats("nats str info ORDERS")
    nats(
        "nats str rmm",
        {"Select a Stream": "ORD\r", "Message Sequence to remove": "1\r", "Really remove message 1": "y\r"},
    )
    nats("nats str rmm ORDERS 2 -f")
    nats("nats str purge ORDERS", {"Really purge Stream ORDERS": ENTER})
    assert "Messages: 1" in nats("nats str info ORDERS")
    assert "Messages: 0" in nats(
        "nats str purge", {"Select a Stream": "ORD\r", "Really purge Stream ORDERS": "ORDERS\r"}
    )
    nats("nats str rm ORDERS", {"Really delete Stream ORDERS": ENTER})
    nats("nats str rm ORDERS", {"Really delete Stream ORDERS": "ORDERS\r"})
    nats("nats str info ORDERS", exit_code=3)


@pytest.mark.both
def test_consumers_as_the_document_types_them(nats: Terminal) -> None:
    nats.aside(ADD + " --defaults")
    assert "No Consumers defined" in nats("nats con ls ORDERS")
    screen = nats(
        "nats con add --sample 100",
        {
            "Select a Stream": "ORDERS\r",
            "Consumer name": "NEW\r",
            "Delivery target": ["?\r", ENTER],
            "Start policy": "all\r",
            "Filter Stream by subject": "ORDERS.received\r",
            "Maximum Allowed Deliveries": "20\r",
        },
    )
    assert "Settable using --target" in screen
    for shown in ("Information for Consumer ORDERS > NEW", "Pull Mode: true", "Sampling Rate: 100", "Ack Wait: 30"):
        assert shown in screen
    config = nats.config("nats con info ORDERS NEW")
    assert (config["filter_subject"], config["max_deliver"], config["ack_policy"]) == (
        "ORDERS.received",
        20,
        "explicit",
    )

    line = "nats con add ORDERS DISPATCH --filter ORDERS.processed --ack explicit --pull --deliver all --sample 100"
    assert "Maximum Deliveries: 20" in nats(line + " --max-deliver 20", {"Replay policy": "instant\r"})
    screen = nats(
        "nats con add",
        {
            "Select a Stream": "ORDERS\r",
            "Consumer name": "MONITOR\r",
            "Delivery target": "monitor.ORDERS\r",
            "Start policy": "last\r",
            "Acknowledgment policy": "none\r",
            "Replay policy": "instant\r",
            "Filter Stream by subject": ENTER,
        },
    )
    for shown in ("Delivery Subject: monitor.ORDERS", "Deliver Policy: Last", "Ack Policy: None"):
        assert shown in screen
    monitor = nats.config("nats con info ORDERS MONITOR")
    (nats.folder / "monitor.json").write_text(json.dumps(monitor))
    nats("nats con rm ORDERS", {"Select a Consumer": "MON\r", "Really delete Consumer ORDERS > MONITOR": "MONITOR\r"})
    nats("nats con add ORDERS --config monitor.json")
    again = "nats con add ORDERS MONITOR --ack none --target monitor.ORDERS --deliver last --replay instant --filter ''"
    nats(again, {"Delivery Queue Group": ENTER, "Idle Heartbeat": ENTER})
    assert nats.config("nats con info ORDERS MONITOR") == monitor
    listed = nats("nats con ls ORDERS")
    assert all(name in listed for name in ("DISPATCH", "MONITOR", "NEW"))
    assert "Filter Subject: ORDERS.processed" in nats(
        "nats con info", {"Select a Consumer": "DIS\r", "Select a S": ENTER}
    )

    for number in (1, 2, 3):
        nats.aside(f'nats pub ORDERS.processed "order {number}"')
    for number in (1, 2):
        screen = nats("nats con next ORDERS DISPATCH")
        assert f"order {number}" in screen
        assert "Acknowledged message" in screen
    screen = nats("nats con next ORDERS DISPATCH --no-ack")
    assert ("order 3" in screen, "Acknowledged" in screen) == (True, False)
    nats("nats con next ORDERS DISPATCH --wait 300ms", exit_code=7)


@pytest.mark.both
def test_backup_and_restore_as_the_document_types_them(nats: Terminal) -> None:
    nats.aside(ADD + " --defaults")
    nats.aside(
        "nats con add ORDERS NEW --filter ORDERS.received --ack explicit --pull --deliver all --sample 100 --defaults"
    )
    nats.aside(f"nats pub ORDERS.received {'x' * 500} --count 200")
    screen = nats("nats stream backup ORDERS js-backup/ORDERS.tgz")
    for shown in ('Starting backup of Stream "ORDERS"', "100%", 'for stream "ORDERS" in', "uncompressed"):
        assert shown in " ".join(screen.split())  # folded at the terminal's width
    nats.aside("nats str rm ORDERS -f")
    screen = nats("nats str restore ORDERS js-backup/ORDERS.tgz")
    for shown in ('Starting restore of Stream "ORDERS" from file "js-backup/ORDERS.tgz"', "100%", "Messages: 200"):
        assert shown in " ".join(screen.split())  # folded at the terminal's width
    assert 'Restored stream "ORDERS" in' in screen
    nats.aside("nats str rm ORDERS -f")
    assert "%" not in nats("nats str restore ORDERS js-backup/ORDERS.tgz --no-progress")
    assert "%" not in nats("nats stream backup ORDERS again.tgz --no-progress")
    screen = nats("nats backup configs")
    for shown in ("Stream ORDERS to configs/stream_ORDERS.json", "Configuration backup complete"):
        assert shown in screen
    assert "Updating Stream ORDERS configuration" in nats("nats restore configs --update-streams")


@pytest.mark.parametrize(
    ("line", "question"),
    [
        ("nats str add", "Stream Name"),
        ("nats str add OTHER --subjects o", "Storage"),
        ("nats str rm ORDERS", "Really delete Stream ORDERS"),
        ("nats con add", "Select a Stream"),
        ("nats str get ORDERS", "Message Sequence to retrieve"),
    ],
)
def test_ctrl_c_at_any_question_changes_nothing(nats: Terminal, line: str, question: str) -> None:
    nats.aside(ADD + " --defaults")
    screen = nats(line, {question: "\x03"}, exit_code=130)
    assert "Traceback" not in screen
    assert nats.aside("nats str ls -n") == "ORDERS\n"


def test_end_of_input_at_a_question_interrupts(nats: Terminal) -> None:
    assert "Traceback" not in nats("nats str add", {"Stream Name": "\x04"}, exit_code=130)
