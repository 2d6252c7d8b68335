"""Where pull requests and acks of one account arrive, and from where they go to the consumers that they name.

Theory of operation. A subscription costs more than a consumer that does nothing, so consumers have none of their own
for what every one of them takes: the account has one for each kind of subject, and a dictionary from `STREAM.CONSUMER`
to who takes it. A name that is not there is "not mine", so that whoever asked is told that nobody responds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api.subjects import API_PREFIX, LEGACY_NEXT_PREFIX

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.session import Session
    from natsctl.broker.subscription import Handler

_NEXT: Final = f"{API_PREFIX}.CONSUMER.MSG.NEXT.".encode()
_LEGACY_NEXT: Final = f"{LEGACY_NEXT_PREFIX}.".encode()
_ACK: Final = b"$JS.ACK."


class ConsumerDesk:
    """Hands on what arrives for the consumers of one account."""

    __slots__ = ("_acks", "_requests")

    def __init__(self, account: Account) -> None:
        """Subscribe once for all consumers that will be."""
        self._requests: dict[bytes, Handler] = {}
        self._acks: dict[bytes, Handler] = {}
        account.subscribe(_NEXT + b"*.*", self._on_request)
        account.subscribe(_LEGACY_NEXT + b"*.*", self._on_legacy_request)
        account.subscribe(_ACK + b"*.*.>", self._on_ack)

    def enter(self, name: bytes, on_request: Handler, on_ack: Handler | None) -> None:
        """Hand on what names a consumer, `STREAM.CONSUMER`, from now on; without `on_ack` nobody takes its acks."""
        self._requests[name] = on_request
        if on_ack is not None:
            self._acks[name] = on_ack

    def leave(self, name: bytes) -> None:
        """Hand on nothing for a consumer any more."""
        self._requests.pop(name, None)
        self._acks.pop(name, None)

    def _on_request(
        self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool | None:
        taker = self._requests.get(subject[len(_NEXT) :])
        return taker(subject, reply, header, payload, origin) if taker is not None else False

    def _on_legacy_request(
        self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool | None:
        taker = self._requests.get(subject[len(_LEGACY_NEXT) :])
        return taker(subject, reply, header, payload, origin) if taker is not None else False

    def _on_ack(
        self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool | None:
        end = subject.find(b".", subject.find(b".", len(_ACK)) + 1)
        taker = self._acks.get(subject[len(_ACK) : end])
        return taker(subject, reply, header, payload, origin) if taker is not None else False
