"""Requests to OCSP responders.

Source of the requests: nats-server, ocsp.go and certidp/ocsp_responder.go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from natsctl.server.http_client import HttpError, request
from natsctl.server.ocsp.responses import MAX_RESPONSE_BYTES

MAX_REQUESTS: Final = 64
"""Requests at the same time, of all connections; more of them wait, within their time limits."""

_HEADERS: Final = (("Content-Type", "application/ocsp-request"), ("Accept", "application/ocsp-response"))


class ResponderError(HttpError):
    """A responder that gave no answer; the text says why."""


class Responders:
    def __init__(self) -> None:
        self._places = asyncio.Semaphore(MAX_REQUESTS)

    async def ask(self, method: str, url: str, body: bytes, timeout_s: float, accepted: Callable[[int], str]) -> bytes:
        """Return the body of the answer; raises ResponderError, with the text of `accepted` for a status."""
        what = f'{method.title()} "{url}"'
        try:
            async with asyncio.timeout(timeout_s), self._places:
                answer = await request(
                    method, url, body, timeout_s=timeout_s, max_bytes=MAX_RESPONSE_BYTES, headers=_HEADERS
                )
        except TimeoutError:
            raise ResponderError(f"{what}: context deadline exceeded (Client.Timeout exceeded)") from None
        except HttpError as why:
            raise ResponderError(f"{what}: {why}") from why
        if refusal := accepted(answer.status):
            raise ResponderError(refusal)
        return answer.body
