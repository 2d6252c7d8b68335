"""A message as the client room hands it out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nats.aio.msg import Msg


@dataclass(slots=True)
class Message:
    """One message; `status` is that of a status message (`NATS/1.0 404 …`), 0 on an ordinary one."""

    subject: str
    body: bytes
    reply: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 0
    description: str = ""


def to_message(msg: Msg) -> Message:
    """nats-py's message as ours; its Status and Description stand for the status line where that is all there is."""
    headers = {str(getattr(key, "value", key)): value for key, value in (msg.headers or {}).items()}
    status = headers.get("Status", "")
    if not msg.data and len(status) == 3 and status.isdigit():
        description = headers.pop("Description", "")
        del headers["Status"]
        return Message(msg.subject, msg.data, msg.reply, headers, int(status), description)
    return Message(msg.subject, msg.data, msg.reply, headers)
