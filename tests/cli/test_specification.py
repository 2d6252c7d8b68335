"""Every command line of the specification's CLI part, in document order, without a terminal.

`nats` is read as `natsctl`. Stream templates, `$JS.NEXT` and `$JS.STREAM.INFO` are those of the document's time, which
servers of today do not know: they run on natsctl's alone. What a line shows in the document is checked by meaning,
since labels follow today's `nats` tool. Waits of minutes are shortened.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from natsctl.testing.process import ServerProcess

ADD = (
    'nats str add ORDERS --subjects "ORDERS.*" --ack --max-msgs=-1 --max-bytes=-1 --max-age=1y --storage file'
    " --retention limits --max-msg-size=-1"
)


class Shell:
    """Runs command lines of the document in one folder, against one server."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self.kind = server.kind
        self.folder = folder
        self.environment = {**os.environ, "NATS_URL": server.url}

    def start(self, line: str) -> subprocess.Popen[str]:
        """Start a line without waiting for its end."""
        words = shlex.split(line)
        assert words[0] == "nats"
        return subprocess.Popen(
            [sys.executable, "-m", "natsctl", *words[1:]],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, line: str, exit_code: int = 0) -> str:
        """Run a line to its end and return its standard output."""
        process = self.start(line)
        out, err = process.communicate(timeout=60)
        assert process.returncode == exit_code, f"{line}\n{out}\n{err}"
        return out

    def json(self, line: str) -> dict[str, object]:
        """Run a line with -j and return what it printed."""
        answer = json.loads(self(line + " -j"))
        assert isinstance(answer, dict)
        return answer

    def messages(self) -> int:
        """How many messages ORDERS holds."""
        state = self.json("nats str info ORDERS")["state"]
        assert isinstance(state, dict)
        return int(state["messages"])


@pytest.fixture
def nats(server: ServerProcess, tmp_path: Path) -> Iterator[Shell]:
    folder = tmp_path / "work"
    folder.mkdir()
    yield Shell(server, folder)


def listening(process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """Return the process once it has said that it listens."""
    assert process.stderr is not None
    assert " on " in process.stderr.readline()
    return process


@pytest.mark.both
def test_account_and_streams_as_the_document_shows(nats: Shell) -> None:
    assert "Storage" in nats("nats account info")
    nats("nats str add ORDERS", exit_code=2)
    nats(ADD + " --discard old")
    config = nats.json("nats str info ORDERS")["config"]
    (nats.folder / "orders.json").write_text(json.dumps(config))
    nats("nats str add ORDERS --config orders.json")
    assert "ORDERS" in nats("nats str ls")
    assert "Subjects: ORDERS.*" in nats("nats str info ORDERS")
    assert isinstance(config, dict)
    assert config["max_age"] == 31536000000000000
    assert "ORDERS_ARCVHIVE.*" in nats('nats str cp ORDERS ARCHIVE --subjects "ORDERS_ARCVHIVE.*" --max-age 2y')
    archive = nats.json("nats str info ARCHIVE")["config"]
    assert isinstance(archive, dict)
    assert (archive["max_age"], archive["num_replicas"]) == (2 * 31536000000000000, 1)
    nats('nats str edit ORDERS --subjects "ORDERS.new"')
    nats('nats str edit ORDERS --subjects "ORDERS.*"')
    nats("nats str edit ORDERS --config orders.json")
    after = nats.json("nats str info ORDERS")["config"]
    assert after == config
    nats("nats pub ORDERS.scratch hello")
    nats("nats pub --wait ORDERS.scratch hello")
    assert '"seq":3' in nats("nats req ORDERS.scratch hello").replace(" ", "")
    assert nats.messages() == 3
    nats("nats str rmm ORDERS 1 -f")
    assert nats.messages() == 2
    nats("nats str purge ORDERS -f")
    assert nats.messages() == 0
    nats("nats str rm ORDERS -f")
    nats(ADD)
    assert nats.messages() == 0


@pytest.mark.both
def test_consumers_as_the_document_shows(nats: Shell) -> None:
    nats(ADD)
    assert "No Consumers defined" in nats("nats con ls ORDERS")
    nats("nats con add --sample 100", exit_code=2)
    nats(
        "nats con add ORDERS NEW --filter ORDERS.received --ack explicit --pull --deliver all --max-deliver=-1"
        " --sample 100"
    )
    nats(
        "nats con add ORDERS DISPATCH --filter ORDERS.processed --ack explicit --pull --deliver all --sample 100"
        " --max-deliver 20"
    )
    nats("nats con add ORDERS MONITOR --ack none --target monitor.ORDERS --deliver last --replay instant --filter ''")
    for name, file in (("MONITOR", "monitor.json"), ("NEW", "orders_new.json")):
        config = nats.json(f"nats con info ORDERS {name}")["config"]
        (nats.folder / file).write_text(json.dumps(config))
    nats("nats con add ORDERS MONITOR --config monitor.json")
    nats("nats con add ORDERS --config monitor.json")
    nats("nats con add ORDERS NEW --config orders_new.json")
    listed = nats("nats con ls ORDERS")
    assert all(name in listed for name in ("DISPATCH", "MONITOR", "NEW"))
    assert "Filter Subject: ORDERS.processed" in nats("nats con info ORDERS DISPATCH")
    for number in (1, 2, 3):
        nats(f'nats pub ORDERS.processed "order {number}"')
    assert "order 1" in nats("nats con next ORDERS DISPATCH")
    assert "order 2" in nats("nats con next ORDERS DISPATCH")
    if nats.kind == "natsctl":
        assert "order 3" in nats("nats req '$JS.NEXT.ORDERS.DISPATCH' ''")
    assert "monitor.ORDERS" in nats("nats con info ORDERS MONITOR")
    monitor = listening(nats.start("nats sub monitor.ORDERS --count 4"))
    nats('nats pub ORDERS.processed "order 4"')
    out, _ = monitor.communicate(timeout=30)
    assert "order 3" in out
    assert "order 4" in out
    assert "ORDERS.processed" in out


@pytest.mark.both
def test_deduplication_as_the_document_shows(nats: Shell) -> None:
    nats(ADD)
    header = "Msg-Id" if nats.kind == "natsctl" else "Nats-Msg-Id"
    for number in (1, 2, 3, 4):
        nats(f"nats req -H {header}:1 ORDERS.new hello{number}")
    assert nats.messages() == 1


@pytest.mark.both
def test_acknowledgement_as_the_document_shows(nats: Shell) -> None:
    nats(ADD)
    nats(
        "nats con add ORDERS DISPATCH --filter ORDERS.processed --ack explicit --pull --deliver all --sample 100"
        " --wait 1s"
    )
    nats('nats pub ORDERS.processed "order 4"')
    assert "order 4" in nats("nats con next ORDERS DISPATCH")
    info = nats.json("nats con info ORDERS DISPATCH")
    assert info["ack_floor"]["consumer_seq"] == info["delivered"]["consumer_seq"] == 1
    nats('nats pub ORDERS.processed "order 5"')
    for redelivered in (0, 1):
        assert "order 5" in nats("nats con next ORDERS DISPATCH --no-ack")
        info = nats.json("nats con info ORDERS DISPATCH")
        assert (info["num_ack_pending"], info["num_redelivered"]) == (1, redelivered)
    assert "order 5" in nats("nats con next ORDERS DISPATCH")
    info = nats.json("nats con info ORDERS DISPATCH")
    assert (info["num_ack_pending"], info["num_redelivered"]) == (0, 0)


@pytest.mark.both
def test_starting_positions_as_the_document_shows(nats: Shell) -> None:
    nats(ADD)
    for number in range(1, 13):
        nats(f'nats pub ORDERS.processed "order {number}"')
    pull = "--pull --filter ORDERS.processed --ack none --replay instant --deliver"
    for name, start, first in (("ALL", "all", 1), ("LAST", "last", 12), ("TEN", "10", 10)):
        nats(f"nats con add ORDERS {name} {pull} {start}")
        assert nats(f"nats con next ORDERS {name} --raw").strip() == f"order {first}"
    nats("nats str purge ORDERS -f")
    nats('nats pub ORDERS.processed "order 1"')
    time.sleep(5.5)
    nats('nats pub ORDERS.processed "order 2"')
    nats(f"nats con add ORDERS 5SEC {pull} 5s")  # the document has 2: for so long a busy machine may stand still
    assert nats("nats con next ORDERS 5SEC --raw").strip() == "order 2"


@pytest.mark.both
def test_ephemeral_replay_and_samples_as_the_document_shows(nats: Shell) -> None:
    nats(ADD)
    nats("nats con add ORDERS NEW --filter ORDERS.received --ack explicit --pull --deliver all --sample 100")
    nats('nats pub ORDERS.processed "order 1"')
    mine = listening(nats.start("nats sub my.monitor --count 1"))
    nats("nats con add ORDERS --filter '' --ack none --target 'my.monitor' --deliver last --replay instant --ephemeral")
    assert "order 1" in mine.communicate(timeout=30)[0]
    time.sleep(1)
    nats('nats pub ORDERS.processed "order 2"')
    shown = nats(
        "nats con add ORDERS REPLAY --target out.original --filter ORDERS.processed --ack none --deliver all"
        " --sample 100 --replay original"
    )
    assert "Replay Policy: Original" in shown
    began = time.monotonic()
    replayed = nats("nats sub -t out.original --count 2")
    assert "order 2" in replayed
    assert time.monotonic() - began >= 1
    events = nats.start("nats con events ORDERS NEW --json --count 1 --wait 30s")
    while events.poll() is None:
        # With --json it does not say when it listens: a sample may be too early for it.
        nats('nats pub ORDERS.received "order 6"')
        nats("nats con next ORDERS NEW")
    sample = json.loads(events.communicate(timeout=30)[0])
    assert (sample["stream"], sample["consumer"], sample["deliveries"]) == ("ORDERS", "NEW", 1)


def test_templates_as_the_document_shows(nats: Shell) -> None:
    made = nats(
        'nats str template add CLIENTS --subjects "CLIENT.*" --ack --max-msgs=-1 --max-bytes=-1 --max-age=1y'
        " --storage file --retention limits --max-msg-size 2048 --max-streams 1024 --discard old"
    )
    assert "Maximum Streams: 1,024" in made
    nats("nats pub CLIENT.acme hello")
    assert "CLIENTS_acme" in nats("nats str ls")
    nats("nats str template rm CLIENTS -f")
    assert nats("nats str ls -n") == ""


@pytest.mark.both
def test_events_as_the_document_shows(nats: Shell) -> None:
    assert "events" in nats("nats --help")
    nats(ADD)
    nats("nats con add ORDERS NEW --filter ORDERS.received --ack explicit --pull --deliver all --sample 100")
    assert "Sampling Rate: 100" in nats("nats con info ORDERS NEW")
    samples = listening(nats.start("nats con events ORDERS NEW --count 1 --wait 30s"))
    everything = listening(nats.start("nats events --type consumer_ack --count 1 --wait 30s"))
    while samples.poll() is None or everything.poll() is None:
        nats('nats pub ORDERS.received "order 6"')
        nats("nats con next ORDERS NEW")
    for process in (samples, everything):
        out, _ = process.communicate(timeout=30)
        assert re.search(r"\[\d\d:\d\d:\d\d] \[\w+] Acknowledgment Sample\n", out)
        for row in ("Consumer: ORDERS > NEW", "Consumer Sequence: ", "Deliveries: 1", "Delay: "):
            assert row in out


@pytest.mark.both
def test_disaster_recovery_as_the_document_shows(nats: Shell) -> None:
    nats(ADD)
    nats("nats con add ORDERS NEW --filter ORDERS.received --ack explicit --pull --deliver all --sample 100")
    for number in (1, 2, 3):
        nats(f'nats pub ORDERS.received "order {number}"')
    nats("nats con next ORDERS NEW")
    nats("nats stream backup ORDERS js-backup/ORDERS.tgz --no-progress")
    nats("nats str rm ORDERS -f")
    nats("nats str restore ORDERS js-backup/ORDERS.tgz --no-progress")
    assert nats.messages() == 3
    assert "order 2" in nats("nats con next ORDERS NEW")
    nats("nats backup configs")
    assert (nats.folder / "configs" / "stream_ORDERS.json").exists()
    assert (nats.folder / "configs" / "stream_ORDERS_consumer_NEW.json").exists()
    nats("nats restore configs", exit_code=4)
    nats("nats restore configs --update-streams")
    nats("nats backup all --data")
    assert (nats.folder / "all" / "stream_ORDERS.tgz").exists()


@pytest.mark.both
def test_the_api_answers_as_the_document_shows(nats: Shell) -> None:
    missing = json.loads(nats("nats req '$JS.API.STREAM.INFO.nonexisting' '' --raw"))
    assert missing["error"]["code"] == 404
    nats(ADD)
    if nats.kind == "natsctl":
        old = json.loads(nats("nats req '$JS.STREAM.INFO.ORDERS' '' --raw"))
        assert old["config"]["name"] == "ORDERS"
    nats("nats con add ORDERS test --pull --ack explicit --deliver all")
    nats("nats pub ORDERS.x hello")
    got = json.loads(nats("nats req '$JS.API.STREAM.MSG.GET.ORDERS' '{\"seq\": 1}' --raw"))
    assert (got["message"]["subject"], got["message"]["data"]) == ("ORDERS.x", "aGVsbG8=")
    assert nats("nats req '$JS.API.CONSUMER.MSG.NEXT.ORDERS.test' '1' --raw").strip() == "hello"
