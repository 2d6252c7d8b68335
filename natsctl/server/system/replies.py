"""Answers as the system account writes them: who answers, then the data or an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from natsctl.api.codec import encode
from natsctl.broker.info import server_info
from natsctl.server.monitor.refused import BadRequestError
from natsctl.server.system.encoding import encoded
from natsctl.server.system.forms import DecodeError, Form

if TYPE_CHECKING:
    from natsctl.broker.broker import Broker
    from natsctl.server.system.requests import Request

BAD_REQUEST: Final = 400
FAILED: Final = 500


class NoResponseError(Exception):
    """This server has nothing to say to a request."""


class Replies:
    """Answers requests in the name of one broker."""

    __slots__ = ("_broker",)

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def answer(self, request: Request, form: Form, respond: Callable[[Any], Any], nothing: bool = False) -> None:
        """Answer a request as its `form` reads, with what `respond` makes of its options.

        `nothing`: there is never data, only success or not. A request without a reply subject is not carried out.
        """
        if not request.reply:
            return
        try:
            wanted, options = form.read(request.body)
        except DecodeError as fault:
            self.refuse(request, BAD_REQUEST, str(fault))
            return
        if wanted.leaves_out(self._broker):
            return
        try:
            data = respond(options)
        except NoResponseError:
            return
        except BadRequestError as refused:
            self.refuse(request, FAILED, str(refused), {} if nothing else {"data": None})
            return
        self.send(request, self._body({} if nothing else {"data": data}), request.header)

    def refuse(self, request: Request, code: int, text: str, data: dict[str, Any] | None = None) -> None:
        """Say why a request was not carried out."""
        self.send(request, self._body({**(data or {}), "error": {"code": code, "description": text}}))

    def _body(self, rest: dict[str, Any]) -> dict[str, Any]:
        return {"server": server_info(self._broker), **rest}

    def send(self, request: Request, body: object, header: bytes = b"") -> None:
        """Publish an answer where it was asked for; `header` is that of a request whose encoding is heeded."""
        block, payload = encoded(encode(body), header)
        request.account.publish(request.reply, b"", block, payload)
