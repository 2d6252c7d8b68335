"""`natsctl consumer add`: a new consumer from flags, a file or answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.consumer import ConsumerConfig
from natsctl.api.errors import UsageError
from natsctl.cli.consumer.config import create_consumer, name_it
from natsctl.cli.consumer.flags import CONSUMER_ADD, settle
from natsctl.cli.flags import Config, Given, apply, flagged
from natsctl.cli.names import pick_stream
from natsctl.cli.options import Config as ConfigFile
from natsctl.cli.options import (
    ConsumerName,
    Defaults,
    IfNotExists,
    Json,
    Output,
    StreamName,
    Validate,
    session_of,
)

if TYPE_CHECKING:
    from natsctl.cli.session import Session

Ephemeral = Annotated[bool, typer.Option("--ephemeral", help="the server removes it when it is unused")]


@flagged(CONSUMER_ADD)
def add(
    ctx: typer.Context,
    given: Given,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    config: ConfigFile = None,
    ephemeral: Ephemeral = False,
    defaults: Defaults = False,
    validate: Validate = False,
    output_file: Output = None,
    if_not_exists: IfNotExists = False,
    json: Json = False,
) -> None:
    """Create a consumer from flags, a file or answers; flags win over the file, which may name the stream too.

    A consumer that exists with the same configuration is success, with another one a conflict: `consumer edit` changes.
    """
    session = session_of(ctx)
    written = validate or output_file is not None
    if config:
        named, wanted = from_file(config, stream, consumer, given, ephemeral)
        stream = stream or named
    elif not written:
        stream = pick_stream(session, stream)
    if not config:
        wanted = _from_flags(session, consumer, given, ephemeral, defaults)
    settle(wanted, given)
    if written:
        from natsctl.cli.documents import write_config

        write_config(wanted, ConsumerConfig, output_file)
        return
    create_consumer(session, pick_stream(session, stream), wanted, if_not_exists=if_not_exists, json=json)


def from_file(
    path: str, stream: str | None, name: str | None, given: Given, ephemeral: bool
) -> tuple[str | None, Config]:
    """The stream that the document names, if it does, and the configuration with the flags over it."""
    from natsctl.cli.documents import config_in, load_document

    document = dict(load_document(path, "Consumer", name, stream))
    said = [str(document.pop(key)) for key in ("stream_name", "stream") if document.get(key)]
    if len(set(said)) > 1:
        raise UsageError(f"{path}: stream_name and stream name different streams")
    wanted = config_in(document, path, ConsumerConfig)
    name = name or wanted.get("durable_name") or wanted.get("name") or document.get("name")
    if name:
        name_it(wanted, str(name), ephemeral or not (wanted.get("durable_name") or not wanted.get("name")))
    elif not ephemeral:
        raise UsageError(f"{path} has no consumer name: give CONSUMER")
    apply(wanted, CONSUMER_ADD, given)
    return (said[0] if said else None), wanted


def _from_flags(session: Session, name: str | None, given: Given, ephemeral: bool, defaults: bool) -> Config:
    asks = session.interactive and not defaults
    if not name and not ephemeral:
        if not asks:
            raise UsageError("a name for the consumer is needed: give CONSUMER, --ephemeral or --config FILE")
        from natsctl.cli.prompts.consumer import prompt_consumer_name

        name = prompt_consumer_name()
    wanted: Config = {}
    if name:
        name_it(wanted, name, ephemeral)
    apply(wanted, CONSUMER_ADD, given)
    if asks:
        from natsctl.cli.prompts.consumer import prompt_consumer

        prompt_consumer(wanted, given)
    push = bool(wanted.get("deliver_subject"))
    wanted.setdefault("ack_policy", "none" if push else "explicit")
    wanted.setdefault("deliver_policy", "all")
    wanted.setdefault("replay_policy", "instant")
    return {key: value for key, value in wanted.items() if value not in ("", None)}
