"""Screens at 60, 80 and 200 columns, as they were looked at and found good: `snapshots/<screen>@<columns>.txt`.

Answers of a server are canned and the clock stands still, so that a difference is a change of the screen. Where colours
are taken only weight is used (`@80.ansi`): the same bytes are right on dark and on light ground. SCREENS=write keeps
what is shown now.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from natsctl.api.times import parse_time
from natsctl.cli import output
from natsctl.cli.main import run
from natsctl.cli.session import Session
from natsctl.client.manager import Manager
from natsctl.client.requests import Requests

SNAPSHOTS = Path(__file__).with_name("snapshots")
NOW = "2026-07-20T16:00:00Z"
CONFIG: dict[str, Any] = {
    "name": "ORDERS",
    "description": "what was ordered",
    "subjects": ["ORDERS.*"],
    "retention": "limits",
    "max_consumers": -1,
    "max_msgs_per_subject": -1,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": 31536000000000000,
    "max_msg_size": -1,
    "storage": "file",
    "discard": "old",
    "num_replicas": 1,
    "duplicate_window": 120000000000,
    "compression": "s2",
    "allow_direct": True,
    "mirror_direct": False,
    "sealed": False,
    "deny_delete": False,
    "deny_purge": False,
    "allow_rollup_hdrs": False,
    "metadata": {"team": "shop", "_nats.level": "5", "_nats.req.level": "0", "_nats.ver": "2.15.2"},
}
STREAM: dict[str, Any] = {
    "config": CONFIG,
    "created": "2026-07-20T15:23:51Z",
    "state": {
        "messages": 3,
        "bytes": 147,
        "first_seq": 1,
        "first_ts": "2026-07-20T15:24:01Z",
        "last_seq": 3,
        "last_ts": "2026-07-20T15:24:09Z",
        "num_subjects": 2,
        "consumer_count": 1,
    },
    "ts": NOW,
}
OTHER: dict[str, Any] = {
    **STREAM,
    "config": {**CONFIG, "name": "ARCHIVE-OF-EVERYTHING-THAT-WAS-EVER-ORDERED", "description": "all of it, for good"},
    "state": {**STREAM["state"], "messages": 1234567, "bytes": 987654321, "last_seq": 1234567},
}
CONSUMER: dict[str, Any] = {
    "stream_name": "ORDERS",
    "name": "NEW",
    "created": "2026-07-20T15:30:00Z",
    "config": {
        "durable_name": "NEW",
        "name": "NEW",
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": 30000000000,
        "max_deliver": 20,
        "filter_subject": "ORDERS.received",
        "replay_policy": "instant",
        "sample_freq": "100",
        "max_waiting": 512,
        "max_ack_pending": 1000,
        "num_replicas": 0,
    },
    "delivered": {"consumer_seq": 2, "stream_seq": 2, "last_active": "2026-07-20T15:59:58Z"},
    "ack_floor": {"consumer_seq": 1, "stream_seq": 1, "last_active": "2026-07-20T15:59:59Z"},
    "num_ack_pending": 1,
    "num_redelivered": 0,
    "num_waiting": 0,
    "num_pending": 1,
    "ts": NOW,
}
PAGE = {"total": 2, "offset": 0, "limit": 256}
ANSWERS: dict[str, dict[str, Any]] = {
    "STREAM.INFO.ORDERS": {"type": "io.nats.jetstream.api.v1.stream_info_response", **STREAM},
    "STREAM.LIST": {"type": "io.nats.jetstream.api.v1.stream_list_response", **PAGE, "streams": [STREAM, OTHER]},
    "CONSUMER.INFO.ORDERS.NEW": {"type": "io.nats.jetstream.api.v1.consumer_info_response", **CONSUMER},
    "CONSUMER.LIST.ORDERS": {
        "type": "io.nats.jetstream.api.v1.consumer_list_response", **PAGE, "total": 1, "consumers": [CONSUMER],
    },
}  # fmt: skip
SCREENS = {
    "help": "--help",
    "stream-help": "stream --help",
    "stream-purge-help": "stream purge --help",
    "stream-info": "stream info ORDERS",
    "stream-state": "stream state ORDERS",
    "stream-ls": "stream ls",
    "stream-report": "stream report",
    "consumer-info": "consumer info ORDERS NEW",
    "consumer-ls": "consumer ls ORDERS",
    "consumer-report": "consumer report ORDERS",
    "errors-ls": "errors ls mirror.*subject",
    "errors-lookup": "errors lookup 10065",
    "schema-commands": "schema ls stream_info --commands",
    "cheat": "cheat kv",
}


@pytest.fixture
def canned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers as above, in a zone without summer, at a time that stands still."""

    async def connect(session: Session) -> Manager:
        target = SimpleNamespace(api_prefix="$JS.API", shown="nats://canned:4222", origin="canned")

        async def close() -> None:
            """There is nothing to end."""

        return Manager(SimpleNamespace(target=target, tracer=None, dry_run=False, timeout_s=5.0, close=close))  # type: ignore[arg-type]  # what requests use of a connection

    async def exchange(requests: Requests, subject: str, payload: bytes, **more: Any) -> dict[str, Any]:
        return dict(ANSWERS[subject.removeprefix("$JS.API.")])

    monkeypatch.setattr(Session, "_connect", connect)
    monkeypatch.setattr(Requests, "exchange", exchange)
    monkeypatch.setattr(time, "time_ns", lambda: parse_time(NOW))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.parametrize("screen", SCREENS)
def test_a_screen_is_the_one_that_was_found_good(
    screen: str, columns: int, canned: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run(shlex.split(SCREENS[screen])) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    if not screen.endswith(("help", "cheat")):
        assert max(map(len, shown.splitlines())) <= columns
    _compare(f"{screen}@{columns}.txt", shown)


@pytest.mark.parametrize("screen", ["stream-info", "stream-ls", "consumer-info"])
def test_colours_are_weight_alone(
    screen: str, canned: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(output, "has_color", lambda stream: True)
    assert run(shlex.split(SCREENS[screen])) == 0
    shown = capsys.readouterr().out
    assert set(re.findall(r"\x1b\[([\d;]*)m", shown)) <= {"0", "1"}
    _compare(f"{screen}@80.ansi", shown)


def _compare(name: str, shown: str) -> None:
    file = SNAPSHOTS / name
    if os.environ.get("SCREENS") == "write":
        file.write_text(shown, encoding="utf-8")
    assert shown == file.read_text(encoding="utf-8")


def test_no_snapshot_is_left_over() -> None:
    names = {f"{screen}@{columns}.txt" for screen in SCREENS for columns in (60, 80, 200)}
    names |= {f"{screen}@80.ansi" for screen in ("stream-info", "stream-ls", "consumer-info")}
    assert {file.name for file in SNAPSHOTS.iterdir()} == names
