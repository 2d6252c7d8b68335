"""`natsctl stream copy`: a new stream with the configuration of another."""

from __future__ import annotations

from typing import Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli.documents import own_metadata
from natsctl.cli.flags import Given, apply, flagged
from natsctl.cli.names import suggesting
from natsctl.cli.options import IfNotExists, Json, session_of
from natsctl.cli.stream.config import create_stream
from natsctl.cli.stream.flags import STREAM_COPY

NOT_COPIED = ("sealed", "template_owner")
"""Fields that a new stream can not begin with."""


@flagged(STREAM_COPY)
def copy(
    ctx: typer.Context,
    given: Given,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="the stream whose configuration is copied")],
    destination: Annotated[str, typer.Argument(metavar="DESTINATION", help="the stream to create")],
    if_not_exists: IfNotExists = False,
    json: Json = False,
) -> None:
    """Create a stream with the configuration of another, adjusted by flags; messages are not copied."""
    session = session_of(ctx)
    with suggesting(session, source):
        live = session.run(lambda manager: manager.stream_info(source))
    wanted = {key: value for key, value in live.raw["config"].items() if key not in NOT_COPIED}
    if "metadata" in wanted:
        wanted["metadata"] = own_metadata(wanted["metadata"])
    apply(wanted, STREAM_COPY, given)
    wanted["name"] = destination
    if wanted.get("subjects") and "--subjects" not in given:
        raise UsageError(
            f"{destination} cannot store the same subjects as {source}", hint="give --subjects for the copy"
        )
    create_stream(session, wanted, if_not_exists=if_not_exists, json=json)
