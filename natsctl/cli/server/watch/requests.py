"""`natsctl server watch api requests`: what is asked of JetStream's API, by subject."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli.flags import flagged
from natsctl.cli.options import session_of
from natsctl.cli.server.watch.show import Looks, Number, show_rows
from natsctl.cli.waiting import wait_seconds

if TYPE_CHECKING:
    from natsctl.client.system.reports import Row


@flagged()
def requests(
    ctx: typer.Context,
    looks: Looks,
    account: Annotated[
        str, typer.Option("--account", metavar="REGEX", help="only accounts that this matches", show_default=False)
    ] = "",
    rate: Annotated[str, typer.Option("--rate", metavar="DURATION", help="time over which rates are taken")] = "1m",
    number: Number = 10,
) -> None:
    """Watch requests to the JetStream API of the account that is logged in, the most frequent first."""
    from natsctl.cli.render.server_reports import WATCHED_REQUESTS
    from natsctl.client.system.rates import ApiCounts

    try:
        wanted = re.compile(account)
    except re.error as failure:
        raise UsageError(f"--account: {failure}") from failure
    session = session_of(ctx)
    counts = ApiCounts(wait_seconds(rate, "--rate") or 60.0, wanted)
    session.run(counts.listen)

    def look() -> list[Row]:
        session.run(lambda _: counts.take())
        return counts.rows(time.monotonic())

    show_rows("JetStream API Requests", WATCHED_REQUESTS, look, looks, "requests", number)
