"""`natsctl stream import`: files as messages of a stream, through Spark."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natsctl.api.errors import NatsctlError, UsageError
from natsctl.api.units import plural
from natsctl.cli import output
from natsctl.cli.flags import flagged
from natsctl.cli.names import suggesting
from natsctl.cli.options import Json, session_of
from natsctl.cli.render.text import count, safe
from natsctl.cli.spark_flags import SparkFlags

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from natsctl.api.stream import StreamConfig
    from natsctl.cli.spark_work import Measured
    from natsctl.spark.loading.loading import Content

Ids = Annotated[
    str,
    typer.Option(
        "--ids", metavar="auto|seq|own", help="message ids: own (or STREAM:SEQ without one), STREAM:SEQ, own only"
    ),
]
Writers = Annotated[
    int, typer.Option("--writers", metavar="N", help="messages in flight; order is kept within subjects", min=1)
]


@flagged()
def load(
    ctx: typer.Context,
    spark: SparkFlags,
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="the stream")],
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="a file or folder, or a URL that Spark knows")],
    format: Annotated[
        str,
        typer.Option(
            "--format", metavar="parquet|json|csv|delta", help="[by the endings of files]", show_default=False
        ),
    ] = "",
    subject: Annotated[
        str,
        typer.Option("--subject", metavar="SUBJECT", help="for all messages, instead of their own", show_default=False),
    ] = "",
    as_json: Annotated[
        bool, typer.Option("--row-as-json", help="the payload is the row as JSON", show_default=False)
    ] = False,
    ids: Ids = "auto",
    writers: Writers = 1,
    json: Json = False,
) -> None:
    """Store what `stream export` wrote, or rows of other tables, in a stream.

    Messages keep their subjects, headers, payloads and order. Each has a message id, its own or where it was before
    (ORDERS:17), so that an import again stores nothing twice within the stream's duplicate window. It stands behind the
    other headers, whose order is kept. Headers that servers obey, such as Nats-Expected-… and Nats-Rollup, are left out
    and counted; Nats-TTL and Nats-Schedule only where the stream takes none. With --dry-run the rows are counted.
    """
    from natsctl.spark.loading.headers import IDS, left_out
    from natsctl.spark.loading.source import source_of

    if ids not in IDS:
        raise UsageError(f"--ids: expected one of {', '.join(IDS)}, not {ids!r}")
    what = source_of(source, format, subject, as_json=as_json)
    session = session_of(ctx)
    with suggesting(session, stream):
        before = session.run(lambda manager: manager.stream_info(stream)).value
    _check_open(before.config)
    left = left_out(before.config)

    from natsctl.cli.spark_work import run_on_spark

    def stored() -> int:
        state = session.run(lambda manager: manager.stream_info(stream)).value.state
        return state.last_seq - before.state.last_seq

    measured = Stored(stored)

    def work(opened: SparkSession, options: dict[str, str]) -> Content:
        from natsctl.client.preview import Previewed
        from natsctl.spark.loading.loading import check_subjects, look, messages, store, subjects_of
        from natsctl.spark.loading.source import read_once, read_rows

        with read_once(read_rows(opened, what), what.format) as rows:
            content = look(rows, before.config.subjects, left)
            check_subjects(stream, before.config.subjects, content)
            if session.dry_run:
                raise Previewed(effect=_effect(content, subjects_of(rows)))
            measured.total = content.messages
            repeated = content.has_repeated_ids
            store(messages(rows, ids, writers, left, has_repeated_ids=repeated), options, ids, _name(stream, source))
        return content

    content = run_on_spark(session, spark, work, what=f"Importing into Stream {stream}", measured=measured)
    _show(stream, content, stored(), json)


class Stored:
    """How many of `total` rows are stored, of which nothing is known before the first is."""

    def __init__(self, stored: Callable[[], int]) -> None:
        self._stored = stored
        self._done = self.total = 0

    def __call__(self) -> Measured | None:
        """The last that the server has said: that it cannot be asked now is nothing to end an import for."""
        from natsctl.cli.spark_work import Measured

        if self.total:
            with suppress(NatsctlError):
                self._done = self._stored()
        return Measured("messages", min(self._done, self.total), self.total) if self._done > 0 else None


def _check_open(config: StreamConfig) -> None:
    """Raises UsageError for a stream that takes no messages, or none with a payload."""
    if config.mirror is not None or config.sealed:
        why = "is a mirror" if config.mirror is not None else "is sealed"
        raise UsageError(f"Stream {config.name} {why}: it accepts no messages")
    if config.allow_msg_counter:
        raise UsageError(
            f"Stream {config.name} is a counter: it accepts increments only", hint="natsctl counter increment"
        )


def _name(stream: str, source: str) -> str:
    """What an import is called in the ids of rows that have none: the same for the same files."""
    return f"import-{hashlib.blake2b(f'{stream} {source}'.encode(), digest_size=8).hexdigest()}"


def _effect(content: Content, subjects: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "messages": content.messages,
        "bytes": content.bytes,
        "subjects": subjects,
        "left_out": content.left_out,
    }
    if content.first_seq is not None:
        found |= {"first_seq": content.first_seq, "last_seq": content.last_seq}
    return found


def _show(stream: str, content: Content, stored: int, json: bool) -> None:
    """Tell what was read and by how much the stream has grown, of which others may have a part."""
    known = max(content.messages - stored, 0)
    if json:
        counts = {"messages": content.messages, "stored": stored, "known": known}
        output.emit_json({"stream": stream, **counts, "left_out": content.left_out})
        return
    told = f", {count(known)} which it already had" if known else ""
    output.emit(f"Imported {plural(content.messages, 'message')} into Stream {safe(stream)}{told}")
    if content.left_out:
        named = ", ".join(f"{name} of {plural(number, 'message')}" for name, number in content.left_out.items())
        output.note(f"left out headers that the server would act on: {named}")
