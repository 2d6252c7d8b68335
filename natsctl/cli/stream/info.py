"""One stream: `natsctl stream info` and `state`, and the warning for streams of buckets."""

from __future__ import annotations

from natsctl.api.errors import ErrCode, UsageError
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Json, NoSelect, StreamName
from natsctl.cli.framework.parameters import Option
from natsctl.cli.framework.resolve import if_there, pick_stream, suggesting
from natsctl.cli.framework.session import Session
from natsctl.cli.render.text import safe
from natsctl.hints import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    from natsctl.client.requests import Answer


OWNERS = (
    ("KV_", "the key-value bucket {}", "natsctl kv"),
    ("OBJ_", "the object store {}", "natsctl object"),
    ("$MQTT_", "MQTT", ""),
)
"""Owner of streams with a prefix, and the commands that change them."""


def bucket_named(stream: str) -> str:
    return next((owner.format(stream[len(mark) :]) for mark, owner, _ in OWNERS if stream.startswith(mark)), "")


def warn_of_bucket(stream: str, *, json: bool = False) -> None:
    owner = bucket_named(stream)
    if not owner or json:
        return
    command = next(command for mark, _, command in OWNERS if stream.startswith(mark))
    better = f", {command} changes it safely" if command else ""
    output.note(f"warning: Stream {safe(stream)} belongs to {safe(owner)}{better}")


def existing(session: Session, name: str) -> Answer[Any] | None:
    return if_there(lambda: session.ask(lambda manager: manager.stream_info(name)), ErrCode.STREAM_NOT_FOUND)


def show_info(answer: Answer[Any], json: bool, done: str = "") -> None:
    if json:
        output.emit_json(answer.raw)
        return
    if done:
        output.note(safe(done, block=True))
    from natsctl.cli.render.streams import render_stream

    output.show_page(render_stream(answer.value))


StateOnly = Annotated[bool, Option("--state", help="only the state")]


def info(
    session: Session,
    stream: StreamName = None,
    state_only: StateOnly = False,
    no_select: NoSelect = False,
    json: Json = False,
) -> None:
    """Show a stream's configuration and state."""
    if no_select and not stream:
        raise UsageError("a stream is needed: give STREAM")
    name = pick_stream(session, stream)
    with suggesting(session, name):
        answer = session.ask(lambda manager: manager.stream_info(name))
    if json or not state_only:
        show_info(answer, json)
        return
    from natsctl.cli.render.streams import render_stream_state

    output.show_page(render_stream_state(answer.value))


def state(session: Session, stream: StreamName = None, no_select: NoSelect = False, json: Json = False) -> None:
    """Show a stream's state."""
    info(session, stream, state_only=True, no_select=no_select, json=json)
