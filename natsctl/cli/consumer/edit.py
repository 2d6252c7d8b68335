"""`natsctl consumer edit`: changes what was asked, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from natsctl.api.config.update_losses import consumer_losses
from natsctl.api.consumer import ConsumerConfig
from natsctl.cli.consent import confirmed_edit
from natsctl.cli.consumer.config import live_consumer, show_info
from natsctl.cli.consumer.flags import CONSUMER_EDIT, settle
from natsctl.cli.editing import (
    NAMES,
    Edits,
    check_given,
    merged,
    preview_edit,
    show_differences,
    unset,
    without_server_metadata,
)
from natsctl.cli.flags import Config, Given, apply, flagged
from natsctl.cli.names import pick_consumer, pick_stream
from natsctl.cli.options import ConsumerName, Force, Json, StreamName, session_of
from natsctl.cli.render.change import changes
from natsctl.cli.render.text import is_zero
from natsctl.cli.taken import part_of, warn_unless_taken

if TYPE_CHECKING:
    from natsctl.cli.session import Session
    from natsctl.client.answer import Answer


@flagged(CONSUMER_EDIT)
def edit(
    ctx: typer.Context,
    given: Given,
    edits: Edits,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Change a consumer as the flags, the file or the editor say, and nothing else.

    A file is merged onto the configuration that the consumer has; with --replace it is the whole of it.
    """
    edits.check()
    session = session_of(ctx)
    named, patch = _patch(edits.config, stream, consumer)
    stream = pick_stream(session, stream or named)
    live = live_consumer(session, stream, pick_consumer(session, stream, consumer))
    check_given(session, edits.change(given), "give flags such as --max-deliver 5, --config FILE or --interactive")
    before = _plain(live.raw["config"])
    names = {key: value for key, value in before.items() if key in NAMES}
    wanted = {**patch, **names} if edits.replace else merged(before, patch)
    if edits.interactive:
        from natsctl.cli.editor import edit_config

        what = f"Consumer {stream} > {live.raw['name']}"
        wanted = {**edit_config(session, wanted, ConsumerConfig, what), **names}
    apply(wanted, CONSUMER_EDIT, given)
    gone = unset(wanted, edits.unset, CONSUMER_EDIT, ConsumerConfig)
    settle(wanted, given)
    _send(session, stream, live, wanted, gone, force=force, json=json)


def _send(
    session: Session, stream: str, live: Answer[Any], wanted: Config, gone: list[str], *, force: bool, json: bool
) -> None:
    """Show what differs, ask, and send the whole configuration."""
    name = live.raw["name"]
    found = changes(_plain(live.raw["config"]), wanted)

    def send() -> Answer[Any]:
        return session.run(lambda manager: manager.consumer_create(stream, wanted, action="update"))

    if session.dry_run:
        preview_edit(session, found, send, json=json)
        return
    if not found:
        show_info(live, json, done="No difference in configuration")
        return
    if session.interactive or not json:
        show_differences(found, f"Consumer {stream} > {name}")
    losses = consumer_losses(live.raw["config"], wanted, live.raw)
    if not confirmed_edit(session, f"edit Consumer {stream} > {name}", force, losses):
        return
    answer = send()
    show_info(answer, json, done=f"Consumer {stream} > {name} was updated")
    asked = part_of(wanted, (one.path for one in found if one.path not in gone))
    warn_unless_taken(asked, answer, json, emptied=True)


def _patch(path: str | None, stream: str | None, name: str | None) -> tuple[str | None, Config]:
    """The stream and what else the file says, without names: those of the command line say which consumer is meant."""
    if path is None:
        return None, {}
    from natsctl.cli.documents import config_in, load_document

    document = dict(load_document(path, "Consumer", name, stream))
    named = document.pop("stream", None) or document.get("stream_name")
    document.pop("stream_name", None)
    patch = config_in(document, path, ConsumerConfig)
    return named, {key: value for key, value in patch.items() if key not in NAMES}


def _plain(config: Config) -> Config:
    """The configuration without what the server writes anew into each answer: its metadata, and no pause at all."""
    rest = without_server_metadata(config)
    if is_zero(rest.get("pause_until")):
        rest.pop("pause_until", None)
    return rest
