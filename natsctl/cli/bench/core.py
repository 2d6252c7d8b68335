"""`natsctl bench pub`, `sub`, `service request` and `service serve`."""

from __future__ import annotations

import typer

from natsctl.cli.bench.flags import COMMON, CORE_PATIENCE, MANY_READ, PACED, PATIENCE, PAUSE, PUBLISHING, SENT
from natsctl.cli.bench.run import Reported, Subject, bench
from natsctl.cli.flags import Given, flagged


@flagged(PUBLISHING)
def pub(ctx: typer.Context, subject: Subject, given: Given, reported: Reported) -> None:
    """Publish messages as quickly as the server reads them.

    The clock stops when the server has read the last one. Messages go out in blocks of about 64 KiB, so that one client
    keeps most servers busy; no latency is measured, because no message is answered.
    """
    bench(ctx, "pub", given, reported, subject=subject)


@flagged((*COMMON, *MANY_READ, *CORE_PATIENCE))
def sub(ctx: typer.Context, subject: Subject, given: Given, reported: Reported) -> None:
    """Receive messages, each client all of them.

    The clock runs from the first message to the last. One client takes some hundred thousand messages per second;
    beyond that the client itself is measured, and the server may cut it off as a slow consumer.
    """
    bench(ctx, "sub", given, reported, subject=subject)


@flagged((*COMMON, *SENT, *PACED, *PATIENCE))
def request(ctx: typer.Context, subject: Subject, given: Given, reported: Reported) -> None:
    """Send requests, each when the one before it was answered."""
    bench(ctx, "service request", given, reported, subject=subject)


@flagged((*COMMON, *PAUSE, *CORE_PATIENCE))
def serve(ctx: typer.Context, subject: Subject, given: Given, reported: Reported) -> None:
    """Answer --msgs requests, which the clients share."""
    bench(ctx, "service serve", given, reported, subject=subject)
