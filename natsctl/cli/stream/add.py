"""`natsctl stream add`: a new stream from flags, a file or answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from natsctl.api.errors import UsageError
from natsctl.cli.flags import Config, Given, apply, flagged
from natsctl.cli.options import Config as ConfigFile
from natsctl.cli.options import Defaults, IfNotExists, Json, Output, StreamName, Validate, session_of
from natsctl.cli.stream.config import check_config, create_stream
from natsctl.cli.stream.flags import STREAM_ADD
from natsctl.client.assets.stream_defaults import new_stream

if TYPE_CHECKING:
    from natsctl.cli.session import Session


@flagged(STREAM_ADD)
def add(
    ctx: typer.Context,
    given: Given,
    stream: StreamName = None,
    config: ConfigFile = None,
    defaults: Defaults = False,
    validate: Validate = False,
    output_file: Output = None,
    if_not_exists: IfNotExists = False,
    json: Json = False,
) -> None:
    """Create a stream from flags, a file or answers; flags win over the file."""
    session = session_of(ctx)
    wanted = _from_file(stream, config, given) if config else _from_flags(session, stream, given, defaults)
    wanted = new_stream(wanted)
    if validate or output_file:
        check_config(wanted)
        from natsctl.api.stream import StreamConfig
        from natsctl.cli.documents import write_config

        write_config(wanted, StreamConfig, output_file)
        return
    create_stream(session, wanted, if_not_exists=if_not_exists, json=json)


def _from_file(name: str | None, path: str, given: Given) -> Config:
    from natsctl.api.stream import StreamConfig
    from natsctl.cli.documents import load_config

    wanted = load_config(path, StreamConfig, name)
    apply(wanted, STREAM_ADD, given)
    if name:
        wanted["name"] = name
    if not wanted.get("name"):
        raise UsageError(f"{path} has no name: give STREAM")
    return wanted


def _from_flags(session: Session, name: str | None, given: Given, defaults: bool) -> Config:
    asks = session.interactive and not defaults
    if not name:
        if not asks:
            raise UsageError("a name for the stream is needed: give STREAM, or --config FILE")
        from natsctl.cli.prompts.stream import prompt_stream_name

        name = prompt_stream_name()
    wanted: Config = {"name": name}
    apply(wanted, STREAM_ADD, given)
    check_config(wanted)
    if asks:
        from natsctl.cli.prompts.stream import prompt_stream

        account = session.run(lambda manager: manager.account_info()).value
        prompt_stream(wanted, given, account.limits.max_bytes_required)
    elif not (wanted.get("subjects") or wanted.get("mirror") or wanted.get("sources")):
        raise UsageError("subjects are needed: give --subjects, --mirror or --source")
    return wanted
