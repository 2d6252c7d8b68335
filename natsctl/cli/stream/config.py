"""`stream add`, `edit` and `copy`: what makes and changes a stream's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natsctl.api.errors import ApiFailure, NatsctlError, UsageError
from natsctl.api.exit_codes import ExitCode
from natsctl.cli import output
from natsctl.cli.flags import Config, Given, apply, flagged
from natsctl.cli.names import confirmed, pick_stream, suggesting
from natsctl.cli.options import Config as ConfigFile
from natsctl.cli.options import Defaults, Force, Json, Output, StreamName, Validate, session_of
from natsctl.cli.render.values import safe
from natsctl.cli.stream.flags import STREAM_ADD, STREAM_COPY, STREAM_EDIT
from natsctl.cli.taken import part_of, warn_unless_taken

if TYPE_CHECKING:
    from natsctl.cli.session import Session
    from natsctl.client.answer import Answer
    from natsctl.client.manager import Manager

EXISTS_OTHERWISE = 10058
SUBJECTS_TAKEN = 10065


@flagged(STREAM_ADD)
def add(
    ctx: typer.Context,
    given: Given,
    stream: StreamName = None,
    config: ConfigFile = None,
    defaults: Defaults = False,
    validate: Validate = False,
    output_file: Output = None,
    json: Json = False,
) -> None:
    """Create a stream from flags, a file or answers; flags win over the file."""
    session = session_of(ctx)
    wanted = _from_file(stream, config, given) if config else _from_flags(session, stream, given, defaults)
    if validate or output_file:
        _write(wanted, output_file)
        return
    answer = _create(session, wanted)
    show_info(answer, json, f"Stream {wanted['name']} was created")
    warn_unless_taken(wanted, answer, json)


@flagged(STREAM_EDIT)
def edit(
    ctx: typer.Context,
    given: Given,
    stream: StreamName = None,
    config: ConfigFile = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Change what the flags or the file say about a stream, and nothing else."""
    session = session_of(ctx)
    name = pick_stream(session, stream)
    patch = _patch(name, config)
    with suggesting(session, name):
        live = session.run(lambda manager: manager.stream_info(name))
    wanted = _merged(live.raw["config"], patch, given)
    lines, document = _differences(live.raw["config"], wanted)
    if session.dry_run:
        output.emit_json(document) if json else _emit_lines(lines)
        raise typer.Exit(ExitCode.DRIFT if document else 0)
    if not document:
        show_info(live, json, "No difference in configuration")
        return
    if session.interactive or not json:
        output.note("\n".join([f"Differences in Stream {safe(name)}:", *lines]))
    if not confirmed(session, f"edit Stream {name}", force, needs_force=False, json=json):
        return
    answer = session.run(lambda manager: manager.stream_update(wanted))
    show_info(answer, json, f"Stream {name} was updated")
    warn_unless_taken(part_of(wanted, (one["path"] for one in document)), answer, json, emptied=True)


@flagged(STREAM_COPY)
def copy(
    ctx: typer.Context,
    given: Given,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="the stream to copy the configuration of")],
    destination: Annotated[str, typer.Argument(metavar="DESTINATION", help="the stream to create")],
    json: Json = False,
) -> None:
    """Create a stream with the configuration of another, adjusted by flags; messages are not copied."""
    from natsctl.cli.documents import own_metadata

    session = session_of(ctx)
    with suggesting(session, source):
        live = session.run(lambda manager: manager.stream_info(source))
    wanted = dict(live.raw["config"])
    if "metadata" in wanted:
        wanted["metadata"] = own_metadata(wanted["metadata"])
    apply(wanted, STREAM_ADD, given)
    wanted["name"] = destination
    if wanted.get("subjects") and "--subjects" not in given:
        raise UsageError(
            f"{destination} cannot store the same subjects as {source}", hint="give --subjects for the copy"
        )
    answer = _create(session, wanted)
    show_info(answer, json, f"Stream {destination} was created")
    warn_unless_taken(wanted, answer, json)


def _create(session: Session, wanted: Config) -> Answer[Any]:
    """Create the stream. Raises ApiFailure, with what a person can do about it."""
    try:
        return session.run(lambda manager: manager.stream_create(wanted))
    except ApiFailure as failure:
        if failure.err_code == EXISTS_OTHERWISE:
            failure.hint = failure.hint or f"natsctl stream edit {wanted['name']} changes a stream that exists"
        elif failure.err_code == SUBJECTS_TAKEN:
            failure.hint = failure.hint or _taken_by(session, wanted)
        raise


def _taken_by(session: Session, wanted: Config) -> str:
    """Which streams store the subjects already, and where to look."""
    subjects = wanted.get("subjects") or [wanted["name"]]

    async def owners(manager: Manager) -> list[str]:
        return [name for subject in subjects for name in await manager.stream_names(subject=subject)]

    try:
        found = dict.fromkeys(session.run(owners))
    except NatsctlError:
        found = {}
    return f"stored already by {', '.join(found)}" if found else "natsctl stream ls shows which streams there are"


def show_info(answer: Answer[Any], json: bool, done: str = "") -> None:
    """Show the stream that an answer describes, after telling what was done."""
    if json:
        output.emit_json(answer.raw)
        return
    if done:
        output.note(safe(done, block=True))
    from natsctl.cli.render.stream import render_stream
    from natsctl.cli.screen import show_page

    show_page(render_stream(answer.value))


def _from_file(name: str | None, path: str, given: Given) -> Config:
    from natsctl.api.stream import StreamConfig
    from natsctl.cli.documents import load_config

    wanted = load_config(path, StreamConfig)
    apply(wanted, STREAM_ADD, given)
    if name:
        wanted["name"] = name
    if not wanted.get("name"):
        raise UsageError(f"{path} has no name: give STREAM")
    return wanted


def _from_flags(session: Session, name: str | None, given: Given, defaults: bool) -> Config:
    asks = session.interactive and not defaults
    if not name:
        if not asks:
            raise UsageError("a name for the stream is needed: give STREAM, or --config FILE")
        from natsctl.cli.prompts.stream import prompt_stream_name

        name = prompt_stream_name()
    wanted: Config = {"name": name, "allow_direct": True}
    apply(wanted, STREAM_ADD, given)
    if wanted.get("mirror") and wanted.get("subjects"):
        raise UsageError("a mirror takes no subjects of its own: --mirror and --subjects exclude each other")
    if asks:
        from natsctl.cli.prompts.stream import prompt_stream

        account = session.run(lambda manager: manager.account_info()).value
        prompt_stream(wanted, given, account.limits.max_bytes_required)
    elif not (wanted.get("subjects") or wanted.get("mirror") or wanted.get("sources")):
        raise UsageError("subjects are needed: give --subjects, --mirror or --source")
    return wanted


def _write(wanted: Config, path: str | None) -> None:
    """Check the configuration as far as it can be without a server, and print it or write it to a file."""
    import json

    from natsctl.api import codec
    from natsctl.api.stream import StreamConfig

    codec.load(wanted, StreamConfig, "configuration")
    if path is None:
        output.emit_json(wanted)
        return
    try:
        Path(path).write_text(json.dumps(wanted, indent=2) + "\n")
    except OSError as error:
        raise UsageError(f"--output {path}: {error.strerror or error}") from error
    output.note(f"Wrote the configuration to {path}")


def _patch(name: str, path: str | None) -> Config:
    if path is None:
        return {}
    from natsctl.api.stream import StreamConfig
    from natsctl.cli.documents import load_config

    patch = load_config(path, StreamConfig)
    patch["name"] = name
    return patch


def _merged(live: Config, patch: Config, given: Given) -> Config:
    """The live configuration with what was asked for; what neither names stays, fields unknown to us included."""
    from natsctl.cli.render.change import SERVER_OWNED

    wanted = {**live, **patch}
    if "metadata" in patch:
        owned = {key: value for key, value in live.get("metadata", {}).items() if key.startswith(SERVER_OWNED)}
        wanted["metadata"] = {**patch["metadata"], **owned}
    apply(wanted, STREAM_EDIT, given)
    return wanted


def _differences(live: Config, wanted: Config) -> tuple[list[str], list[dict[str, Any]]]:
    from natsctl.cli.render.change import changes, render_change

    found = changes(live, wanted)
    return [f"  {render_change(one)}" for one in found], [one._asdict() for one in found]


def _emit_lines(lines: list[str]) -> None:
    output.emit("\n".join(lines) if lines else "No difference in configuration")
