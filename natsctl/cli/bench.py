"""Benchmarks of a server: `natsctl bench`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from natsctl.api.errors import UsageError, file_errors
from natsctl.api.units import plural
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import check_consent, confirmed
from natsctl.cli.framework.flags import (
    DURATION,
    ON,
    PAIRS,
    SIZE,
    SUBJECTS,
    SWITCH,
    TEXT,
    WHOLE,
    Flag,
    FlagKind,
    Force,
    Given,
    Json,
    Progress,
    choice,
    flagged,
)
from natsctl.cli.framework.live import Tracker, progress
from natsctl.cli.framework.parameters import Argument, Option, as_usage_error
from natsctl.cli.framework.resolve import suggesting
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import Verb, verb
from natsctl.cli.messaging.bodies import check_target
from natsctl.cli.render.measurements import render_clients, render_report
from natsctl.cli.render.text import safe
from natsctl.client.bench.load import DEFAULT_BUCKET, DEFAULT_CONSUMER, DEFAULT_STREAM, Load

if TYPE_CHECKING:
    from natsctl.client.bench.report import Report
    from natsctl.client.manager import Manager


REPORT = "client.bench.report:Report"


def _file(path: str) -> bytes:
    with file_errors(path, ValueError):
        return Path(path).read_bytes()


COMMON = (
    Flag("--clients", WHOLE, "clients", "number of clients, each with its own connection", default="1"),
    Flag("--msgs", WHOLE, "msgs", "how many messages", default="100000"),
    Flag("--size", SIZE, "size", "size of each message", default="128B"),
)
SENT = (
    Flag(
        "--payload",
        FlagKind("FILE", _file),
        "payload",
        "a file with the body of every message, instead of --size",
    ),
    Flag("--header", PAIRS.named("KEY:VALUE"), "headers", "a header for every message", aliases=("-H",)),
)
PACED = (
    Flag("--sleep", DURATION, "sleep_ns", "pause after each message"),
    Flag("--throughput", WHOLE, "throughput", "messages per second over all clients", default="as many as possible"),
    Flag("--duration", DURATION, "duration_ns", "with --throughput: how long, instead of how many messages"),
)
PAUSE = PACED[:1]
PATIENCE = (Flag("--wait", DURATION, "wait_ns", "fail when no message arrives for this long", default="the --timeout"),)
CORE_PATIENCE = (
    Flag(
        "--wait", DURATION, "wait_ns", "fail when no message arrives for this long", default="10s after the first one"
    ),
)
MANY_SUBJECTS = (
    Flag("--multisubject", ON, "multisubject", "publish to SUBJECT.0, SUBJECT.1 and so on"),
    Flag("--multisubjectmax", WHOLE, "multisubjectmax", "how many subjects, 0 for no limit", default="100000"),
    Flag("--multisubjectrandomize", ON, "multisubjectrandomize", "choose the subjects at random"),
)
MANY_READ = (Flag("--multisubject", ON, "multisubject", "subscribe to SUBJECT.*"),)
STREAM = (Flag("--stream", TEXT.named("NAME"), "stream", "name of the stream", default=DEFAULT_STREAM),)
PURGE = (Flag("--purge", ON, "purge", "purge the stream first"),)
STORED = (
    Flag("--storage", choice("file", "memory"), "storage", "storage of a stream that is created", default="file"),
    Flag("--replicas", WHOLE, "replicas", "replicas of a stream that is created", default="1"),
    Flag("--maxbytes", SIZE, "maxbytes", "size limit of a stream that is created", default="1GB"),
)
CREATED = (
    Flag("--create", ON, "create", "create the stream, or update one that a benchmark created"),
    *STORED,
    Flag("--dedup", ON, "dedup", "give every message an id for deduplication"),
    Flag("--dedupwindow", DURATION, "dedupwindow_ns", "duplicate window of a stream that is created", default="2m"),
    Flag("--persistasync", ON, "persistasync", "a stream that is created may ack before it writes"),
)
BATCH = (Flag("--batch", WHOLE, "batch", "messages in a batch, or in flight at once", default="500"),)
FLOW = (Flag("--max-outstanding-acks", WHOLE, "max_outstanding_acks", "max outstanding acks", default="1"),)
FILTER = (Flag("--filter", SUBJECTS, "filter", "read these subjects only"),)
CONSUMER = (
    Flag("--consumer", TEXT.named("NAME"), "consumer", "the durable consumer", default=DEFAULT_CONSUMER),
    Flag(
        "--acks",
        choice("explicit", "all", "none"),
        "acks",
        "ack policy of a consumer that is created",
        default="explicit",
    ),
    Flag("--doubleack", SWITCH, "doubleack", "count a message once the server has confirmed its ack"),
)
BUCKET = (Flag("--bucket", TEXT.named("NAME"), "bucket", "name of the bucket", default=DEFAULT_BUCKET),)
KEYS = (Flag("--randomize", WHOLE, "randomize", "use random keys below N", default="0: in sequence"),)
HISTORY = (Flag("--history", WHOLE, "history", "history of a bucket that is created", default="1"),)

PUBLISHING = (*COMMON, *SENT, *PACED, *MANY_SUBJECTS)
STORING = (*PUBLISHING, *STREAM, *CREATED, *PURGE)
READING = (*COMMON, *STREAM, *PATIENCE)
FIELDS = {
    flag.name: str(flag.to)
    for flag in (*STORING, *READING, *BATCH, *FLOW, *FILTER, *CONSUMER, *BUCKET, *KEYS, *HISTORY)
}


Subject = Annotated[str, Argument(metavar="SUBJECT", help="the subject")]


class Reported(NamedTuple):
    """Output of a benchmark: a bundle of flags for commands."""

    csv: Annotated[str | None, Option("--csv", metavar="FILE", help="write a line for each client to this file")] = None
    progress: Progress = True
    json: Json = False


def bench(
    session: Session, kind: str, given: Given, reported: Reported, *, subject: str = "", force: bool = False
) -> None:
    load = load_of(kind, given, subject)
    csv, progress, json = reported
    if csv is not None and not Path(csv).absolute().parent.is_dir():
        raise UsageError(f"--csv: {csv}: there is no such folder")
    if load.purge and not _may_purge(session, load, force):
        return
    report = session.run(lambda manager: _measured(manager, load, quiet=json or not progress, json=json))
    if csv is not None:
        _write(csv, report)
    if json:
        output.emit_json(report)
        return
    output.show_page(render_report(report))
    if report.clients > 1:
        output.emit("")
        output.show_table(render_clients(report))


def load_of(kind: str, given: Given, subject: str) -> Load:
    fields: dict[str, Any] = {"kind": kind}
    for name, value in given.items():
        fields[FIELDS[name]] = tuple(value) if isinstance(value, list) else value
    if subject:
        if kind != "sub":
            check_target(subject)
        fields["subject"] = subject
    load = Load(**fields)
    load.check()
    return load


def _may_purge(session: Session, load: Load, force: bool) -> bool:
    """Return whether to purge; the user must confirm it for a stream that was not created for benchmarks."""
    if load.stream_name in (DEFAULT_STREAM, f"KV_{DEFAULT_BUCKET}"):
        return True
    check_consent(session, f"purge Stream {load.stream_name}", force)
    with suggesting(session, load.stream_name):
        messages = session.run(lambda manager: manager.stream_info(load.stream_name)).value.state.messages
    question = f"purge {plural(messages, 'message')} of Stream {load.stream_name}"
    return confirmed(session, question, force, typed=load.stream_name)


async def _measured(manager: Manager, load: Load, *, quiet: bool, json: bool) -> Report:
    from natsctl.client.bench.benchmark import measure, prepared

    async with prepared(manager, load) as lines:
        for line in () if json else lines:
            output.log(safe(line))
        with contextlib.ExitStack() as stack:
            trackers: list[Tracker] = []

            def watch(done: int) -> None:
                if not trackers:  # rates and remaining time count from the first message
                    trackers.append(stack.enter_context(progress(load.kind, load.total, "messages", quiet=quiet)))
                trackers[0].at(done)

            return await measure(manager.connection.target, load, watch)


def _write(path: str, report: Report) -> None:
    from natsctl.client.bench.report import csv_text

    with as_usage_error(f"--csv: {path}"):
        Path(path).write_text(csv_text(report))


@flagged((*COMMON, *BUCKET, *KEYS, *PACED, *STORED, *HISTORY, *PURGE))
def put(session: Session, given: Given, reported: Reported, force: Force = False) -> None:
    """Put values into a bucket that exists; without --bucket into one that is created, and stays."""
    bench(session, "kv put", given, reported, force=force)


@flagged((*COMMON, *BUCKET, *KEYS, *PAUSE, *PATIENCE))
def get(session: Session, given: Given, reported: Reported) -> None:
    """Get values from a bucket."""
    bench(session, "kv get", given, reported)


@flagged(PUBLISHING)
def pub(session: Session, subject: Subject, given: Given, reported: Reported) -> None:
    """Publish messages as quickly as the server reads them.

    The clock stops when the server has read the last one. Messages go out in blocks of about 64 KiB, so that one client
    keeps most servers busy; no latency is measured, because no message is answered.
    """
    bench(session, "pub", given, reported, subject=subject)


@flagged((*COMMON, *MANY_READ, *CORE_PATIENCE))
def sub(session: Session, subject: Subject, given: Given, reported: Reported) -> None:
    """Receive messages, each client all of them.

    The clock runs from the first message to the last. One client takes some hundred thousand messages per second;
    beyond that the client itself is measured, and the server may cut it off as a slow consumer.
    """
    bench(session, "sub", given, reported, subject=subject)


@flagged((*COMMON, *SENT, *PACED, *PATIENCE))
def request(session: Session, subject: Subject, given: Given, reported: Reported) -> None:
    """Send requests, each when the one before it was answered."""
    bench(session, "service request", given, reported, subject=subject)


@flagged((*COMMON, *PAUSE, *CORE_PATIENCE))
def serve(session: Session, subject: Subject, given: Given, reported: Reported) -> None:
    """Answer --msgs requests, shared by the clients."""
    bench(session, "service serve", given, reported, subject=subject)


@flagged((*READING, *BATCH, *FILTER, *PURGE))
def ordered(session: Session, given: Given, reported: Reported, force: Force = False) -> None:
    """Read a stream, each client all of it through a consumer of its own that needs no acks."""
    bench(session, "js ordered", given, reported, force=force)


@flagged((*READING, *CONSUMER, *BATCH, *FILTER, *PURGE))
def consume(session: Session, given: Given, reported: Reported, force: Force = False) -> None:
    """Read through a durable consumer with continuous pull requests; the clients share the messages.

    A consumer that it creates is removed at the end; one that exists is used as it is, and stays.
    """
    bench(session, "js consume", given, reported, force=force)


@flagged((*READING, *CONSUMER, *BATCH, *FILTER, *PURGE))
def fetch(session: Session, given: Given, reported: Reported, force: Force = False) -> None:
    """Read through a durable consumer, one batch after the other; the clients share the messages.

    A consumer that it creates is removed at the end; one that exists is used as it is, and stays.
    """
    bench(session, "js fetch", given, reported, force=force)


@flagged(READING)
def get_sync(session: Session, given: Given, reported: Reported) -> None:
    """Read messages with direct gets, one at a time."""
    bench(session, "js get sync", given, reported)


@flagged((*READING, *BATCH, *FILTER))
def get_batch(session: Session, given: Given, reported: Reported) -> None:
    """Read messages with direct gets in batches."""
    bench(session, "js get batch", given, reported)


@flagged(STORING)
def sync(session: Session, subject: Subject, given: Given, reported: Reported, force: Force = False) -> None:
    """Publish to a stream, each message when the one before it was acked."""
    bench(session, "js pub sync", given, reported, subject=subject, force=force)


@flagged((*STORING, *BATCH))
def asynchronous(session: Session, subject: Subject, given: Given, reported: Reported, force: Force = False) -> None:
    """Publish to a stream in batches, each after the acks of the one before."""
    bench(session, "js pub async", given, reported, subject=subject, force=force)


@flagged((*STORING, *BATCH))
def atomic(session: Session, subject: Subject, given: Given, reported: Reported, force: Force = False) -> None:
    """Publish to a stream in batches that are stored as a whole or not at all, of up to 1000 messages."""
    bench(session, "js pub atomic", given, reported, subject=subject, force=force)


@flagged((*STORING, *BATCH, *FLOW))
def fast(session: Session, subject: Subject, given: Given, reported: Reported, force: Force = False) -> None:
    """Publish to a stream in one batch for each client, with an ack for every --batch messages."""
    bench(session, "js pub fast", given, reported, subject=subject, force=force)


OLD_READING = (*COMMON, *STREAM, *PAUSE, *PATIENCE)
_OLD_ACKS = (
    Flag("--ack", SWITCH, "ack", "acknowledge each message", default="on"),
    Flag("--doubleack", SWITCH, "doubleack", "count a message once the server has confirmed its ack"),
)


def _as_today(given: Given, subject: str) -> Given:
    """Return the flags of `bench js` that measure the same as these of `bench oldjs`."""
    renamed = dict(given)
    if renamed.pop("--ack", True) is False:
        renamed["--acks"] = "none"
    if "--maxacks" in renamed:
        renamed["--batch"] = renamed.pop("--maxacks")
    renamed["--filter"] = [f"{subject}.*" if renamed.pop("--multisubject", False) else subject]
    return renamed


@flagged((*OLD_READING, *MANY_READ))
def old_ordered(session: Session, subject: Subject, given: Given, reported: Reported) -> None:
    """Read the messages on SUBJECT as `bench js ordered` does."""
    bench(session, "js ordered", _as_today(given, subject), reported)


@flagged(
    (
        *OLD_READING,
        *CONSUMER[:1],
        Flag("--maxacks", WHOLE, "batch", "messages in flight at once", default="500"),
        *_OLD_ACKS,
    )
)
def old_push(session: Session, subject: Subject, given: Given, reported: Reported) -> None:
    """Read the messages on SUBJECT as `bench js consume` does."""
    bench(session, "js consume", _as_today(given, subject), reported)


@flagged((*OLD_READING, *CONSUMER[:1], *BATCH, *_OLD_ACKS))
def old_pull(session: Session, subject: Subject, given: Given, reported: Reported) -> None:
    """Read the messages on SUBJECT as `bench js fetch` does."""
    bench(session, "js fetch", _as_today(given, subject), reported)


GET_VERBS = (
    verb("sync", get_sync, REPORT, "natsctl bench js get sync --msgs 10000"),
    verb("batch", get_batch, REPORT, "natsctl bench js get batch --msgs 10000"),
)

PUBLISH_VERBS = (
    verb("sync", sync, REPORT, "natsctl bench js pub sync test.load --create --msgs 10000"),
    verb("async", asynchronous, REPORT, "natsctl bench js pub async test.load --create --batch 500 --clients 2"),
    verb("atomic, batch", atomic, REPORT, "natsctl bench js pub atomic test.load --create --batch 1000"),
    verb("fast", fast, REPORT, "natsctl bench js pub fast test.load --create --max-outstanding-acks 2"),
)

JETSTREAM_VERBS = (
    Verb("pub", PUBLISH_VERBS, "Publish to a stream"),
    verb("ordered", ordered, REPORT, "natsctl bench js ordered --msgs 10000"),
    verb("consume", consume, REPORT, "natsctl bench js consume --msgs 10000 --clients 2 --acks all"),
    verb("fetch", fetch, REPORT, "natsctl bench js fetch --batch 100 --doubleack"),
    Verb("get", GET_VERBS, "Read a stream without a consumer"),
)

OLD_VERBS = (
    verb("ordered", old_ordered, REPORT, "natsctl bench oldjs ordered 'test.>' --msgs 10000"),
    verb("push", old_push, REPORT, "natsctl bench oldjs push test.load --msgs 10000"),
    verb("pull", old_pull, REPORT, "natsctl bench oldjs pull test.load --msgs 10000 --no-ack"),
)

BUCKET_VERBS = (
    verb("put", put, REPORT, "natsctl bench kv put --msgs 10000 --randomize 1000"),
    verb("get", get, REPORT, "natsctl bench kv get --msgs 10000 --randomize 1000"),
)

SERVICE_VERBS = (
    verb("request, req", request, REPORT, "natsctl bench service request test.service --msgs 10000 --clients 2"),
    verb("serve", serve, REPORT, "natsctl bench service serve test.service"),
)

VERBS = (
    verb("pub", pub, REPORT, "natsctl bench pub test.load --msgs 1000000 --size 512B --clients 2"),
    verb("sub", sub, REPORT, "natsctl bench sub test.load --msgs 1000000"),
    Verb("service", SERVICE_VERBS, "Requests, and a service that answers them"),
    Verb("js", JETSTREAM_VERBS, "Publish to streams, read from them"),
    Verb("kv", BUCKET_VERBS, "Put into buckets, get from them"),
    Verb("oldjs", OLD_VERBS, "Read from streams, as older scripts do: use js"),
)
