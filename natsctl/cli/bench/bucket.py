"""`natsctl bench kv put` and `get`."""

from __future__ import annotations

import typer

from natsctl.cli.bench.flags import BUCKET, COMMON, HISTORY, KEYS, PACED, PATIENCE, PAUSE, PURGE, STORED
from natsctl.cli.bench.run import Reported, bench
from natsctl.cli.flags import Given, flagged
from natsctl.cli.options import Force


@flagged((*COMMON, *BUCKET, *KEYS, *PACED, *STORED, *HISTORY, *PURGE))
def put(ctx: typer.Context, given: Given, reported: Reported, force: Force = False) -> None:
    """Put values into a bucket, which is made if it is not there."""
    bench(ctx, "kv put", given, reported, force=force)


@flagged((*COMMON, *BUCKET, *KEYS, *PAUSE, *PATIENCE))
def get(ctx: typer.Context, given: Given, reported: Reported) -> None:
    """Get values from a bucket."""
    bench(ctx, "kv get", given, reported)
