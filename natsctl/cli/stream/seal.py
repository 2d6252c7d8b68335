"""`natsctl stream seal`: makes a stream unchangeable for ever."""

from __future__ import annotations

import typer

from natsctl.api.units import plural
from natsctl.cli import output
from natsctl.cli.consent import check_consent, confirmed, named
from natsctl.cli.documents import own_metadata
from natsctl.cli.names import pick_stream, suggesting
from natsctl.cli.options import Force, Json, StreamName, session_of
from natsctl.cli.render.text import safe
from natsctl.cli.stream.bucket import warn_of_bucket
from natsctl.cli.stream.config import show_info


def seal(ctx: typer.Context, stream: StreamName = None, force: Force = False, json: Json = False) -> None:
    """Seal a stream permanently: nothing can be stored, removed or changed any more."""
    session = session_of(ctx)
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
