"""The routing of one account's pull requests and acks to the consumers that they name.

Theory of operation. A subscription costs more than an idle consumer, so consumers have no subscriptions for requests
and acks: the account has one for each kind of subject, and a dictionary from `STREAM.CONSUMER` to its handler. An
unknown name is declined, so that the requester gets the "no responders" status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from natsctl.api.subjects import API_PREFIX, LEGACY_NEXT_PREFIX

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.session import Session
    from natsctl.broker.subscription import Handler
    from natsctl.jetstream.consumers.consumer_acks import Acks
    from natsctl.wire.publish_run import PublishRun

_NEXT: Final = f"{API_PREFIX}.CONSUMER.MSG.NEXT.".encode()
_LEGACY_NEXT: Final = f"{LEGACY_NEXT_PREFIX}.".encode()
_ACK: Final = b"$JS.ACK."

_LATER_TOKENS: Final = 2
"""An ack subject has seven tokens as in 2020, then eight, nine since: as many may follow the consumer sequence."""


class ConsumerRouter:
    __slots__ = ("_account", "_acks", "_held", "_requests", "_subs")

    def __init__(self, account: Account) -> None:
        """Subscribe once for all future consumers."""
        self._requests: dict[bytes, Handler] = {}
        self._acks: dict[tuple[bytes, bytes], Acks] = {}
        self._held: dict[bytes, Callable[..., bool | None]] = {}
        self._account = account
        account.sources.append(self.subjects)
        self._subs = [
            account.subscribe(_NEXT + b"*.*", self._on_request),
            account.subscribe(_LEGACY_NEXT + b"*.*", self._on_legacy_request),
            account.subscribe(_ACK + b"*.*.>", self._on_ack, run=self._on_acks),
        ]

    def stop(self) -> None:
        for sub in self._subs:
            self._account.unsubscribe(sub)
        self._account.sources.remove(self.subjects)

    def register(self, stream: bytes, consumer: bytes, on_request: Handler, on_ack: Acks | None) -> None:
        """Route requests and acks that name a consumer from now on; without `on_ack` its acks are declined."""
        self._requests[stream + b"." + consumer] = on_request
        if on_ack is not None:
            known = (stream, consumer) in self._acks
            self._acks[stream, consumer] = on_ack
            for listener in () if known else self._account.listeners:
                listener.offered(_ack_subject(stream, consumer))

    def hold(self, stream: bytes, hold: Callable[..., bool | None] | None) -> None:
        """Pass messages for the consumers of a stream to `hold`, for later or to decline them; None ends that."""
        if hold is not None:
            self._held[stream] = hold
        else:
            self._held.pop(stream, None)

    def subjects(self) -> Iterator[bytes]:
        """Yield the ack subjects in use: other servers should send no others."""
        for stream, consumer in self._acks:
            yield _ack_subject(stream, consumer)

    def unregister(self, stream: bytes, consumer: bytes) -> None:
        self._requests.pop(stream + b"." + consumer, None)
        if self._acks.pop((stream, consumer), None) is not None:
            for listener in self._account.listeners:
                listener.withdrawn(_ack_subject(stream, consumer))

    def _on_request(
        self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool | None:
        handler = self._requests.get(subject[len(_NEXT) :])
        if self._held and handler is not None:
            hold = self._held.get(subject[len(_NEXT) :].partition(b".")[0])
            if hold is not None:
                return hold(self._on_request, subject, reply, header, payload, origin)
        return handler(subject, reply, header, payload, origin) if handler is not None else False

    def _on_legacy_request(
        self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool | None:
        return self._on_request(_NEXT + subject[len(_LEGACY_NEXT) :], reply, header, payload, origin)

    def _on_ack(
        self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool | None:
        tokens = subject.split(b".", 6)
        if len(tokens) < 7 or tokens[6].count(b".") > _LATER_TOKENS:
            return False
        handler = self._acks.get((tokens[2], tokens[3]))
        if handler is None:
            return False
        if self._held and tokens[2] in self._held:
            return self._held[tokens[2]](self._on_ack, subject, reply, header, payload, origin)
        handler.handle(subject, tokens[5], reply, payload)
        return True

    def _on_acks(self, subject: bytes, run: PublishRun) -> None:
        tokens = run.subject(0).split(b".", 4)
        handler = self._acks.get((tokens[2], tokens[3]))
        if handler is not None and tokens[2] not in self._held and handler.handle_run(run):
            return
        for _, its_subject, reply, header, payload in run.ops():
            self._on_ack(its_subject, reply, header, payload, None)


def _ack_subject(stream: bytes, consumer: bytes) -> bytes:
    return b"%b%b.%b.>" % (_ACK, stream, consumer)
