"""`natsctl server watch api requests`: what is asked of JetStream's API, by subject."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natsctl.api.errors import UsageError
from natsctl.cli.flags import flagged
from natsctl.cli.options import session_of
from natsctl.cli.server.watch.show import Looks, Number, show_rows
from natsctl.cli.waiting import wait_seconds

if TYPE_CHECKING:
    from natsctl.client.manager import Manager
    from natsctl.client.subscription import Subscription
    from natsctl.client.system_rates import ApiCounts
    from natsctl.client.system_reports import Row

SUBJECT = "$JS.EVENT.ADVISORY.API"
LAST_WAIT_S = 0.05
"""Seconds without an advisory after which all that had come are read."""


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
    from natsctl.cli.render.server_watch import REQUESTS
    from natsctl.client.system_rates import ApiCounts

    try:
        wanted = re.compile(account)
    except re.error as failure:
        raise UsageError(f"--account: {failure}") from failure
    session = session_of(ctx)
    counts = ApiCounts(wait_seconds(rate, "--rate") or 60.0)
    subscription = session.run(lambda manager: _subscribe(manager))

    def look() -> list[Row]:
        session.run(lambda manager: _drain(subscription, counts, wanted))
        return counts.rows(time.monotonic())

    show_rows("JetStream API Requests", REQUESTS, look, looks, "requests", number)


async def _subscribe(manager: Manager) -> Subscription:
    subscription = await manager.connection.subscribe(manager.connection.target.event_subject(SUBJECT))
    await manager.connection.flush()
    return subscription


async def _drain(subscription: Subscription, counts: ApiCounts, wanted: re.Pattern[str]) -> None:
    from natsctl.client.answer import parse_object

    while (message := await subscription.next(LAST_WAIT_S)) is not None:
        advisory: dict[str, Any] = parse_object(message.body, SUBJECT)
        if wanted.search(str((advisory.get("client") or {}).get("acc") or "")):
            counts.add(advisory, time.monotonic())
