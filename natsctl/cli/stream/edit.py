"""Changes of a stream's configuration: `natsctl stream edit` and `seal`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from natsctl.api.stream import StreamConfig
from natsctl.api.units import plural
from natsctl.api.update_losses import messages_lost, stream_losses
from natsctl.cli.documents import own_metadata
from natsctl.cli.editing import (
    Edits,
    check_given,
    merged,
    part_of,
    preview_edit,
    show_differences,
    show_outcome,
    unset,
    warn_unless_taken,
    without_server_metadata,
)
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import check_consent, confirmed, confirmed_edit, named
from natsctl.cli.framework.flags import Config, Force, Given, Json, StreamName, apply, flagged
from natsctl.cli.framework.resolve import pick_stream, suggesting
from natsctl.cli.framework.session import Session
from natsctl.cli.render.change import Change, changes
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
    """Change a stream as the flags, the file or the editor say, and nothing else.

    A file is merged onto the configuration that the stream has; with --replace it is the whole of it.
    """
    edits.check()
    name = pick_stream(session, stream)
    with suggesting(session, name):
        live = session.run(lambda manager: manager.stream_info(name))
    check_given(session, edits.change(given), "give flags such as --max-age 30d, --config FILE or --interactive")
    wanted = _base(live.raw["config"], name, edits.config, edits.replace)
    if edits.interactive:
        wanted = edit_in_editor(session, wanted, name)
    apply(wanted, STREAM_EDIT, given)
    unset(wanted, edits.unset, STREAM_EDIT, StreamConfig)
    _send(session, live, settled(live.raw["config"], wanted), force=force, json=json)


def edit_in_editor(session: Session, config: Config, name: str) -> Config:
    """Return the configuration after the user's edit."""
    from natsctl.cli.editing import edit_config

    return {**edit_config(session, config, StreamConfig, f"Stream {name}", MEANINGS), "name": name}


def _base(live: Config, name: str, path: str | None, replace: bool) -> Config:
    """Return the configuration before the flags are applied; unknown fields are kept."""
    if path is None:
        return dict(live)
    from natsctl.cli.documents import load_config

    patch = {**load_config(path, StreamConfig, name), "name": name}
    return patch if replace else merged(live, patch)


def _send(session: Session, live: Answer[Any], wanted: Config, *, force: bool, json: bool) -> None:
    """Show the differences, ask for confirmation, and send the whole configuration."""
    name = str(wanted["name"])
    found = changes(without_server_metadata(live.raw["config"]), without_server_metadata(wanted))
    check_config(wanted)
    losses = stream_losses(live.raw["config"], wanted, live.raw["state"], time.time_ns())

    def send() -> Answer[Any]:
        return session.run(lambda manager: manager.stream_update(without_server_metadata(wanted)))

    if session.dry_run:
        session.effect.update({"messages_removed": gone} if (gone := messages_lost(losses)) else {})
        preview_edit(session, found, send, json=json)
        return
    if not found:
        show_outcome(live, json, "No difference in configuration")
        return
    if session.interactive or not json:
        show_differences(found, f"Stream {name}", labelled=True)
    warn_of_bucket(name, json=json)
    typed = name if bucket_named(name) else ""
    if not confirmed_edit(session, f"edit Stream {name}", force, losses, typed=typed):
        return
    answer = send()
    show_outcome(answer, json, f"Stream {name} was updated")
    warn_unless_taken(part_of(wanted, _paths(found)), answer, json, emptied=True)


def _paths(found: list[Change]) -> list[str]:
    return [one.path for one in found]


def seal(session: Session, stream: StreamName = None, force: Force = False, json: Json = False) -> None:
    """Seal a stream permanently: nothing can be stored, removed or changed any more."""
    check_consent(session, f"seal {named('Stream', [stream] if stream else [])}", force)
    name = pick_stream(session, stream)
    with suggesting(session, name):
        live = session.run(lambda manager: manager.stream_info(name))
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
    answer = session.run(lambda manager: manager.stream_update(wanted))
    show_info(answer, json)
