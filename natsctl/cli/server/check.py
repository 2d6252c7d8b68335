"""Checks for monitoring: `natsctl server check`, with exit codes 0 OK, 1 warning, 2 critical, 3 unknown."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from natsctl.api.errors import NatsctlError, UsageError, file_errors
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import (
    DURATION,
    PAIRS,
    SIZE,
    SWITCH,
    TEXT,
    WHOLE,
    Flag,
    FlagKind,
    Given,
    Json,
    choice,
    flagged,
)
from natsctl.cli.framework.parameters import ExitError, Option
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import verb
from natsctl.client.atomic_file import atomic_write
from natsctl.client.checks import (
    MonitoringCheck,
    check_connection,
    check_consumer,
    check_credential,
    check_deadletters,
    check_jetstream,
    check_kv,
    check_message,
    check_meta,
    check_request,
    check_server,
    check_stream,
)
from natsctl.client.received import UNUSABLE
from natsctl.client.settings import jwt_in, resolve_file

if TYPE_CHECKING:
    from natsctl.client.manager import Manager


_ANSWER = "cli.server.check:CheckResult"


def _percent(text: str) -> float:
    try:
        return float(text.removesuffix("%"))
    except ValueError:
        raise ValueError(f"expected a percentage, not {text!r}") from None


PERCENT = FlagKind("PERCENT", _percent)
FORMATS = ("nagios", "json", "prometheus", "text")
OUT = (
    Flag("--format", choice(*FORMATS), "format", "format of the result", default="nagios"),
    Flag("--outfile", TEXT, "outfile", "write it to this file instead of stdout"),
    Flag("--namespace", TEXT, "namespace", "prefix of Prometheus metrics", default="nats_server_check"),
)


def flags(kind: FlagKind, *names: tuple[str, str], default: str = "") -> tuple[Flag, ...]:
    return tuple(Flag(f"--{name}", kind, name, help, default=default) for name, help in names)


def thresholds(kind: FlagKind, *names: tuple[str, str]) -> tuple[Flag, ...]:
    """Return the flags `NAME-warn` and `NAME-critical` for each pair of name and condition."""
    return tuple(
        flag
        for name, condition in names
        for flag in (
            Flag(f"--{name}-warn", kind, f"{name}-warn", f"warn at {condition}"),
            Flag(f"--{name}-critical", kind, f"{name}-critical", f"critical at {condition}"),
        )
    )


CONNECTION = thresholds(
    DURATION,
    ("connect", "this long to connect [500ms, 1s]"),
    ("rtt", "this long for a PING [500ms, 1s]"),
    ("req", "this long for a message to itself [500ms, 1s]"),
)
STREAM = (
    *flags(WHOLE, ("lag-critical", "critical when the mirror or a source is late by this many messages")),
    *flags(DURATION, ("seen-critical", "critical when the mirror or a source was not seen for this long")),
    *flags(WHOLE, ("min-sources", "minimum number of sources"), ("max-sources", "maximum number of sources")),
    *flags(
        WHOLE,
        ("peer-expect", "expected number of peers"),
        ("peer-lag-critical", "critical when a peer is late by this many operations"),
    ),
    *flags(DURATION, ("peer-seen-critical", "critical when a peer was not seen for this long")),
    *thresholds(
        WHOLE,
        ("msgs", "this many messages or fewer"),
        ("subjects", "this many subjects or more (or fewer, if critical is below warn)"),
    ),
)
CONSUMER = (
    *flags(
        WHOLE,
        ("outstanding-ack-critical", "critical at this many messages waiting for acknowledgement"),
        ("waiting-critical", "critical at this many waiting pulls"),
        ("unprocessed-critical", "critical at this many messages not yet delivered"),
        ("redelivery-critical", "critical at this many redelivered messages"),
    ),
    *flags(
        DURATION,
        ("last-delivery-critical", "critical when nothing was delivered for this long"),
        ("last-ack-critical", "critical when nothing was acknowledged for this long"),
    ),
    *flags(SWITCH, ("pinned", "every priority group must have a pinned client")),
)
MESSAGE = (
    *flags(TEXT, ("subject", "the newest message on this subject [of the stream]")),
    *thresholds(DURATION, ("age", "this age")),
    *flags(TEXT, ("content", "the body must match this regular expression")),
    *flags(SWITCH, ("body-timestamp", "compute the age from the body, a Unix time")),
)
META = (
    *flags(WHOLE, ("lag-critical", "critical when a server is late by this many operations")),
    *flags(DURATION, ("seen-critical", "critical when a server was not seen for this long")),
)
REQUEST = (
    *flags(TEXT, ("payload", "body of the request")),
    *flags(PAIRS, ("headers", "headers of the request")),
    *flags(TEXT, ("match-payload", "the answer's body must match this regular expression")),
    *flags(PAIRS, ("match-headers", "the answer's header must match this regular expression")),
    *thresholds(DURATION, ("response", "this long for an answer")),
)
JETSTREAM = (
    *thresholds(PERCENT, ("mem", "this use of memory, in percent of the limit [75, 90]")),
    *thresholds(PERCENT, ("store", "this use of disk, in percent of the limit [75, 90]")),
    *thresholds(PERCENT, ("streams", "this many streams, in percent of the limit")),
    *thresholds(PERCENT, ("consumers", "this many consumers, in percent of the limit")),
    *flags(SWITCH, ("replicas", "check the replicas of every stream"), default="on"),
    *flags(DURATION, ("replica-seen-critical", "critical when a replica was not seen for this long"), default="5s"),
    *flags(WHOLE, ("replica-lag-critical", "critical when a replica is late by this many operations"), default="200"),
)
SERVER = (
    *flags(TEXT, ("name", "name or id of the server [the one connected to]")),
    *thresholds(PERCENT, ("cpu", "this CPU use in percent")),
    *thresholds(SIZE, ("mem", "this use of memory")),
    *thresholds(WHOLE, ("conn", "this many connections or more (or fewer, if critical is below warn)")),
    *thresholds(WHOLE, ("subs", "this many subscriptions or more (or fewer, if critical is below warn)")),
    *thresholds(DURATION, ("uptime", "an uptime this short")),
    *flags(
        SWITCH,
        ("auth-required", "clients must be required to log in"),
        ("tls-required", "clients must be required to use TLS"),
    ),
    *flags(SWITCH, ("js-required", "JetStream must be on")),
    *flags(DURATION, ("tls-cert-warn", "warn when a certificate expires within this time")),
    Flag(
        "--tls-cert-crit",
        DURATION,
        "tls-cert-crit",
        "critical when a certificate expires within this time",
        aliases=("--tls-cert-critical",),
    ),
)
KV = (
    *thresholds(WHOLE, ("values", "this many values or more (or fewer, if critical is below warn)")),
    *flags(TEXT, ("key", "this key must have a value")),
)
DEADLETTERS = (
    *thresholds(WHOLE, ("msgs", "this many dead letters")),
    *thresholds(DURATION, ("age", "this age of the oldest one")),
    *flags(TEXT, ("consumer", "only dead letters of this consumer")),
)
CREDENTIAL = (
    *thresholds(DURATION, ("validity", "this long before it expires")),
    *flags(SWITCH, ("require-expiry", "it must have an expiry"), default="on"),
)
DEFAULTS: dict[str, dict[str, Any]] = {
    "deadletters": {"msgs-warn": 1},
    "connections": {
        f"{name}-{level}": value
        for name in ("connect", "rtt", "req")
        for level, value in (("warn", 500_000_000), ("critical", 1_000_000_000))
    },
    "jetstream": {
        **{
            f"{name}-{level}": value
            for name in ("mem", "store")
            for level, value in (("warn", 75.0), ("critical", 90.0))
        },
        "replica-seen-critical": 5_000_000_000,
        "replica-lag-critical": 200,
    },
}
"""Default thresholds by kind of check, durations in nanoseconds."""


class MonitoringMetric(msgspec.Struct):
    """A measured value with its thresholds, 0 for none; times are seconds."""

    name: str
    value: float
    warning: float
    critical: float
    unit: str = ""


class CheckResult(msgspec.Struct):
    """Result of a check."""

    status: str
    check_suite: str
    check_name: str
    perf_data: list[MonitoringMetric]
    critical: list[str] = []
    unknown: list[str] = []
    warning: list[str] = []
    ok: list[str] = []


Work = Callable[..., Awaitable[None]]
"""A check: its arguments are the manager, the result, and `limits`."""


def run_check(session: Session, given: Given, json: bool, check: MonitoringCheck, work: Work) -> None:
    """Run the check and exit with its status; a failed request is critical, a bad flag a usage error."""
    session.waits = False  # a monitoring system wants the state as it is, in time
    limits = limits_of(given, check.suite)
    try:
        session.run(lambda manager: work(manager, check, limits=limits))
        session.received.check()
    except UsageError:
        raise
    except NatsctlError as failure:
        check.critical.append(_line_of(failure))
    except UNUSABLE as failure:
        fault = session.received.fault_behind(failure)
        if fault is None:
            raise
        check.critical.append(_line_of(fault))
    end_check(given, json, check)


def _line_of(failure: NatsctlError) -> str:
    code = getattr(getattr(failure, "error", None), "err_code", 0)
    return f"{failure} ({code})" if code else str(failure)


def limits_of(given: Given, suite: str) -> dict[str, Any]:
    out = {flag.name for flag in OUT}
    return {
        **DEFAULTS.get(suite, {}),
        **{name.removeprefix("--"): value for name, value in given.items() if name not in out},
    }


def readers(table: tuple[Flag, ...]) -> dict[str, Callable[[str], Any]]:
    return {flag.name.removeprefix("--"): _true if flag.kind.switch else flag.read for flag in table}


def _true(text: str) -> bool:
    return text.strip().lower() in ("true", "1", "yes", "t")


def end_check(given: Given, json: bool, check: MonitoringCheck) -> None:
    chosen = "json" if json else given.get("--format", "nagios")
    if outfile := given.get("--outfile"):
        _replace(Path(outfile), _text(chosen, check, given, to_file=True) + "\n")
    elif chosen == "text":
        from natsctl.cli.render.servers import tables

        for part in tables(check):
            output.show_table(part)
    else:
        output.emit(_text(chosen, check, given))
    raise ExitError(0 if chosen == "prometheus" else int(check.status))


def _text(chosen: str, check: MonitoringCheck, given: Given, to_file: bool = False) -> str:
    from natsctl.cli.render.servers import document, nagios, prometheus, tables

    if chosen == "json":
        return output.json_text(document(check))
    if chosen == "prometheus":
        return prometheus(check, given.get("--namespace", "nats_server_check"))
    if chosen == "text" and to_file:
        from rich.console import Console

        held = StringIO()
        Console(file=held, width=120, no_color=True, markup=False, highlight=False).print(*tables(check), sep="\n")
        return held.getvalue().rstrip()
    return nagios(check)


def _replace(path: Path, text: str) -> None:
    """Replace a file atomically: readers see the old content or the new. Raises UsageError."""
    with file_errors(f"--outfile: {path}", UsageError), atomic_write(path, 0o644) as file:
        file.write(text.encode())


Stream = Annotated[str, Option("--stream", metavar="STREAM", help="name of the stream")]


@flagged((*STREAM, *OUT))
def stream(session: Session, given: Given, stream: Stream, json: Json = False) -> None:
    """Check a stream: messages, subjects, replicas, mirror and sources.

    Thresholds may also be set in the stream's metadata, as io.nats.monitor.msgs-warn and so on.
    """
    work = partial(check_stream, readers=readers(STREAM))
    run_check(session, given, json, MonitoringCheck("stream", stream), work)


@flagged((*CONSUMER, *OUT))
def consumer(
    session: Session,
    given: Given,
    stream: Stream,
    consumer: Annotated[str, Option("--consumer", metavar="CONSUMER", help="name of the consumer")],
    json: Json = False,
) -> None:
    """Check a consumer: its backlog, and when it was last used.

    Thresholds may also be set in the consumer's metadata, as io.nats.monitor.waiting-critical and so on.
    """
    work = partial(check_consumer, stream=stream, consumer=consumer, readers=readers(CONSUMER))
    run_check(session, given, json, MonitoringCheck("consumer", f"{stream}_{consumer}"), work)


@flagged((*MESSAGE, *OUT))
def message(session: Session, given: Given, stream: Stream, json: Json = False) -> None:
    """Check the newest message of a stream or of a subject: its age and body."""
    work = partial(check_message, stream=stream)
    run_check(session, given, json, MonitoringCheck("message", "Stream Message"), work)


@flagged((*JETSTREAM, *OUT))
def jetstream(session: Session, given: Given, json: Json = False) -> None:
    """Check the account's use of its JetStream limits, and the replicas of its streams."""
    run_check(session, given, json, MonitoringCheck("jetstream", "JetStream"), check_jetstream)


@flagged((*KV, *OUT))
def kv(
    session: Session,
    given: Given,
    bucket: Annotated[str, Option("--bucket", metavar="BUCKET", help="name of the bucket")],
    json: Json = False,
) -> None:
    """Check a key-value bucket: that it exists, the number of its values, a key."""
    run_check(session, given, json, MonitoringCheck("kv", bucket), partial(check_kv, bucket=bucket))


@flagged((*DEADLETTERS, *OUT))
def deadletters(
    session: Session,
    given: Given,
    stream: Annotated[str, Option("--stream", metavar="STREAM", help="name of the stream [all streams]")] = "",
    json: Json = False,
) -> None:
    """Check messages that failed: their number and the age of the oldest; without thresholds warn at the first one."""
    work = partial(check_deadletters, stream=stream)
    run_check(session, given, json, MonitoringCheck("deadletters", stream or "all streams"), work)


@flagged((*CONNECTION, *OUT))
def connection(session: Session, given: Given, json: Json = False) -> None:
    """Check that the server accepts connections, and how quickly it answers."""
    _import_client()
    begin_s = time.perf_counter()

    async def work(manager: Manager, check: MonitoringCheck, limits: dict[str, Any]) -> None:
        await check_connection(manager, check, time.perf_counter() - begin_s, limits)

    run_check(session, given, json, MonitoringCheck("connections", "Connection"), work)


@flagged((*SERVER, *OUT))
def server(session: Session, given: Given, json: Json = False) -> None:
    """Check a server: uptime, load, certificates, and required features."""
    run_check(session, given, json, MonitoringCheck("server", given.get("--name", "server")), check_server)


@flagged((*META, *OUT))
def meta(
    session: Session,
    given: Given,
    expect: Annotated[int, Option("--expect", metavar="N", help="expected number of servers")],
    json: Json = False,
) -> None:
    """Check the meta group of a JetStream cluster."""
    check = MonitoringCheck("meta", "JetStream Meta Cluster")
    run_check(session, {**given, "--expect": expect}, json, check, check_meta)


@flagged((*REQUEST, *OUT))
def request(
    session: Session,
    given: Given,
    subject: Annotated[str, Option("--subject", metavar="SUBJECT", help="the subject to ask")],
    json: Json = False,
) -> None:
    """Check that a service answers a request, how quickly, and with what."""
    run_check(session, given, json, MonitoringCheck("request", subject), check_request)


@flagged((*CREDENTIAL, *OUT))
def credential(
    session: Session,
    given: Given,
    file: Annotated[str, Option("--credential", metavar="FILE", help="the credentials")],
    json: Json = False,
) -> None:
    """Check how long a credentials file is still valid, without a server."""
    check = MonitoringCheck("credential", "Credential")
    try:
        check_credential(check, jwt_in(resolve_file(file, "credential"), "credential"), limits_of(given, check.suite))
    except UsageError as failure:
        check.critical.append(str(failure))
    end_check(given, json, check)


def _import_client() -> None:
    """Import the modules of a connection, so that the measured time does not include the import."""
    import asyncio  # noqa: F401

    import natsctl.client.dial
    import natsctl.client.manager  # noqa: F401
    from natsctl.client.nats_py import client_class

    client_class()


VERBS = (
    verb(
        "connection, conn", connection, _ANSWER, "natsctl server check connection --rtt-warn 100ms --rtt-critical 500ms"
    ),
    verb("stream", stream, _ANSWER, "natsctl server check stream --stream ORDERS --peer-expect 3 --msgs-critical 10"),
    verb(
        "consumer", consumer, _ANSWER, "natsctl srv check consumer --stream S --consumer C --unprocessed-critical 1000"
    ),
    verb(
        "message, msg", message, _ANSWER, "natsctl srv check message --stream ORDERS --subject ORDERS.new --age-warn 1h"
    ),
    verb("meta, raft", meta, _ANSWER, "natsctl server check meta --expect 3 --lag-critical 100 --seen-critical 10s"),
    verb(
        "request, req", request, _ANSWER, "natsctl server check request --subject orders.status --match-payload ready"
    ),
    verb("jetstream, js", jetstream, _ANSWER),
    verb("server", server, _ANSWER, "natsctl srv check server --js-required --format prometheus --outfile nats.prom"),
    verb("kv", kv, _ANSWER),
    verb(
        "deadletters, dlq", deadletters, _ANSWER, "natsctl server check deadletters --stream ORDERS --msgs-critical 100"
    ),
    verb("credential", credential, _ANSWER),
)
