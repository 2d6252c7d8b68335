"""Changes of a stream's configuration: `natsctl stream edit` and `seal`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from natsctl.api.stream import StreamConfig
from natsctl.api.units import plural
from natsctl.api.update_losses import messages_lost, stream_losses
from natsctl.cli.assets import (
    AssetEdit,
    Edits,
    check_given,
    load_config,
    own_metadata,
    show_outcome,
    without_server_metadata,
)
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import check_consent, confirmed, named
from natsctl.cli.framework.flags import Config, Force, Given, Json, StreamName, flagged
from natsctl.cli.framework.resolve import live_stream, pick_stream
from natsctl.cli.framework.session import Session
from natsctl.cli.render.change import changes
from natsctl.cli.render.text import safe
from natsctl.cli.stream.create import MEANINGS, STREAM_EDIT, check_config
from natsctl.cli.stream.info import bucket_named, show_info, warn_of_bucket
from natsctl.client.asset_config import settled

if TYPE_CHECKING:
    from natsctl.client.requests import Answer


@flagged(STREAM_EDIT)
def edit(
    session: Session,
    given: Given,
    edits: Edits,
    stream: StreamName = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Edit a stream.

    A file with a `name` is the whole configuration: fields that it leaves out take their defaults. A file without a
    name is merged into the configuration that the stream has, unless with --replace.
    """
    edits.check()
    name = pick_stream(session, stream)
    live = live_stream(session, name)
    check_given(session, edits.change(given), "give flags such as --max-age 30d, --config FILE or --interactive")
    patch = load_config(edits.config, StreamConfig) if edits.config else {}
    before = live.raw["config"]
    wanted, _ = edits.applied(session, before, patch, given, STREAM_EDIT, StreamConfig, f"Stream {name}", MEANINGS)
    _send(session, live, settled(before, wanted), force=force, json=json)


def _send(session: Session, live: Answer[Any], wanted: Config, *, force: bool, json: bool) -> None:
    name, before = str(wanted["name"]), live.raw["config"]
    differences = changes(without_server_metadata(before), without_server_metadata(wanted))
    check_config(wanted)
    losses = stream_losses(before, wanted, live.raw["state"], time.time_ns())
    if session.dry_run and (lost := messages_lost(losses)):
        session.effect["messages_removed"] = lost
    if differences:
        warn_of_bucket(name, json=json or session.dry_run)
    edit = AssetEdit(
        f"Stream {name}",
        differences,
        losses,
        lambda manager: manager.stream_update(without_server_metadata(wanted)),
        lambda answer, line: show_outcome(answer, json, line),
        typed=name if bucket_named(name) else "",
    )
    edit.send(session, live, wanted, force=force, json=json)


def seal(session: Session, stream: StreamName = None, force: Force = False, json: Json = False) -> None:
    """Seal a stream permanently: nothing can be stored, removed or changed any more."""
    check_consent(session, f"seal {named('Stream', [stream] if stream else [])}", force)
    name = pick_stream(session, stream)
    live = live_stream(session, name)
    if live.value.config.sealed:
        show_info(live, json, f"Stream {name} is sealed already")
        return
    state = live.value.state
    session.effect["messages_kept_for_ever"] = state.messages
    if not (json or force or session.dry_run):
        output.note(
            f"Stream {safe(name)} holds {plural(state.messages, 'message')}; a sealed stream cannot be unsealed"
        )
    warn_of_bucket(name, json=json or session.dry_run)
    if not confirmed(session, f"seal Stream {name}", force, typed=name):
        return
    wanted = {**live.raw["config"], "sealed": True}
    if "metadata" in wanted:
        wanted["metadata"] = own_metadata(wanted["metadata"])
    answer = session.ask(lambda manager: manager.stream_update(wanted), changes=True)
    show_info(answer, json)
