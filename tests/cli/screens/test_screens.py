"""Screens at 60, 80 and 200 columns, as they were looked at and found good: `snapshots/<screen>@<columns>.txt`.

Answers of a server are those of `world.json`, recorded from one, and the clock stands still, so that a difference is a
change of the screen. `SCREENS=write python -m pytest tests/cli/screens` keeps what is shown now.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.cells import cell_len
from rich.text import Text

from natsctl.api.times import parse_time
from natsctl.cli import output
from natsctl.cli.main import run
from natsctl.cli.render.page import Page
from natsctl.cli.session import Session
from natsctl.client.manager import Manager
from natsctl.client.requests import Requests

WIDTHS = (60, 80, 200)
SNAPSHOTS = Path(__file__).with_name("snapshots")
WORLD: dict[str, Any] = json.loads(Path(__file__).with_name("world.json").read_text(encoding="utf-8"))
ANSWERS: dict[str, dict[str, Any]] = WORLD["api"]
ARCHIVE = "ARCHIVE-OF-EVERYTHING-THAT-WAS-EVER-ORDERED"
DISPATCHING = "A_RATHER_LONG_CONSUMER_NAME_FOR_DISPATCHING"
WHEN = "2026-11-21T17:05:24.25Z"
COMMANDS = {
    "help": "--help",
    "stream-help": "stream --help",
    "stream-purge-help": "stream purge --help",
    "stream-ls-help": "stream ls --help",
    "consumer-help": "consumer --help",
    "consumer-next-help": "consumer next --help",
    "kv-help": "kv --help",
    "object-help": "object --help",
    "publish-help": "publish --help",
    "backup-help": "backup --help",
    "server-help": "server --help",
    "server-report-help": "server report --help",
    "context-help": "context --help",
    "service-help": "service --help",
    "stream-info": "stream info ORDERS",
    "stream-info-mirror": f"stream info {ARCHIVE}",
    "stream-info-sources": "stream info ALL",
    "stream-info-transform": "stream info EVENTS",
    "stream-info-bucket": "stream info KV_CONFIG",
    "stream-state": "stream state ORDERS",
    "stream-ls": "stream ls",
    "stream-ls-wide": "stream ls --wide",
    "stream-ls-columns": "stream ls --columns name,created,description,last-message",
    "stream-report": "stream report",
    "stream-find": "stream find --consumers 1",
    "consumer-info": "consumer info ORDERS NEW",
    "consumer-info-filters": "consumer info ORDERS MULTI",
    "consumer-info-push": "consumer info ORDERS MONITOR",
    "consumer-info-long": f"consumer info ORDERS {DISPATCHING}",
    "consumer-ls": "consumer ls ORDERS",
    "consumer-ls-wide": "consumer ls ORDERS --wide",
    "consumer-report": "consumer report ORDERS",
    "kv-ls": "kv ls",
    "object-ls": "object ls",
    "errors-ls": "errors ls mirror.*subject",
    "errors-lookup": "errors lookup 10065",
    "schema-ls": "schema ls (api.v1.stream_msg|natsctl.stream|natsctl.schema)",
    "schema-commands": "schema ls stream_info --commands",
    "cheat": "cheat kv",
}
"""What is shown by a command."""


def _models(kind: Any, *documents: dict[str, Any]) -> list[Any]:
    import msgspec

    return [msgspec.convert(document, kind) for document in documents]


def _keys() -> list[Any]:
    from natsctl.client.buckets import Entry

    return [
        Entry("CONFIG", "db.host", 2, "PUT", WHEN, 16, b"value of db.host"),
        Entry("CONFIG", "feature.new-checkout.of.all.shops", 1234, "PUT", WHEN, 90, b"a text with some words " * 4),
        Entry("CONFIG", "a.b.c", 1235, "DEL", WHEN, 0, b""),
    ]


def _objects() -> list[Any]:
    from natsctl.client.object_store import Object

    film = "films/2026/the-very-long-name-of-a-film-about-nothing.bin"
    raw = {"bucket": "ASSETS", "nuid": "n", "chunks": 3, "options": {"max_chunk_size": 131072}}
    digest = "SHA-256=mQMS8q9JLZGGGZ0vqnS9ddDEs3N3pxHIHaUD3Qjzrxk="
    return [
        Object({**raw, "name": film, "size": 300000, "digest": digest, "description": "A film"}, WHEN, 3),
        Object({**raw, "name": "small.txt", "size": 3, "chunks": 1, "digest": digest}, WHEN, 5),
    ]


def _backups() -> list[Any]:
    from natsctl.client.backup.discovery import Found

    rest = {"form": "directory", "archive": 1, "size": 30720, "created": WHEN}
    return _models(
        Found,
        {"path": "/backups/monday/ORDERS", "stream": "ORDERS", "messages": 1517, **rest},
        {"path": f"/backups/monday/{ARCHIVE}", "stream": ARCHIVE, "messages": 1, **rest},
        {"path": "/backups/old.tgz", "form": "file", "error": "it is not a backup"},
    )


def _verdicts() -> list[Any]:
    from natsctl.client.backup.discovery import Verdict

    good = [{"name": "counts", "ok": True, "detail": "1,517 messages, 1 consumer"}]
    bad = [{"name": "checksums", "ok": False, "detail": "stream.tar.s2 has another checksum than its manifest says"}]
    return _models(
        Verdict,
        {"path": "monday/ORDERS", "stream": "ORDERS", "archive": 1, "checks": good},
        {"path": f"monday/{ARCHIVE}", "stream": ARCHIVE, "archive": 2, "whole": False, "checks": bad},
    )


def _outcome() -> Any:
    from natsctl.client.backup.account_backup import AccountOutcome

    streams = [
        {"stream": "ORDERS", "action": "saved", "messages": 1517, "bytes": 82000, "archive_bytes": 30000},
        {"stream": ARCHIVE, "action": "failed", "error": "the server ended the snapshot: 408 No Flow Response"},
    ]
    return _models(AccountOutcome, {"folder": "monday", "streams": streams})[0]


def _trips() -> list[Any]:
    from natsctl.client.latency import Trips

    one = {"time": WHEN, "address": "nats://10.0.0.1:4222", "url": "nats://nats-1.example.net:4222"}
    good = {**one, "rtt": 1_300_000, "min": 345_000, "max": 22_300_000, "iterations": 5}
    return _models(
        Trips,
        {"url": one["url"], "results": [good, {**one, "error": "connection refused"}]},
        {"url": "nats://nats-2.example.net:4222", "results": [good]},
    )


def _services() -> tuple[list[Any], list[Any]]:
    from natsctl.client.services import ServiceInfo, ServiceStats

    who = {"name": "calc", "id": "VMAA7DNVXJYR4WCBTI3LMU", "version": "1.2.3"}
    ends = [{"name": "add", "subject": "calc.add", "num_requests": 12345, "processing_time": 7_000_000}]
    about = {**who, "description": "Adds and divides numbers", "endpoints": [{"name": "add", "subject": "calc.add"}]}
    return _models(ServiceInfo, about), _models(ServiceStats, {**who, "started": WHEN, "endpoints": ends})


def _counters() -> list[Any]:
    from natsctl.client.counters import Counter

    one = {"stream": "COUNTS", "seq": 7, "time": WHEN, "incr": "1"}
    return _models(
        Counter, {**one, "subject": "hits.page.index", "val": "1234567"}, {**one, "subject": "hits.x", "val": "-5"}
    )


def _report() -> Any:
    from natsctl.client.bench.report import Report

    part = {"msgs": 40000, "bytes": 5120000, "duration_ns": 2_500_000_000, "msgs_per_s": 16000, "bytes_per_s": 2048000}
    document = {
        "benchmark": "js pub sync", "clients": 2, "processes": 1, "size": 128, "started": WHEN, "subject": "bench.x",
        "stream": "benchstream", "total": part, "each": [{**part, "client": 1}, {**part, "client": 2}],
    }  # fmt: skip
    return _models(Report, document)[0]


def _top() -> Any:
    from natsctl.client.system.top import TopView

    links = [
        {"cid": 7, "ip": "10.0.0.1", "port": 4711, "name": "shop", "lang": "go", "version": "1.48.0", "uptime": "3d4h"},
        {"cid": 123, "host": "worker-12.example.net", "port": 51234, "name": "dispatcher of orders", "lang": "python3"},
    ]
    figures = {"subscriptions": 12, "out_msgs": 1234567, "in_msgs": 89, "out_bytes": 987654321, "in_bytes": 4711}
    document = {
        "time": WHEN, "server": "n1", "id": "NDMTJSFF3UI7ZKRZIP7GZ5ERM7MJQD3EDF3WEPCPPJ7Z5NAYJ2JCTEO3",
        "version": "2.15.2", "uptime": "3d4h5m6s", "cpu": 12.5, "mem": 64_000_000, "slow_consumers": 1,
        "in_msgs": 4711, "out_msgs": 1234567, "in_bytes": 123456, "out_bytes": 987654321, "rates": None,
        "total_connections": 17, "connections": [{**one, **figures, "last_activity": WHEN} for one in links],
    }  # fmt: skip
    return _models(TopView, document)[0]


def _check() -> Any:
    from natsctl.client.checks import Check

    check = Check("JetStream", "JetStream")
    check.critical.append("storage 93% of the limit")
    check.ok.append("memory 1% of the limit")
    check.measure("storage", 1_234_567, "Bytes that files take", "B")
    return check


def _contexts() -> list[dict[str, Any]]:
    urls = "nats://nats-1.example.net:4222,nats://nats-2.example.net:4222"
    long = {
        "name": "production-cluster-eu-west-1",
        "selected": False,
        "url": urls,
        "user": "app",
        "password": "********",
    }
    return [
        {"name": "local", "selected": True, "url": "nats://127.0.0.1:4222", "description": "The one of this machine"},
        {**long, "description": "Production of everything that is sold in western Europe", "path": "/home/me/eu.json"},
    ]


def _account() -> Any:
    from natsctl.api.account import AccountInfo
    from natsctl.cli.account import render_account

    told = WORLD["account"]
    [info] = _models(AccountInfo, {key: value for key, value in told.items() if key != "type"})
    return render_account(info, told["server"], told["user"])


def _server(width: int) -> dict[str, Callable[[], Any]]:
    from natsctl.cli.render import server_reports, servers
    from natsctl.client.system.system_account import Answers, ServerAnswer

    told = WORLD["system"]
    census = Answers([ServerAnswer(one, 1_200_000) for one in told["census"]], 1)
    held = Answers([ServerAnswer(one) for one in told["jetstream"]], 1)
    links = told["connections"]
    table = server_reports.CONNECTIONS
    return {
        "server-info": lambda: servers.render_server(ServerAnswer(told["server"])),
        "server-ls": lambda: server_reports.render_census(census, census, width, None, False),
        "server-report-connections": lambda: server_reports.render_connections(
            table, links, links, "subs", width, None, False
        ),
        "server-report-jetstream": lambda: server_reports.render_jetstream(held, held, "", False, width, None, False),
    }


def _shown(width: int) -> dict[str, Callable[[], Any]]:
    """What a page or a table is made of that needs a connection."""
    from natsctl.cli import context, counter, service, top
    from natsctl.cli.render import backup, bucket_pages, measurements, streams
    from natsctl.cli.render.servers import tables

    subjects = sorted(ANSWERS["subjects"]["state"]["subjects"].items(), key=lambda one: (one[1], one[0]))
    return {
        **_server(width),
        "account-info": _account,
        "check": lambda: tables(_check()),
        "top": lambda: top.render_top(_top()),
        "backup-ls": lambda: backup.render_found(_backups()),
        "backup-verify": lambda: backup.render_verdicts(_verdicts()),
        "backup-account": lambda: backup.render_outcome(_outcome()),
        "bench": lambda: measurements.render_report(_report()),
        "bench-clients": lambda: measurements.render_clients(_report()),
        "context-ls": lambda: context.render_contexts(_contexts()),
        "context-info": lambda: context.render_context(_contexts()[1]),
        "counter-ls": lambda: counter.render_counters(_counters()),
        "kv-ls-keys": lambda: bucket_pages.render_keys("CONFIG", _keys(), values=True),
        "kv-history": lambda: bucket_pages.render_history("CONFIG", "db.host", _keys()),
        "object-ls-bucket": lambda: bucket_pages.render_objects("ASSETS", _objects()),
        "object-info": lambda: bucket_pages.render_object(_objects()[0]),
        "rtt": lambda: Text("\n".join(measurements.rendered_trips(_trips()))),
        "service-ls": lambda: service.render_services(_services()[0], ""),
        "service-stats": lambda: service.render_stats(_services()[1], "calc"),
        "service-info": lambda: service.render_instance(_services()[0][0], _services()[1][0]),
        "stream-subjects": lambda: streams.render_subjects("ORDERS", subjects, width),
    }


def _listed(asked: str, body: str) -> dict[str, Any]:
    """The streams of the world; those of buckets where only their subjects are asked for."""
    told = ANSWERS["STREAM.LIST"]
    kind = "KV_" if "$KV" in body else "OBJ_" if "$O" in body else ""
    streams = [one for one in told["streams"] if one["config"]["name"].startswith(kind)]
    shown = streams if asked == "STREAM.LIST" else [one["config"]["name"] for one in streams]
    kind_of = f"io.nats.jetstream.api.v1.{asked.lower().replace('.', '_')}_response"
    return {**told, "type": kind_of, "total": len(streams), "streams": shown}


COLOURED = ("stream-info", "stream-ls", "consumer-info", "help")


@pytest.fixture(autouse=True)
def canned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers as in the recorded world, in a zone without summer, at a time that stands still."""

    async def connect(session: Session) -> Manager:
        target = SimpleNamespace(api_prefix="$JS.API", shown="nats://canned:4222", origin="canned")

        async def close() -> None:
            """There is nothing to end."""

        return Manager(
            SimpleNamespace(
                target=target, tracer=None, dry_run=False, timeout_s=5.0, lost=False, concurrent=True, close=close
            )
        )  # type: ignore[arg-type]  # what requests use of a connection

    async def exchange(requests: Requests, subject: str, payload: bytes, *_: Any, **more: Any) -> dict[str, Any]:
        asked = subject.removeprefix("$JS.API.")
        return _listed(asked, payload.decode()) if asked in ("STREAM.LIST", "STREAM.NAMES") else dict(ANSWERS[asked])

    monkeypatch.setattr(Session, "_connect", connect)
    monkeypatch.setattr(Requests, "_exchange", exchange)
    monkeypatch.setattr(time, "time_ns", lambda: parse_time(WORLD["now"]))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def _compare(name: str, shown: str) -> None:
    file = SNAPSHOTS / name
    if os.environ.get("SCREENS") == "write":
        file.write_text(shown, encoding="utf-8")
    assert shown == file.read_text(encoding="utf-8"), "SCREENS=write python -m pytest tests/cli/screens keeps it"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_shows_what_was_found_good(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for columns in WIDTHS:
        monkeypatch.setenv("COLUMNS", str(columns))
        assert run(shlex.split(COMMANDS[name])) == 0
        _compare(f"{name}@{columns}.txt", capsys.readouterr().out)


@pytest.mark.parametrize("name", _shown(80))
def test_a_page_or_table_is_the_one_that_was_found_good(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for columns in WIDTHS:
        monkeypatch.setenv("COLUMNS", str(columns))
        made = _shown(columns)[name]()
        for one in made if isinstance(made, list) else [made]:
            output.show_page(one) if isinstance(one, Page) else output.show_table(one)
        _compare(f"{name}@{columns}.txt", capsys.readouterr().out)


@pytest.mark.parametrize("name", COLOURED)
def test_colours_are_weight_alone_so_that_none_vanishes_on_white_or_black(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(output, "has_color", lambda stream: True)
    assert run(shlex.split(COMMANDS[name])) == 0
    shown = capsys.readouterr().out
    assert set(re.findall(r"\x1b\[([\d;]*)m", shown)) <= {"0", "1"}
    _compare(f"{name}@80.ansi", shown)


def test_no_line_is_wider_than_its_terminal_and_none_drives_it() -> None:
    examples = re.compile(r"^ +(natsctl|#) ?")
    wide = [
        f"{file.name}: {line}"
        for file in SNAPSHOTS.glob("*.txt")
        for line in file.read_text(encoding="utf-8").splitlines()
        # An example is a line to copy, which stays in one piece.
        if "\x1b" in line or (cell_len(line) > int(file.stem.rpartition("@")[2]) and not examples.match(line))
    ]
    assert not wide


def test_no_snapshot_is_left_over() -> None:
    names = {f"{name}@{columns}.txt" for name in (*COMMANDS, *_shown(80)) for columns in WIDTHS}
    assert {file.name for file in SNAPSHOTS.iterdir()} == names | {f"{name}@80.ansi" for name in COLOURED}
