"""`natsctl bench js pub sync`, `async`, `atomic` and `fast`."""

from __future__ import annotations

import typer

from natsctl.cli.bench.flags import BATCH, FLOW, STORING
from natsctl.cli.bench.run import Reported, Subject, bench
from natsctl.cli.flags import Given, flagged
from natsctl.cli.options import Force


@flagged(STORING)
def sync(ctx: typer.Context, subject: Subject, given: Given, reported: Reported, force: Force = False) -> None:
    """Publish to a stream, each message when the one before it was acked."""
    bench(ctx, "js pub sync", given, reported, subject=subject, force=force)


@flagged((*STORING, *BATCH))
def asynchronous(ctx: typer.Context, subject: Subject, given: Given, reported: Reported, force: Force = False) -> None:
    """Publish to a stream, a batch of messages before all their acks are waited for."""
    bench(ctx, "js pub async", given, reported, subject=subject, force=force)


@flagged((*STORING, *BATCH))
def atomic(ctx: typer.Context, subject: Subject, given: Given, reported: Reported, force: Force = False) -> None:
    """Publish to a stream in batches that are stored as a whole or not at all, of up to 1000 messages."""
    bench(ctx, "js pub atomic", given, reported, subject=subject, force=force)


@flagged((*STORING, *BATCH, *FLOW))
def fast(ctx: typer.Context, subject: Subject, given: Given, reported: Reported, force: Force = False) -> None:
    """Publish to a stream in one batch for each client, with an ack for every --batch messages."""
    bench(ctx, "js pub fast", given, reported, subject=subject, force=force)
