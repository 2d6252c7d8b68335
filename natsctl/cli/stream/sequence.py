"""Which message a command is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import UsageError

if TYPE_CHECKING:
    from natsctl.cli.session import Session

Sequence = Annotated[
    int | None, typer.Argument(metavar="SEQ", help="the message's sequence", min=1, show_default=False)
]


def ask_sequence(session: Session, question: str, default: str = "") -> int:
    """The sequence that the person gives. Raises UsageError where nobody can be asked."""
    if not session.interactive:
        raise UsageError("a message is needed: give SEQ")
    from natsctl.cli.flags import WHOLE
    from natsctl.cli.prompts.ask import Question, prompt

    help = "The sequence of the message. Settable as the second argument"
    return int(prompt(Question(question, help, default, WHOLE.read, required=True)))
