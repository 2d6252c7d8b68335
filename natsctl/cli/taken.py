"""Whether a server took what it was asked for: older and smaller servers leave out what they do not know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from natsctl.cli import output

if TYPE_CHECKING:
    from natsctl.cli.flags import Config
    from natsctl.client.answer import Answer


def part_of(wanted: Config, paths: Iterable[str]) -> Config:
    """The fields of a configuration in which the dotted paths lie, as a whole; None for those that it lacks."""
    return {head: wanted.get(head) for head in dict.fromkeys(path.partition(".")[0] for path in paths)}


def warn_unless_taken(asked: Mapping[str, Any], answer: Answer[Any], json: bool, *, emptied: bool = False) -> None:
    """Warn on stderr of what the answer's configuration has otherwise; a program (`json`) sees it in the answer.

    Empty values were asked for only where `emptied` says so.
    """
    if json:
        return
    from natsctl.cli.render.change import not_taken, render_not_taken

    found = not_taken(asked, answer.raw.get("config") or {}, emptied=emptied)
    if found:
        output.note(render_not_taken(found))
