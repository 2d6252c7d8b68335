"""`natsctl cheat`: the topics, or the lines of one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from natsctl.api.errors import NatsctlError, UsageError
from natsctl.api.exit_codes import ExitCode
from natsctl.api.units import plural
from natsctl.cli import output
from natsctl.cli.cheat import shapes
from natsctl.cli.cheat.topics import TOPICS, Topic
from natsctl.cli.options import Json, session_of


class UnknownTopic(NatsctlError):
    """There is no such topic."""

    exit_code = ExitCode.NOT_FOUND


def cheat(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="one of the listed topics")] = "",
    everything: Annotated[bool, typer.Option("--all", "-a", help="show every topic")] = False,
    list_only: Annotated[bool, typer.Option("--list", help="list the names of the topics")] = False,
    save: Annotated[
        str, typer.Option("--save", metavar="FOLDER", help="write each topic to a file in this folder")
    ] = "",
    json: Json = False,
) -> None:
    """Show example command lines by topic; each runs as it stands."""
    found = [_named(topic)] if topic else list(TOPICS)
    if save:
        _save(found, Path(save), dry_run=session_of(ctx).dry_run)
    if json:
        output.emit_json(msgspec.to_builtins([_document(one) for one in found]))
    elif list_only:
        output.emit_names(one.name for one in found)
    elif topic or everything:
        output.emit("\n\n".join(text(one) for one in found))
    elif not save:
        from natsctl.cli.root_help import columns

        output.emit("\n".join(columns([(one.name, one.title) for one in found])))
        output.note("natsctl cheat TOPIC shows its examples")


def _named(name: str) -> Topic:
    found = next((one for one in TOPICS if one.name == name.lower()), None)
    if found is None:
        from natsctl.cli.suggest import did_you_mean

        names = [one.name for one in TOPICS]
        raise UnknownTopic(f"no topic {name}", hint=did_you_mean(name, names) or f"there are {', '.join(names)}")
    return found


def text(topic: Topic) -> str:
    """The lines of a topic, each below a comment that says what it does."""
    lines = [f"# {topic.title}"]
    for about, line in topic.lines:
        if about:
            lines += ["", f"# {about}"]
        lines.append(line)
    return "\n".join(lines)


def _document(topic: Topic) -> shapes.Topic:
    lines = [shapes.Line(about=about, command=line) for about, line in topic.lines]
    return shapes.Topic(name=topic.name, title=topic.title, lines=lines)


def _save(found: list[Topic], folder: Path, *, dry_run: bool) -> None:
    files = [(folder / f"natsctl-{one.name}", f"{text(one)}\n") for one in found]
    if dry_run:
        from natsctl.client.preview import Planned, Previewed

        raise Previewed(*(Planned(str(path), content.encode()) for path, content in files))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in files:
            path.write_text(content, encoding="utf-8")
    except OSError as failure:
        raise UsageError(f"--save {folder}: {failure.strerror or failure}") from failure
    output.note(f"wrote {plural(len(files), 'file')} to {folder}")
