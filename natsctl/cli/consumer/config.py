"""What `consumer add`, `copy` and `edit` share: how a consumer is created and found, and how it is shown afterwards."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from natsctl.api.err_codes import ErrCode
from natsctl.api.errors import ApiFailure
from natsctl.cli import output
from natsctl.cli.names import suggesting
from natsctl.cli.render.text import safe
from natsctl.cli.taken import warn_unless_taken

if TYPE_CHECKING:
    from natsctl.cli.flags import Config
    from natsctl.cli.session import Session
    from natsctl.client.answer import Answer


def create_consumer(session: Session, stream: str, wanted: Config, *, if_not_exists: bool, json: bool) -> None:
    """Create the consumer and show it; one that exists is shown as it is where that was asked for."""
    name = str(wanted.get("name") or wanted.get("durable_name") or "")
    if name and (if_not_exists or session.dry_run):
        live = existing(session, stream, name)
        if live is not None and if_not_exists:
            show_info(live, json, done=f"Consumer {stream} > {name} exists already")
            return
        session.effect["exists"] = live is not None
    answer = _create(session, stream, wanted)
    show_info(answer, json)
    warn_unless_taken(wanted, answer, json)


def existing(session: Session, stream: str, name: str) -> Answer[Any] | None:
    """The consumer of that name, or None. Raises ApiFailure, for a stream that does not exist too."""
    try:
        with suggesting(session, stream):
            return session.run(lambda manager: manager.consumer_info(stream, name))
    except ApiFailure as failure:
        if failure.err_code != ErrCode.CONSUMER_NOT_FOUND:
            raise
        return None


def live_consumer(session: Session, stream: str, name: str) -> Answer[Any]:
    """The consumer as it is. Raises ApiFailure, with what may have been meant."""
    with suggesting(session, stream, name):
        return session.run(lambda manager: manager.consumer_info(stream, name))


def name_it(config: Config, name: str, ephemeral: bool) -> None:
    """Give a configuration a name; one that is not ephemeral is durable under it."""
    config["name"] = name
    if ephemeral:
        config.pop("durable_name", None)
    else:
        config["durable_name"] = name


def show_info(answer: Answer[Any], json: bool, state_only: bool = False, done: str = "") -> None:
    """Show the consumer that an answer describes, after telling what was done."""
    if json:
        output.emit_json(answer.raw)
        return
    if done:
        output.note(safe(done, block=True))
    from natsctl.cli.render.consumers import render_consumer, render_consumer_state
    from natsctl.cli.screen import show_page

    render = render_consumer_state if state_only else render_consumer
    show_page(render(answer.value, time.time_ns()))


def _create(session: Session, stream: str, wanted: Config) -> Answer[Any]:
    """Create the consumer unless one of that name exists with another configuration. Raises ApiFailure."""
    try:
        with suggesting(session, stream):
            return session.run(lambda manager: manager.consumer_create(stream, wanted, action="create"))
    except ApiFailure as failure:
        if failure.err_code == ErrCode.CONSUMER_ALREADY_EXISTS:
            failure.hint = failure.hint or (
                "natsctl consumer edit changes a consumer that exists, --if-not-exists leaves it alone"
            )
        raise
