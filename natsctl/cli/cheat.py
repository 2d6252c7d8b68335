"""Example command lines by topic: `natsctl cheat`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from natsctl.api.errors import NotFoundError
from natsctl.api.model import Model
from natsctl.api.units import plural
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Json
from natsctl.cli.framework.help import columns
from natsctl.cli.framework.parameters import Argument, Option, as_usage_error
from natsctl.cli.framework.resolve import did_you_mean
from natsctl.cli.framework.session import Session
from natsctl.client.message import DryRunError, Planned


class Line(Model, kw_only=True):
    """One command line and its effect; one that ends in `&` runs while the next ones do."""

    about: str
    command: str


class Topic(Model, kw_only=True):
    """The lines on one topic, in an order that works."""

    name: str
    title: str
    lines: list[Line]


def topics() -> list[Topic]:
    """Return the topics of cheat_topics.txt: a line without a comment above it belongs to the preceding one."""
    content = Path(__file__).with_name("cheat_topics.txt").read_text(encoding="utf-8")
    found: list[Topic] = []
    about = ""
    for line in filter(None, content.splitlines()):
        if line.startswith("## "):
            name, _, title = line[3:].partition(": ")
            found.append(Topic(name=name, title=title, lines=[]))
        elif line.startswith("# "):
            about = line[2:]
        else:
            found[-1].lines.append(Line(about=about, command=line))
            about = ""
    return found


def cheat(
    session: Session,
    topic: Annotated[str, Argument(metavar="TOPIC", help="one of the listed topics")] = "",
    everything: Annotated[bool, Option("--all", "-a", help="show every topic")] = False,
    list_only: Annotated[bool, Option("--list", help="list the names of the topics")] = False,
    save: Annotated[str, Option("--save", metavar="FOLDER", help="write each topic to a file in this folder")] = "",
    json: Json = False,
) -> None:
    """Show example command lines by topic; each runs as it stands."""
    known = topics()
    found = [_named(topic, known)] if topic else known
    if save:
        _save(found, Path(save), dry_run=session.dry_run)
    if json:
        output.emit_json(found)
    elif list_only:
        output.emit_names(one.name for one in found)
    elif topic or everything:
        output.emit("\n\n".join(text(one) for one in found))
    elif not save:
        output.emit("\n".join(columns([(one.name, one.title) for one in found])))
        output.note("natsctl cheat TOPIC shows its examples")


def _named(name: str, known: Sequence[Topic]) -> Topic:
    found = next((topic for topic in known if topic.name == name.lower()), None)
    if found is None:
        names = [topic.name for topic in known]
        raise NotFoundError(f"no topic {name}", hint=did_you_mean(name, names) or f"there are {', '.join(names)}")
    return found


def text(topic: Topic) -> str:
    """Return the lines of a topic, each below a comment that describes it."""
    lines = [f"# {topic.title}"]
    for line in topic.lines:
        if line.about:
            lines += ["", f"# {line.about}"]
        lines.append(line.command)
    return "\n".join(lines)


def _save(found: Sequence[Topic], folder: Path, *, dry_run: bool) -> None:
    files = [(folder / f"natsctl-{one.name}", f"{text(one)}\n") for one in found]
    if dry_run:
        raise DryRunError(*(Planned(str(path), content.encode()) for path, content in files))
    with as_usage_error(f"--save {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in files:
            path.write_text(content, encoding="utf-8")
    output.note(f"wrote {plural(len(files), 'file')} to {folder}")
