"""The job that the driver gives the tasks of a write, their reports, and the driver's report made of these."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from natsctl.spark.source.acknowledged import Acknowledgement
from natsctl.spark.source.driver_settings import server_settings
from natsctl.spark.source.errors import OptionError
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.message_maker import Roles, write_roles
from natsctl.spark.source.messages import MessageIds
from natsctl.spark.source.publisher import PublishLimits
from natsctl.spark.source.source_options import Options, check_stream

Idempotence = Literal["ids", "ledger", "none"]


@dataclass(frozen=True)
class WriteJob:
    """One write, as all of its tasks know it."""

    settings: ServerSettings
    roles: Roles
    limits: PublishLimits
    stream: str
    """The only stream that may take the messages; empty: whichever listens to their subjects."""
    idempotence: Idempotence
    message_ids: MessageIds
    write_id: str = ""
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    """This attempt of the driver, with all of its tasks and their attempts."""


@dataclass
class WrittenMessages(WriterCommitMessage):
    """The messages that one task wrote."""

    messages: int = 0
    duplicates: int = 0
    """Messages among them that the server had stored before."""
    skipped: int = 0
    """Rows that the ledger showed to be stored; not among `messages`."""
    bytes: int = 0
    retries: int = 0
    first_seq: int = 0
    last_seq: int = 0
    stream: str = ""
    seconds: float = 0.0
    ledger_key: str = ""
    """The key of all that the ledger has of this write or batch, without the run and the partition."""
    warnings: tuple[str, ...] = ()
    acknowledgement: Acknowledgement = field(default_factory=Acknowledgement)


def write_job(given: Mapping[str, str], place: str, schema: StructType) -> WriteJob:
    """Return the job that options and schema ask for; raises OptionError."""
    options = Options(given, place)
    stream = _stream(options)
    idempotence: Idempotence = options["idempotence"]
    if idempotence == "ledger" and not stream:
        raise OptionError("idempotence=ledger needs the option stream: its messages are searched")
    write_id = (options["writeId"] or "") if place == "batch write" else ""
    if write_id and options["messageIds"] == "row":
        raise OptionError(
            "option writeId: with messageIds=row a job that is cut into other tasks would store rows twice, and lose "
            "others; leave out messageIds, or give rows ids of their own (msgIdColumn)"
        )
    return WriteJob(
        settings=server_settings(options),
        roles=write_roles(schema, options),
        limits=PublishLimits(options["window"], options["ackTimeout"]),
        stream=stream,
        idempotence=idempotence,
        message_ids=options["messageIds"],
        write_id=write_id,
    )


def _stream(options: Options) -> str:
    """Return the only stream that may store the messages; "" if their subjects decide."""
    said: tuple[str, ...] = options["stream"] or ()
    found = {*said, *filter(None, options.path.split(","))}
    if len(found) > 1:
        raise OptionError(
            f"a write has one stream, not {', '.join(sorted(found))}; without option stream and a name in save or "
            "start each message goes to the stream of its subject"
        )
    try:
        for name in found:
            check_stream(name)
    except ValueError as failure:
        raise OptionError(f"option stream: {failure}") from None
    return min(found, default="")


LOGGER = "natsctl.spark.jetstream"


def task_reports(messages: Sequence[WriterCommitMessage | None]) -> list[WrittenMessages | None]:
    """Return the reports of tasks; their class came by value, and is another one than the driver's."""
    return [WrittenMessages(**vars(message)) if message is not None else None for message in messages]


def total(parts: Sequence[WrittenMessages | None]) -> WrittenMessages:
    """Return the sums over tasks; failed tasks have reported nothing."""
    done = [part for part in parts if part is not None]
    return WrittenMessages(
        messages=sum(part.messages for part in done),
        duplicates=sum(part.duplicates for part in done),
        skipped=sum(part.skipped for part in done),
        bytes=sum(part.bytes for part in done),
        retries=sum(part.retries for part in done),
        first_seq=min((part.first_seq for part in done if part.first_seq), default=0),
        last_seq=max((part.last_seq for part in done), default=0),
        stream=",".join(sorted({part.stream for part in done if part.stream})),
        seconds=max((part.seconds for part in done), default=0.0),
        ledger_key=next((part.ledger_key for part in done if part.ledger_key), ""),
        warnings=tuple(dict.fromkeys(warning for part in done for warning in part.warnings)),
    )


def report(what: str, parts: Sequence[WrittenMessages | None], failed: bool = False) -> WrittenMessages:
    """Log the written messages and warnings; returns the sums."""
    log = logging.getLogger(LOGGER)
    sums = total(parts)
    text = f"{what}: {sums.messages} messages to {sums.stream or 'no stream'}"
    if sums.messages:
        text += f", sequences {sums.first_seq} to {sums.last_seq}, {sums.bytes} bytes in {sums.seconds:.1f} s"
    if sums.duplicates or sums.skipped:
        text += f"; {sums.duplicates + sums.skipped} of them were stored before"
    if sums.retries:
        text += f"; {sums.retries} times sent again"
    log.log(logging.WARNING if failed else logging.INFO, "%s%s", text, "; the write failed" if failed else "")
    for warning in sums.warnings:
        log.warning("%s: %s", what, warning)
    return sums
