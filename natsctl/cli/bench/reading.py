"""`natsctl bench js ordered`, `consume`, `fetch`, `get sync` and `get batch`."""

from __future__ import annotations

import typer

from natsctl.cli.bench.flags import BATCH, CONSUMER, FILTER, PURGE, READING
from natsctl.cli.bench.run import Reported, bench
from natsctl.cli.flags import Given, flagged
from natsctl.cli.options import Force


@flagged((*READING, *BATCH, *FILTER, *PURGE))
def ordered(ctx: typer.Context, given: Given, reported: Reported, force: Force = False) -> None:
    """Read a stream, each client all of it through a consumer of its own that needs no acks."""
    bench(ctx, "js ordered", given, reported, force=force)


@flagged((*READING, *CONSUMER, *BATCH, *FILTER, *PURGE))
def consume(ctx: typer.Context, given: Given, reported: Reported, force: Force = False) -> None:
    """Read through a durable consumer with pull requests that are renewed all the time; the clients share the messages.

    A consumer that is made for it is removed at the end; one that exists is used as it is, and stays.
    """
    bench(ctx, "js consume", given, reported, force=force)


@flagged((*READING, *CONSUMER, *BATCH, *FILTER, *PURGE))
def fetch(ctx: typer.Context, given: Given, reported: Reported, force: Force = False) -> None:
    """Read through a durable consumer, one batch after the other; the clients share the messages.

    A consumer that is made for it is removed at the end; one that exists is used as it is, and stays.
    """
    bench(ctx, "js fetch", given, reported, force=force)


@flagged(READING)
def get_sync(ctx: typer.Context, given: Given, reported: Reported) -> None:
    """Read messages with direct gets, each when the one before it has come."""
    bench(ctx, "js get sync", given, reported)


@flagged((*READING, *BATCH, *FILTER))
def get_batch(ctx: typer.Context, given: Given, reported: Reported) -> None:
    """Read messages with direct gets of many at once."""
    bench(ctx, "js get batch", given, reported)
