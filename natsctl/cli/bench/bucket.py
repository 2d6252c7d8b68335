"""`natsctl bench kv put` and `get`."""

from __future__ import annotations

import typer

from natsctl.cli.bench.flags import BUCKET, COMMON, HISTORY, KEYS, PACED, PATIENCE, PAUSE, PURGE, STORED
from natsctl.cli.bench.run import Csv, bench
from natsctl.cli.flags import Given, flagged
from natsctl.cli.options import Json, Progress


@flagged((*COMMON, *BUCKET, *KEYS, *PACED, *STORED, *HISTORY, *PURGE))
def put(ctx: typer.Context, given: Given, csv: Csv = None, progress: Progress = True, json: Json = False) -> None:
    """Put values into a bucket, which is made if it is not there."""
    bench(ctx, "kv put", given, csv=csv, progress=progress, json=json)


@flagged((*COMMON, *BUCKET, *KEYS, *PAUSE, *PATIENCE))
def get(ctx: typer.Context, given: Given, csv: Csv = None, progress: Progress = True, json: Json = False) -> None:
    """Get values from a bucket."""
    bench(ctx, "kv get", given, csv=csv, progress=progress, json=json)
