"""`natsctl consumer reset` and `unpin`: begin again from a sequence, and let another client be pinned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from natsctl.api.errors import UsageError
from natsctl.api.units import plural
from natsctl.cli import output
from natsctl.cli.consent import check_consent, confirmed, named
from natsctl.cli.consumer.config import live_consumer, show_info
from natsctl.cli.names import pick_consumer, pick_stream
from natsctl.cli.options import ConsumerName, Force, Json, StreamName, session_of
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from natsctl.cli.session import Session

PINNED = "pinned_client"


def reset(
    ctx: typer.Context,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    sequence: Annotated[
        int,
        typer.Option("--sequence", metavar="SEQ", help="stream sequence to deliver next", min=0, show_default=False),
    ] = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Deliver again from a stream sequence, or without --sequence everything after the ack floor."""
    session = session_of(ctx)
    check_consent(session, f"reset {named('Consumer', [consumer] if consumer else [])}", force)
    where = pick_stream(session, stream)
    name = pick_consumer(session, where, consumer)
    live = live_consumer(session, where, name).value
    target = f"stream sequence {sequence}" if sequence else f"its ack floor, {live.ack_floor.stream_seq}"
    session.effect.update(
        delivered_stream_seq=live.delivered.stream_seq,
        ack_floor_stream_seq=live.ack_floor.stream_seq,
        outstanding_acks_forgotten=live.num_ack_pending,
    )
    if session.interactive and not force and not session.dry_run:
        output.note(
            f"Consumer {safe(where)} > {safe(name)} has delivered up to stream sequence {live.delivered.stream_seq:,}, "
            f"{plural(live.num_ack_pending, 'outstanding ack')}"
        )
    question = f"reset Consumer {where} > {name} to {target}"
    if not confirmed(session, question, force):
        return
    answer = session.run(lambda manager: manager.consumer_reset(where, name, sequence))
    show_info(answer, json, state_only=True, done=f"Consumer {where} > {name} was reset to {target}")


def unpin(
    ctx: typer.Context,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    group: Annotated[str | None, typer.Argument(metavar="GROUP", help="the priority group", show_default=False)] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Unpin the client of a priority group, so that the next one that asks is pinned."""
    session = session_of(ctx)
    where = pick_stream(session, stream)
    name = pick_consumer(session, where, consumer)
    live = live_consumer(session, where, name).raw
    chosen, pinned = _group(session, live, group)
    session.effect.update(group=chosen, pinned_client=pinned or None)
    answer = session.run(lambda manager: manager.consumer_unpin(where, name, chosen))
    if json:
        output.emit_json(answer.raw)
        return
    what = f"Unpinned client {safe(pinned)} from" if pinned else "No client was pinned in"
    output.emit(f"{what} Priority Group {safe(where)} > {safe(name)} > {safe(chosen)}")


def _group(session: Session, live: Mapping[str, Any], given: str | None) -> tuple[str, str]:
    """The group that is meant, and who is pinned there: the one with a client, where none was given."""
    config = live["config"]
    groups = list(config.get("priority_groups") or ())
    if config.get("priority_policy") != PINNED:
        raise UsageError("the consumer pins no clients", hint="con add --pinned-groups makes one that does")
    pinned = {one["group"]: one.get("pinned_client_id") or "" for one in live.get("priority_groups") or ()}
    if given is not None:
        if given not in groups:
            raise UsageError(f"the consumer has no priority group {given}", hint=f"it has {', '.join(groups)}")
        return given, pinned.get(given, "")
    taken = [group for group in groups if pinned.get(group)] or groups
    if len(taken) == 1:
        return taken[0], pinned.get(taken[0], "")
    if not session.interactive:
        raise UsageError("the group is needed: give GROUP", hint=f"there are {', '.join(taken)}")
    from natsctl.cli.prompts.ask import prompt_name

    group = prompt_name("Select a Group", taken)
    return group, pinned.get(group, "")
