"""What an export has written."""

from __future__ import annotations

from natsctl.api.model import Model


class Exported(Model, kw_only=True):
    """The messages that were written; `bytes` are those of payloads, `files` 0 where they are not on this machine.

    Of an export that goes on, what this run has added; `first_seq` is 0 then, as it is where there was nothing.
    """

    stream: str
    path: str
    format: str
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    files: int
