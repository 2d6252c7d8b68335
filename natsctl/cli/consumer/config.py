"""`consumer add`, `edit` and `copy`: what makes and changes a consumer's configuration."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natsctl.api.errors import ApiFailure, UsageError
from natsctl.api.exit_codes import ExitCode
from natsctl.cli import output
from natsctl.cli.consumer.flags import CONSUMER_ADD, CONSUMER_COPY, CONSUMER_EDIT, settle
from natsctl.cli.flags import Config, Given, apply, flagged
from natsctl.cli.names import confirmed, pick_consumer, pick_stream, suggesting
from natsctl.cli.options import Config as ConfigFile
from natsctl.cli.options import ConsumerName, Defaults, Force, Json, Output, StreamName, Validate, session_of
from natsctl.cli.render.values import safe
from natsctl.cli.taken import part_of, warn_unless_taken

if TYPE_CHECKING:
    from natsctl.cli.session import Session
    from natsctl.client.answer import Answer

EXISTS_OTHERWISE = 10148

Ephemeral = Annotated[bool, typer.Option("--ephemeral", help="the server removes it when it is not used")]


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
    json: Json = False,
) -> None:
    """Create a consumer from flags, a file or answers; flags win over the file.

    A consumer that exists with the same configuration is success, with another one a conflict: `consumer edit` changes.
    """
    session = session_of(ctx)
    if config:
        stream, wanted = _from_file(stream, consumer, config, given, ephemeral)
        stream = pick_stream(session, stream)
    else:
        stream = pick_stream(session, stream)
        wanted = _from_flags(session, consumer, given, ephemeral, defaults)
    settle(wanted, given)
    if validate or output_file:
        _write(wanted, output_file)
        return
    answer = create(session, stream, wanted)
    show_info(answer, json)
    warn_unless_taken(wanted, answer, json)


def create(session: Session, stream: str, wanted: Config) -> Answer[Any]:
    """Create the consumer unless one of that name exists with another configuration. Raises ApiFailure."""
    try:
        with suggesting(session, stream):
            return session.run(lambda manager: manager.consumer_create(stream, wanted, action="create"))
    except ApiFailure as failure:
        if failure.err_code == EXISTS_OTHERWISE:
            failure.hint = failure.hint or "natsctl consumer edit changes a consumer that exists"
        raise


@flagged(CONSUMER_EDIT)
def edit(
    ctx: typer.Context,
    given: Given,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    config: ConfigFile = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Change what the flags or the file say about a consumer, and nothing else."""
    from natsctl.cli.render.change import changes, render_change

    session = session_of(ctx)
    stream = pick_stream(session, stream)
    name = pick_consumer(session, stream, consumer)
    patch = _patch(config)
    live = _live(session, stream, name)
    wanted = {**live.raw["config"], **patch}
    apply(wanted, CONSUMER_EDIT, given)
    settle(wanted, given)
    found = changes(live.raw["config"], wanted)
    lines = [f"  {render_change(one)}" for one in found]
    if session.dry_run:
        text = "\n".join(lines) or "No difference in configuration"
        output.emit_json([one._asdict() for one in found]) if json else output.emit(text)
        raise typer.Exit(ExitCode.DRIFT if found else 0)
    if not found:
        show_info(live, json, done="No difference in configuration")
        return
    if session.interactive or not json:
        output.note("\n".join([f"Differences in Consumer {safe(stream)} > {safe(name)}:", *lines]))
    if not confirmed(session, f"edit Consumer {stream} > {name}", force, needs_force=False, json=json):
        return
    answer = session.run(lambda manager: manager.consumer_create(stream, wanted, action="update"))
    show_info(answer, json, done=f"Consumer {stream} > {name} was updated")
    warn_unless_taken(part_of(wanted, (one.path for one in found)), answer, json, emptied=True)


@flagged(CONSUMER_COPY)
def copy(
    ctx: typer.Context,
    given: Given,
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="the stream of both consumers")],
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="the consumer to copy the configuration of")],
    destination: Annotated[str, typer.Argument(metavar="DESTINATION", help="the consumer to create")],
    ephemeral: Ephemeral = False,
    json: Json = False,
) -> None:
    """Create a consumer with the configuration of another, adjusted by flags."""
    from natsctl.cli.documents import own_metadata

    session = session_of(ctx)
    wanted = dict(_live(session, stream, source).raw["config"])
    if "metadata" in wanted:
        wanted["metadata"] = own_metadata(wanted["metadata"])
    _name(wanted, destination, ephemeral)
    apply(wanted, CONSUMER_ADD, given)
    settle(wanted, given)
    answer = create(session, stream, wanted)
    show_info(answer, json)
    warn_unless_taken(wanted, answer, json)


def _live(session: Session, stream: str, name: str) -> Answer[Any]:
    with suggesting(session, stream, name):
        return session.run(lambda manager: manager.consumer_info(stream, name))


def show_info(answer: Answer[Any], json: bool, state_only: bool = False, done: str = "") -> None:
    """Show the consumer that an answer describes, after telling what was done."""
    if json:
        output.emit_json(answer.raw)
        return
    if done:
        output.note(safe(done, block=True))
    from natsctl.cli.render.consumer import render_consumer, render_consumer_state
    from natsctl.cli.screen import show_page

    render = render_consumer_state if state_only else render_consumer
    show_page(render(answer.value, time.time_ns()))


def _from_file(
    stream: str | None, name: str | None, path: str, given: Given, ephemeral: bool
) -> tuple[str | None, Config]:
    """The stream, from the file where the command line has none, and the configuration."""
    from natsctl.api.consumer import ConsumerConfig
    from natsctl.cli.documents import config_in, load_document

    document = load_document(path)
    wanted = config_in(document, path, ConsumerConfig)
    name = name or wanted.get("durable_name") or wanted.get("name") or document.get("name")
    if name:
        _name(wanted, str(name), ephemeral or not (wanted.get("durable_name") or not wanted.get("name")))
    elif not ephemeral:
        raise UsageError(f"{path} has no consumer name: give CONSUMER")
    apply(wanted, CONSUMER_ADD, given)
    return stream or document.get("stream_name"), wanted


def _name(config: Config, name: str, ephemeral: bool) -> None:
    config["name"] = name
    if ephemeral:
        config.pop("durable_name", None)
    else:
        config["durable_name"] = name


def _from_flags(session: Session, name: str | None, given: Given, ephemeral: bool, defaults: bool) -> Config:
    asks = session.interactive and not defaults
    if not name and not ephemeral:
        if not asks:
            raise UsageError("a name for the consumer is needed: give CONSUMER, --ephemeral or --config FILE")
        from natsctl.cli.prompts.consumer import prompt_consumer_name

        name = prompt_consumer_name()
    wanted: Config = {}
    if name:
        _name(wanted, name, ephemeral)
    apply(wanted, CONSUMER_ADD, given)
    if asks:
        from natsctl.cli.prompts.consumer import prompt_consumer

        prompt_consumer(wanted, given)
    push = bool(wanted.get("deliver_subject"))
    wanted.setdefault("ack_policy", "none" if push else "explicit")
    wanted.setdefault("deliver_policy", "all")
    wanted.setdefault("replay_policy", "instant")
    return {key: value for key, value in wanted.items() if value not in ("", None)}


def _patch(path: str | None) -> Config:
    """What the file says, without names: those of the command line say which consumer is meant."""
    if path is None:
        return {}
    from natsctl.api.consumer import ConsumerConfig
    from natsctl.cli.documents import load_config

    patch = load_config(path, ConsumerConfig)
    return {key: value for key, value in patch.items() if key not in ("name", "durable_name")}


def _write(wanted: Config, path: str | None) -> None:
    """Check the configuration as far as it can be without a server, and print it or write it to a file."""
    import json

    from natsctl.api import codec
    from natsctl.api.consumer import ConsumerConfig

    codec.load(wanted, ConsumerConfig, "configuration")
    if path is None:
        output.emit_json(wanted)
        return
    try:
        Path(path).write_text(json.dumps(wanted, indent=2) + "\n")
    except OSError as error:
        raise UsageError(f"--output {path}: {error.strerror or error}") from error
    output.note(f"Wrote the configuration to {path}")
