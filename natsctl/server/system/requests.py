"""Requests of the system account on their way: heard in `publish`, answered once per turn of the loop.

Theory of operation. A handler subscription copies what it hears into the queue and returns, so that a request is
answered after what was read with it has been counted, and a flood of expensive requests does not hold up a turn: `run`
answers a bounded number. An answer goes to the account in which the question was asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from natsctl.api.codec import encode
from natsctl.broker.info import server_info
from natsctl.server.monitor.refused import Refused
from natsctl.server.system.encoding import encoded
from natsctl.server.system.forms import Fault, Form

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.broker import Broker
    from natsctl.broker.session import Session

MAX_WAITING: Final = 4096
"""Requests that may wait for their answers; more are dropped."""
MAX_RUN: Final = 32
"""Requests that are answered in one turn."""
BAD_REQUEST: Final = 400
FAILED: Final = 500


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `account` is where it was asked."""

    account: Account
    subject: str
    reply: bytes
    header: bytes
    body: bytes
    origin: Session | None


Responder: TypeAlias = Callable[[Request], None]
"""Takes a request, and answers it or not."""


class NoAnswer(Exception):
    """This server has nothing to say to a request."""


class Requests:
    """The requests of one broker that wait for their answers."""

    __slots__ = ("_broker", "_waiting", "_wake")

    def __init__(self, broker: Broker, wake: Callable[[], None]) -> None:
        """`wake` asks for a turn, in which `run` is called."""
        self._broker = broker
        self._wake = wake
        self._waiting: deque[tuple[Responder, Request]] = deque()

    def listen(self, account: Account, subject: str, responder: Responder) -> None:
        """Take requests on a subject of an account."""
        account.subscribe(subject.encode(), partial(self._hear, account, responder))

    def _hear(
        self, account: Account, responder: Responder, subject: bytes, reply: bytes, header: bytes, payload: bytes,
        origin: Session | None,
    ) -> None:  # fmt: skip
        if len(self._waiting) < MAX_WAITING:
            text = subject.decode("utf-8", "replace")
            self._waiting.append((responder, Request(account, text, reply, header, payload, origin)))
            self._wake()

    def run(self) -> None:
        """Answer some of what waits, and ask for another turn where that was not all."""
        for _ in range(min(MAX_RUN, len(self._waiting))):
            responder, request = self._waiting.popleft()
            responder(request)
        if self._waiting:
            self._wake()

    def answer(self, request: Request, form: Form, respond: Callable[[Any], Any], nothing: bool = False) -> None:
        """Answer a request as its `form` reads, with what `respond` makes of its options.

        `nothing`: there is never data, only success or not. A request without a reply subject is not carried out.
        """
        if not request.reply:
            return
        try:
            wanted, options = form.read(request.body)
        except Fault as fault:
            self.send(request, self.refusal(BAD_REQUEST, str(fault)))
            return
        if wanted.leaves_out(self._broker):
            return
        try:
            data = respond(options)
        except NoAnswer:
            return
        except Refused as refused:
            self.send(request, self.refusal(FAILED, str(refused), {} if nothing else {"data": None}))
            return
        body = {"server": server_info(self._broker), **({} if nothing else {"data": data})}
        self.send(request, body, request.header)

    def refusal(self, code: int, text: str, data: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer to a request that was not carried out."""
        return {"server": server_info(self._broker), **(data or {}), "error": {"code": code, "description": text}}

    def send(self, request: Request, body: object, header: bytes = b"") -> None:
        """Publish an answer; `header` is that of a request whose wish for an encoding is heard."""
        block, payload = encoded(encode(body), header)
        request.account.publish(request.reply, b"", block, payload)
