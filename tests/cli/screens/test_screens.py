"""Screens at 60, 80 and 200 columns, as they were looked at and found good: `snapshots/<screen>@<columns>.txt`.

Answers of a server are those of `world.json`, recorded from one, and the clock stands still, so that a difference is a
change of the screen. `SCREENS=write python -m pytest tests/cli/screens` keeps what is shown now.
"""

import asyncio
import json
import os
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len
from rich.text import Text

from natsctl.api.times import parse_time
from natsctl.cli.framework import output
from natsctl.cli.framework.session import Session, SessionLink
from natsctl.cli.main import run
from natsctl.cli.render.page import Page
from natsctl.client.manager import Manager
from natsctl.client.received import Received
from natsctl.client.requests import Requests, end_tasks
from tests.cli.conftest import groups_of

WIDTHS = (60, 80, 200)
SNAPSHOTS = Path(__file__).with_name("snapshots")
WORLD: dict[str, Any] = json.loads(Path(__file__).with_name("world.json").read_text(encoding="utf-8"))
ANSWERS: dict[str, dict[str, Any]] = WORLD["api"]
SHOWN: dict[str, Any] = WORLD["shown"]


def _models(kind: Any, name: str) -> list[Any]:
    """What the client returns, from the documents of the recorded world."""
    return [msgspec.convert(document, kind) for document in SHOWN[name]]


def _check() -> Any:
    from natsctl.client.checks import MonitoringCheck

    check = MonitoringCheck("JetStream", "JetStream")
    check.critical.append("storage 93% of the limit")
    check.ok.append("memory 1% of the limit")
    check.measure("storage", 1_234_567, "Bytes that files take", "B")
    return check


def _account() -> Any:
    from natsctl.api.account import AccountInfo
    from natsctl.cli.account import render_account

    told = WORLD["account"]
    info = msgspec.convert({key: value for key, value in told.items() if key != "type"}, AccountInfo)
    return render_account(info, told["server"], told["user"])


def _server(width: int) -> dict[str, Callable[[], Any]]:
    from natsctl.cli.render import server_reports, servers
    from natsctl.client.system.system_account import ServerAnswer, ServerAnswers

    told = WORLD["system"]
    census = ServerAnswers([ServerAnswer(one, 1_200_000) for one in told["census"]], 1)
    held = ServerAnswers([ServerAnswer(one) for one in told["jetstream"]], 1)
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
    from natsctl.client.backup.account_backup import AccountOutcome
    from natsctl.client.backup.discovery import Found, Verdict
    from natsctl.client.bench.report import Report
    from natsctl.client.buckets import Entry
    from natsctl.client.counters import Counter
    from natsctl.client.latency import Trips
    from natsctl.client.object_store import read_object
    from natsctl.client.services import ServiceInfo, ServiceStats
    from natsctl.client.system.top import TopView

    subjects = sorted(ANSWERS["subjects"]["state"]["subjects"].items(), key=lambda one: (one[1], one[0]))
    keys = [Entry(*row[:-1], row[-1].encode()) for row in SHOWN["keys"]]
    objects = [read_object(*row) for row in SHOWN["objects"]]
    [outcome], [report], [view] = _models(AccountOutcome, "outcome"), _models(Report, "report"), _models(TopView, "top")
    services, stats = _models(ServiceInfo, "services"), _models(ServiceStats, "service_stats")
    return {
        **_server(width),
        "account-info": _account,
        "check": lambda: tables(_check()),
        "top": lambda: top.render_top(view),
        "backup-ls": lambda: backup.render_found(_models(Found, "backups")),
        "backup-verify": lambda: backup.render_verdicts(_models(Verdict, "verdicts")),
        "backup-account": lambda: backup.render_outcome(outcome),
        "bench": lambda: measurements.render_report(report),
        "bench-clients": lambda: measurements.render_clients(report),
        "context-ls": lambda: context.render_contexts(SHOWN["contexts"]),
        "context-info": lambda: context.render_context(SHOWN["contexts"][1]),
        "counter-ls": lambda: counter.render_counters(_models(Counter, "counters")),
        "kv-ls-keys": lambda: bucket_pages.render_keys("CONFIG", keys, values=True),
        "kv-history": lambda: bucket_pages.render_history("CONFIG", "db.host", keys),
        "object-ls-bucket": lambda: bucket_pages.render_objects("ASSETS", objects),
        "object-info": lambda: bucket_pages.render_object(objects[0]),
        "rtt": lambda: Text("\n".join(measurements.rendered_trips(_models(Trips, "trips")))),
        "service-ls": lambda: service.render_services(services, ""),
        "service-stats": lambda: service.render_stats(stats, "calc"),
        "service-info": lambda: service.render_instance(services[0], stats[0]),
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


COMMANDS = dict(row.split("  →  ") for row in groups_of("screens/commands.txt")["shown by a command"])
COLOURED = ("stream-info", "stream-ls", "consumer-info", "help")


@pytest.fixture(autouse=True)
def canned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers as in the recorded world, in a zone without summer, at a time that stands still."""

    async def connect(session: Session, link: SessionLink) -> Manager:
        target = SimpleNamespace(api_prefix="$JS.API", shown="nats://canned:4222", origin="canned", urls=())

        async def close() -> None:
            """There is nothing to end."""

        tasks = {"start": asyncio.ensure_future, "end": end_tasks, "close": close}
        state = {"target": target, "tracer": None, "dry_run": False, "timeout_s": 5.0, "lost": False}
        connection: Any = SimpleNamespace(**state, **tasks, received=Received())  # what requests use of a connection
        return Manager(connection)

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
