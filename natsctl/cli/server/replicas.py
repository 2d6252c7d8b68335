"""`natsctl server stream-check` and `consumer-check`: copies on all servers, side by side."""

from __future__ import annotations

import csv as tables
import io
import json as documents
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from natsctl.api.errors import UnreachableError, UsageError
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Given, Json, flagged
from natsctl.cli.framework.parameters import Option
from natsctl.cli.framework.session import Session
from natsctl.cli.server.overview import ARCHIVE, servers_of
from natsctl.cli.server.report import readable_answers

if TYPE_CHECKING:
    from natsctl.client.system.replicas import Replica
    from natsctl.client.system.system_account import ServerAnswer

R = TypeVar("R", bound="Replica")

Stream = Annotated[str, Option("--stream", metavar="STREAM", help="only this stream")]
Consumer = Annotated[str, Option("--consumer", metavar="NAME", help="only this consumer")]
RaftGroup = Annotated[str, Option("--raft-group", metavar="GROUP", help="only this group")]
Health = Annotated[bool, Option("--health", help="also ask each server whether its copy is healthy")]
Expected = Annotated[int, Option("--expected", metavar="N", help="how many servers should answer", min=0)]
Unsynced = Annotated[bool, Option("--unsynced", help="only copies that differ, by how much from the leader's")]
Stdin = Annotated[
    bool, Option("--stdin", help="read answers from stdin, as natsctl server request jetstream prints them")
]
ReadTimeout = Annotated[
    int, Option("--read-timeout", metavar="SECONDS", help="how long to wait for the servers", min=1)
]
Csv = Annotated[bool, Option("--csv", help="print comma-separated values")]


@flagged((ARCHIVE,))
def stream_check(
    session: Session,
    given: Given,
    stream: Stream = "",
    raft_group: RaftGroup = "",
    health: Health = False,
    expected: Expected = 0,
    unsynced: Unsynced = False,
    stdin: Stdin = False,
    read_timeout: ReadTimeout = 5,
    csv: Csv = False,
    json: Json = False,
) -> None:
    """Compare the copies of streams that the servers have: messages, sequences, leaders."""
    from natsctl.cli.render.server_reports import STREAM_COLUMNS, stream_row
    from natsctl.client.system.replicas import stream_replicas

    session = servers_of(session, given)
    _check(health, stdin, bool(session.archive))
    answers = readable_answers(
        session.received,
        _answers(session, stdin, expected, read_timeout),
        lambda some: [stream_row(one, None) for one in stream_replicas(some)],
    )
    every = stream_replicas(answers)
    rows = _wanted(every, unsynced, raft_group=raft_group, stream=stream)
    if health:
        _ask_health(session, rows, lambda one: {"account": one.account, "stream": one.stream})
    if json:
        _emit(rows)
        return
    _say(f"Servers: {len(answers)}", f"Streams: {len(every)}", *_gaps(answers, expected, every))
    leaders = {(one.account, one.stream, one.raft_group): one for one in every if one.leads}
    cells = [
        stream_row(one, leaders.get((one.account, one.stream, one.raft_group)) if unsynced else None) for one in rows
    ]
    _show("Streams", STREAM_COLUMNS, cells, rows, health=health, csv=csv)


@flagged((ARCHIVE,))
def consumer_check(
    session: Session,
    given: Given,
    stream: Stream = "",
    consumer: Consumer = "",
    raft_group: RaftGroup = "",
    health: Health = False,
    expected: Expected = 0,
    unsynced: Unsynced = False,
    stdin: Stdin = False,
    read_timeout: ReadTimeout = 5,
    csv: Csv = False,
    json: Json = False,
) -> None:
    """Compare the copies of consumers that the servers have: deliveries, acknowledgements, leaders."""
    from natsctl.cli.render.server_reports import CONSUMER_COLUMNS, consumer_row
    from natsctl.client.system.replicas import consumer_replicas

    session = servers_of(session, given)
    _check(health, stdin, bool(session.archive))
    answers = readable_answers(
        session.received,
        _answers(session, stdin, expected, read_timeout),
        lambda some: [consumer_row(one, None) for one in consumer_replicas(some)],
    )
    every = consumer_replicas(answers)
    rows = _wanted(every, unsynced, raft_group=raft_group, stream=stream, consumer=consumer)
    if health:
        _ask_health(session, rows, lambda one: {"account": one.account, "stream": one.stream, "consumer": one.consumer})
    if json:
        _emit(rows)
        return
    _say(f"Servers: {len(answers)}", f"Consumers: {len(every)}", *_gaps(answers, expected, every))
    leaders = {(one.account, one.stream, one.consumer, one.raft_group): one for one in every if one.leads}
    cells = [
        consumer_row(one, leaders.get((one.account, one.stream, one.consumer, one.raft_group)) if unsynced else None)
        for one in rows
    ]
    _show("Consumers", CONSUMER_COLUMNS, cells, rows, health=health, csv=csv)


def _check(health: bool, stdin: bool, archive: bool) -> None:
    if stdin and archive:
        raise UsageError("--stdin and --archive exclude each other")
    if health and (stdin or archive):
        raise UsageError(f"--health asks the servers, which {'--stdin' if stdin else '--archive'} does not")


def _answers(session: Session, stdin: bool, expected: int, read_timeout: int) -> Sequence[ServerAnswer]:
    from natsctl.client.system.replicas import JSZ
    from natsctl.client.system.system_account import ServerAnswer, ServerScope, System

    if stdin:
        found = [ServerAnswer(one) for one in _documents(sys.stdin.read())][: expected or None]
        if not found:
            raise UsageError("--stdin: there is no answer of a server on stdin")
        return found

    async def ask(manager: Any) -> Sequence[ServerAnswer]:
        manager.connection.timeout_s = float(read_timeout)
        return await System(manager).ask("JSZ", dict(JSZ), ServerScope(expect=expected))

    begun_s = time.monotonic()
    answers: Sequence[ServerAnswer] = session.run(ask)
    if not answers:
        raise UnreachableError("no server has answered")
    if not session.json:
        _say(f"Response took {time.monotonic() - begun_s:.3f}s")
    return answers


def _documents(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a text, in sequence or in an array. Raises UsageError."""
    decoder, at = documents.JSONDecoder(), 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        try:
            found, at = decoder.raw_decode(text, at)
        except ValueError as failure:
            raise UsageError(f"--stdin: {failure}") from failure
        for one in found if isinstance(found, list) else [found]:
            if not isinstance(one, dict):
                raise UsageError("--stdin: expected answers of servers as JSON objects")
            yield one


def _wanted(every: Sequence[R], unsynced: bool, **wanted: str) -> list[R]:
    """Return the copies that the flags select; with `unsynced` only rows that are out of sync."""
    named = [one for one in every if all(not text or getattr(one, name) == text for name, text in wanted.items())]
    return [one for one in named if not (unsynced and one.in_sync)]


def _ask_health(session: Session, rows: Sequence[R], body: Callable[[R], dict[str, str]]) -> None:
    from natsctl.client.system.system_account import ServerAnswer, System

    async def ask(manager: Any) -> None:
        for one in rows:
            server = ServerAnswer({"server": {"id": one.server_id, "name": one.server}})
            answers = await System(manager).ask_each([server], "HEALTHZ", body(one))
            said = answers[0].data if answers else {"status": "unavailable", "error": "no answer"}
            one.health = ": ".join(
                text for text in (str(said.get("status") or ""), str(said.get("error") or "")) if text
            )

    session.run(ask)


def _gaps(answers: Sequence[ServerAnswer], expected: int, every: Sequence[Replica]) -> list[str]:
    """Return warnings of servers without an answer, and of servers that refused: the rows are those of the others."""
    wanted = expected or getattr(answers, "expected", 0)
    answered = [one for one in answers if one.failure is None]
    said = [f"Warning: {one.name}: {one.failure}" for one in answers if one.failure is not None]
    if len(answered) < wanted:
        said.append(f"Warning: expected {wanted} responses got {len(answered)}")
    names = {one.name for one in answers}
    if absent := sorted(
        {name for one in every for name in (one.leader, *(peer.name for peer in one.peers))} - names - {""}
    ):
        said.append(f"Warning: no answer of {', '.join(absent)}, but others name it as leader or peer")
    return said


def _say(*lines: str) -> None:
    for line in lines:
        output.note(line)


def _emit(rows: Sequence[Replica]) -> None:
    from msgspec import to_builtins

    output.emit_json(to_builtins(rows))


def _show(
    title: str,
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    rows: Sequence[Replica],
    *,
    health: bool,
    csv: bool,
) -> None:
    columns = [*columns, *(["Health"] if health else [])]
    cells = [[*row, *([one.health] if health else [])] for row, one in zip(cells, rows, strict=True)]
    if csv:
        text = io.StringIO()
        tables.writer(text, lineterminator="\n").writerows([columns, *cells])
        output.emit(text.getvalue().rstrip("\n"))
        return
    from natsctl.cli.render.server_reports import REPLICA_NUMBERS
    from natsctl.cli.render.tables import render_table

    output.show_table(render_table(title, columns, cells, REPLICA_NUMBERS, least=("Account ID", "Raft", "Peers")))
