"""`natsctl consumer copy`: a new consumer with the configuration of another."""

from __future__ import annotations

from typing import Annotated

import typer

from natsctl.cli.consumer.add import Ephemeral
from natsctl.cli.consumer.config import create_consumer, live_consumer, name_it
from natsctl.cli.consumer.flags import CONSUMER_COPY, settle
from natsctl.cli.documents import own_metadata
from natsctl.cli.flags import Given, apply, flagged
from natsctl.cli.options import IfNotExists, Json, session_of
from natsctl.cli.render.text import is_zero


@flagged(CONSUMER_COPY)
def copy(
    ctx: typer.Context,
    given: Given,
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="the stream of both consumers")],
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="the consumer whose configuration is copied")],
    destination: Annotated[str, typer.Argument(metavar="DESTINATION", help="the consumer to create")],
    ephemeral: Ephemeral = False,
    if_not_exists: IfNotExists = False,
    json: Json = False,
) -> None:
    """Create a consumer with the configuration of another, adjusted by flags; its position is not copied."""
    session = session_of(ctx)
    wanted = dict(live_consumer(session, stream, source).raw["config"])
    if "metadata" in wanted:
        wanted["metadata"] = own_metadata(wanted["metadata"])
    if is_zero(wanted.get("pause_until")):
        wanted.pop("pause_until", None)
    name_it(wanted, destination, ephemeral)
    apply(wanted, CONSUMER_COPY, given)
    settle(wanted, given)
    create_consumer(session, stream, wanted, if_not_exists=if_not_exists, json=json)
