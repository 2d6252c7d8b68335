"""`natsctl server stream-check` and `consumer-check`: copies on all servers, side by side."""

from __future__ import annotations

import csv as tables
import io
import json as documents
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, TypeVar

from natsctl.api.errors import UnreachableError, UsageError
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Given, Json, flagged
from natsctl.cli.framework.parameters import Option
from natsctl.cli.framework.session import Session
from natsctl.cli.render.server_reports import (
    CONSUMER_COLUMNS,
    REPLICA_NUMBERS,
    STREAM_COLUMNS,
    consumer_row,
    stream_row,
)
from natsctl.cli.render.tables import render_table
from natsctl.cli.server.overview import ARCHIVE, servers_of
from natsctl.cli.server.report import readable_answers
from natsctl.client.system.replicas import JSZ, consumer_replicas, stream_replicas
from natsctl.client.system.system_account import ServerAnswer, ServerScope, System

if TYPE_CHECKING:
    from natsctl.client.system.replicas import Replica

R = TypeVar("R", bound="Replica")


class CopyFlags(NamedTuple):
    """The copies to compare, and how: a bundle of flags for commands."""

    stream: Annotated[str, Option("--stream", metavar="STREAM", help="only this stream")] = ""
    raft_group: Annotated[str, Option("--raft-group", metavar="GROUP", help="only this group")] = ""
    health: Annotated[bool, Option("--health", help="also ask each server whether its copy is healthy")] = False
    expected: Annotated[int, Option("--expected", metavar="N", help="how many servers should answer", min=0)] = 0
    unsynced: Annotated[bool, Option("--unsynced", help="only copies that differ, by how much from the leader's")] = (
        False
    )
    stdin: Annotated[
        bool, Option("--stdin", help="read answers from stdin, as natsctl server request jetstream prints them")
    ] = False
    read_timeout: Annotated[
        int, Option("--read-timeout", metavar="SECONDS", help="how long to wait for the servers", min=1)
    ] = 5
    csv: Annotated[bool, Option("--csv", help="print comma-separated values")] = False
    json: Json = False


@flagged((ARCHIVE,))
def stream_check(session: Session, given: Given, flags: CopyFlags) -> None:
    """Compare the copies of streams that the servers have: messages, sequences, leaders."""
    wanted = {"stream": flags.stream}
    _compare(session, given, flags, _Copies("Streams", stream_replicas, STREAM_COLUMNS, stream_row), wanted)


@flagged((ARCHIVE,))
def consumer_check(
    session: Session,
    given: Given,
    flags: CopyFlags,
    consumer: Annotated[str, Option("--consumer", metavar="NAME", help="only this consumer")] = "",
) -> None:
    """Compare the copies of consumers that the servers have: deliveries, acknowledgements, leaders."""
    wanted = {"stream": flags.stream, "consumer": consumer}
    _compare(session, given, flags, _Copies("Consumers", consumer_replicas, CONSUMER_COLUMNS, consumer_row), wanted)


class _Copies(NamedTuple, Generic[R]):
    """Streams or consumers: the copies in answers of servers, and the columns and cells of their table."""

    title: str
    in_answers: Callable[[Sequence[ServerAnswer]], list[R]]
    columns: Sequence[str]
    cells: Callable[[R, R | None], list[str]]


def _compare(session: Session, given: Given, flags: CopyFlags, copies: _Copies[R], wanted: dict[str, str]) -> None:
    session = servers_of(session, given)
    if flags.stdin and session.archive:
        raise UsageError("--stdin and --archive exclude each other")
    if flags.health and (flags.stdin or session.archive):
        raise UsageError(f"--health asks the servers, which {'--stdin' if flags.stdin else '--archive'} does not")
    answers = readable_answers(
        session.received,
        _answers(session, flags.stdin, flags.expected, flags.read_timeout),
        lambda some: [copies.cells(answer, None) for answer in copies.in_answers(some)],
    )
    every = copies.in_answers(answers)
    wanted = {name: text for name, text in {"raft_group": flags.raft_group, **wanted}.items() if text}
    rows = [
        one
        for one in every
        if all(getattr(one, name) == text for name, text in wanted.items()) and not (flags.unsynced and one.in_sync)
    ]
    if flags.health:
        _ask_health(session, rows)
    if flags.json:
        output.emit_json(rows)
        return
    _say(f"Servers: {len(answers)}", f"{copies.title}: {len(every)}", *_gaps(answers, flags.expected, every))
    leaders = {_group_of(one): one for one in every if one.leads} if flags.unsynced else {}
    columns = [*copies.columns, *(["Health"] if flags.health else [])]
    cells = [[*copies.cells(row, leaders.get(_group_of(row))), *([row.health] if flags.health else [])] for row in rows]
    if flags.csv:
        text = io.StringIO()
        tables.writer(text, lineterminator="\n").writerows([columns, *cells])
        output.emit(text.getvalue().rstrip("\n"))
        return
    output.show_table(
        render_table(copies.title, columns, cells, REPLICA_NUMBERS, least=("Account ID", "Raft", "Peers"))
    )


def _group_of(replica: Replica) -> tuple[str, ...]:
    return replica.account, replica.stream, getattr(replica, "consumer", ""), replica.raft_group


def _answers(session: Session, stdin: bool, expected: int, read_timeout: int) -> Sequence[ServerAnswer]:
    if stdin:
        found = [ServerAnswer(document) for document in _documents(sys.stdin.read())][: expected or None]
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


def _ask_health(session: Session, rows: Sequence[Replica]) -> None:
    async def ask(manager: Any) -> None:
        for one in rows:
            server = ServerAnswer({"server": {"id": one.server_id, "name": one.server}})
            names = ("account", "stream", "consumer")
            body = {name: getattr(one, name) for name in names if hasattr(one, name)}
            answers = await System(manager).ask_each([server], "HEALTHZ", body)
            said = answers[0].data if answers else {"status": "unavailable", "error": "no answer"}
            one.health = ": ".join(
                text for text in (str(said.get("status") or ""), str(said.get("error") or "")) if text
            )

    session.run(ask)


def _gaps(answers: Sequence[ServerAnswer], expected: int, every: Sequence[Replica]) -> list[str]:
    """Return warnings of servers without an answer, and of servers that refused: the rows are those of the others."""
    wanted = expected or getattr(answers, "expected", 0)
    answered = [answer for answer in answers if answer.failure is None]
    said = [f"Warning: {answer.name}: {answer.failure}" for answer in answers if answer.failure is not None]
    if len(answered) < wanted:
        said.append(f"Warning: expected {wanted} responses got {len(answered)}")
    names = {answer.name for answer in answers}
    if absent := sorted(
        {name for one in every for name in (one.leader, *(peer.name for peer in one.peers))} - names - {""}
    ):
        said.append(f"Warning: no answer of {', '.join(absent)}, but others name it as leader or peer")
    return said


def _say(*lines: str) -> None:
    for line in lines:
        output.note(line)
