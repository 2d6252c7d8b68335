"""`--dump`: each message as one JSON document in a file of its own, or on stdout with NUL between them."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from natsctl.api.errors import StorageError

if TYPE_CHECKING:
    from natsctl.cli.render.message import Received

STDOUT = "-"


class Dump:
    """Writes messages as the nats tool does, so that what reads its files reads these; `N.json` in the folder."""

    def __init__(self, where: str) -> None:
        self._folder = None if where == STDOUT else Path(where)
        if self._folder is not None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
            except OSError as failure:
                raise StorageError(f"--dump {where}: {failure.strerror or failure}") from failure

    def write(self, number: int, message: Received) -> None:
        """Write one message. Raises StorageError."""
        text = json.dumps(document(message), ensure_ascii=False)
        if self._folder is None:
            sys.stdout.write(f"{text}\0")
            return
        path = self._folder / f"{number}.json"
        try:
            path.write_text(text)
        except OSError as failure:
            raise StorageError(f"{path}: {failure.strerror or failure}") from failure


def document(message: Received) -> dict[str, Any]:
    """The message as the nats tool dumps it."""
    named: dict[str, list[str]] = {}
    for name, value in message.headers:
        named.setdefault(name, []).append(value)
    return {
        "Subject": message.subject,
        "Reply": message.reply,
        "Header": named or None,
        "Data": base64.b64encode(message.payload).decode(),
        "Sub": None,
    }
