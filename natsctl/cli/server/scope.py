"""Which servers a command is about, from its flags, and what is said when some of them do not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import Unreachable
from natsctl.cli import output
from natsctl.cli.flags import TEXT, WORDS, Flag, Given

if TYPE_CHECKING:
    from natsctl.client.system.answers import Answers, Scope

SCOPE = (
    Flag("--host", TEXT, "host", "only the server of this name, id or host", aliases=("--name",)),
    Flag("--cluster", TEXT, "cluster", "only servers of this cluster"),
    Flag("--tags", WORDS, "tags", "only servers that have all these tags", aliases=("--tag",)),
)

Expect = Annotated[
    int, typer.Argument(metavar="EXPECT", help="number of servers that must answer", min=0, show_default=False)
]
Top = Annotated[int, typer.Option("--top", metavar="N", help="only the first N rows", min=0)]
ServerName = Annotated[str, typer.Argument(metavar="SERVER", help="the server, by name or id", show_default=False)]


def scope_of(given: Given, expect: int = 0) -> Scope:
    """The servers that the flags mean."""
    from natsctl.client.system.answers import Scope

    return Scope(given.get("--host", ""), given.get("--cluster", ""), tuple(given.get("--tags", ())), expect)


def note_missing(answers: Answers) -> None:
    """Say on stderr how many servers that the others know did not answer."""
    if answers.missing:
        output.note(f"warning: {len(answers)} of {answers.expected} servers answered")


def require_all(answers: Answers, expect: int) -> None:
    """Raise Unreachable when fewer servers answered than were asked for; where nobody said how many, only say it."""
    if expect and len(answers) < expect:
        raise Unreachable(f"{len(answers)} of {expect} servers answered", hint="the others are down or unreachable")
    note_missing(answers)
