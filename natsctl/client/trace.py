"""`--trace`: each JetStream API request and its answer on stderr, and never a login."""

from __future__ import annotations

import sys
from typing import TextIO

MAX_SHOWN_BYTES = 64 * 1024


class Tracer:
    """Writes requests as `>>> subject`, answers as `<<< subject`, each followed by its body."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr

    def request(self, subject: str, body: bytes) -> None:
        """Show what is sent."""
        self._show(">>>", subject, body)

    def answer(self, subject: str, body: bytes) -> None:
        """Show what came back for the request on `subject`."""
        self._show("<<<", subject, body)

    def failure(self, subject: str, reason: str) -> None:
        """Show that no answer came."""
        self._show("<<<", f"{subject}: {reason}", b"")

    def _show(self, mark: str, subject: str, body: bytes) -> None:
        text = body[:MAX_SHOWN_BYTES].decode("utf-8", "replace")
        more = f"\n… {len(body) - MAX_SHOWN_BYTES} bytes more" if len(body) > MAX_SHOWN_BYTES else ""
        self._stream.write(f"{mark} {subject}\n{text}{more}\n\n")
        self._stream.flush()
