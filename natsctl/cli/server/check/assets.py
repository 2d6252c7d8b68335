"""`natsctl server check` of what JetStream holds: stream, consumer, message, kv, and the account's JetStream."""

from __future__ import annotations

from typing import Annotated

import typer

from natsctl.cli.flags import Given, flagged
from natsctl.cli.options import Json
from natsctl.cli.server.check.flags import CONSUMER, JETSTREAM, KV, MESSAGE, OUT, STREAM
from natsctl.cli.server.check.run import readers, run_check
from natsctl.client.checks.check import Check

Stream = Annotated[str, typer.Option("--stream", metavar="STREAM", help="the stream", show_default=False)]


@flagged((*STREAM, *OUT))
def stream(ctx: typer.Context, given: Given, stream: Stream, json: Json = False) -> None:
    """Check a stream: messages, subjects, replicas, mirror and sources.

    Thresholds may stand in the stream's metadata, too, as io.nats.monitor.msgs-warn and so on.
    """
    from natsctl.client.checks.assets import check_stream

    read = readers(STREAM)
    run_check(
        ctx,
        given,
        json,
        Check("stream", stream),
        lambda manager, check, limits: check_stream(manager, check, limits, read),
    )


@flagged((*CONSUMER, *OUT))
def consumer(
    ctx: typer.Context,
    given: Given,
    stream: Stream,
    consumer: Annotated[str, typer.Option("--consumer", metavar="CONSUMER", help="the consumer", show_default=False)],
    json: Json = False,
) -> None:
    """Check a consumer: its backlog, and when it was last used.

    Thresholds may stand in the consumer's metadata, too, as io.nats.monitor.waiting-critical and so on.
    """
    from natsctl.client.checks.assets import check_consumer

    read = readers(CONSUMER)
    check = Check("consumer", f"{stream}_{consumer}")
    run_check(
        ctx,
        given,
        json,
        check,
        lambda manager, check, limits: check_consumer(manager, check, stream, consumer, limits, read),
    )


@flagged((*MESSAGE, *OUT))
def message(ctx: typer.Context, given: Given, stream: Stream, json: Json = False) -> None:
    """Check the newest message of a stream or of a subject: its age and body."""
    from natsctl.client.checks.assets import check_message

    check = Check("message", "Stream Message")
    run_check(ctx, given, json, check, lambda manager, check, limits: check_message(manager, check, stream, limits))


@flagged((*JETSTREAM, *OUT))
def jetstream(ctx: typer.Context, given: Given, json: Json = False) -> None:
    """Check the account's use of its JetStream limits, and the replicas of its streams."""
    from natsctl.client.checks.servers import check_jetstream

    run_check(ctx, given, json, Check("jetstream", "JetStream"), check_jetstream)


@flagged((*KV, *OUT))
def kv(
    ctx: typer.Context,
    given: Given,
    bucket: Annotated[str, typer.Option("--bucket", metavar="BUCKET", help="the bucket", show_default=False)],
    json: Json = False,
) -> None:
    """Check a key-value bucket: that it is there, its values, a key."""
    from natsctl.client.checks.assets import check_kv

    check = Check("kv", bucket)
    run_check(ctx, given, json, check, lambda manager, check, limits: check_kv(manager, check, bucket, limits))
