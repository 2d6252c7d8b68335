"""`--translate`: bodies shown as a program makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from natsctl.client.message import Message


async def translated(command: str, message: Message) -> bytes:
    """What the program makes of the body; `{{Subject}}` in its words stands for the subject. Raises CommandFailed."""
    from natsctl.client.messaging.commands import run, words_of

    words = [word.replace("{{Subject}}", message.subject) for word in words_of("--translate", command)]
    return await run(words, message.body)
