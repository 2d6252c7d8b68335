"""`natsctl stream edit`: changes what was asked, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from natsctl.api.stream import StreamConfig
from natsctl.cli import output
from natsctl.cli.editing import Edits, merged, preview_edit, show_differences, unset, without_server_metadata
from natsctl.cli.flags import Config, Given, apply, flagged
from natsctl.cli.names import confirmed, pick_stream, suggesting
from natsctl.cli.options import Force, Json, StreamName, session_of
from natsctl.cli.render.change import Change, changes
from natsctl.cli.stream.bucket import bucket_named, warn_of_bucket
from natsctl.cli.stream.config import check_config, show_info
from natsctl.cli.stream.flags import MEANINGS, STREAM_EDIT
from natsctl.cli.taken import part_of, warn_unless_taken
from natsctl.client.assets.stream_defaults import settled

if TYPE_CHECKING:
    from natsctl.cli.session import Session
    from natsctl.client.answer import Answer


@flagged(STREAM_EDIT)
def edit(
    ctx: typer.Context,
    given: Given,
    edits: Edits,
    stream: StreamName = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Change what the flags, the file or the editor say about a stream, and nothing else.

    A file is merged onto the configuration that the stream has; with --replace it is the whole of it.
    """
    edits.check()
    session = session_of(ctx)
    name = pick_stream(session, stream)
    with suggesting(session, name):
        live = session.run(lambda manager: manager.stream_info(name))
    wanted = _base(live.raw["config"], name, edits.config, edits.replace)
    if edits.interactive:
        wanted = edit_in_editor(session, wanted, name)
    apply(wanted, STREAM_EDIT, given)
    unset(wanted, edits.unset, STREAM_EDIT, StreamConfig)
    _send(session, live, settled(live.raw["config"], wanted), force=force, json=json)


def edit_in_editor(session: Session, config: Config, name: str) -> Config:
    """The configuration as the person left it in the editor."""
    from natsctl.cli.editor import edit_config

    return {**edit_config(session, config, StreamConfig, f"Stream {name}", MEANINGS), "name": name}


def _base(live: Config, name: str, path: str | None, replace: bool) -> Config:
    """The configuration that flags then change; fields unknown to us stay in it."""
    if path is None:
        return dict(live)
    from natsctl.cli.documents import load_config

    patch = {**load_config(path, StreamConfig, name), "name": name}
    return patch if replace else merged(live, patch)


def _send(session: Session, live: Answer[Any], wanted: Config, *, force: bool, json: bool) -> None:
    """Show what differs, ask, and send the whole configuration."""
    name = str(wanted["name"])
    found = changes(without_server_metadata(live.raw["config"]), without_server_metadata(wanted))
    check_config(wanted)
    effect = _effect(live, wanted)

    def send() -> Answer[Any]:
        return session.run(lambda manager: manager.stream_update(without_server_metadata(wanted)))

    if session.dry_run:
        session.effect.update(effect)
        preview_edit(session, found, send, json=json)
        return
    if not found:
        show_info(live, json, "No difference in configuration")
        return
    if session.interactive or not json:
        show_differences(found, f"Stream {name}")
        if effect:
            output.note(f"warning: this removes about {effect['messages_removed']:,} messages")
    warn_of_bucket(name, json=json)
    typed = name if bucket_named(name) else ""
    if not confirmed(session, f"edit Stream {name}", force, needs_force=False, json=json, typed=typed):
        return
    answer = send()
    show_info(answer, json, f"Stream {name} was updated")
    warn_unless_taken(part_of(wanted, _paths(found)), answer, json, emptied=True)


def _paths(found: list[Change]) -> list[str]:
    return [one.path for one in found]


def _effect(live: Answer[Any], wanted: Config) -> dict[str, int]:
    """How many messages a lower limit would remove, where the state tells."""
    state = live.value.state
    most, most_bytes = int(wanted.get("max_msgs", -1)), int(wanted.get("max_bytes", -1))
    gone = max(0, state.messages - most) if most >= 0 else 0
    if 0 <= most_bytes < state.bytes:
        gone = max(gone, state.messages * (state.bytes - most_bytes) // state.bytes)
    return {"messages_removed": gone} if gone else {}
