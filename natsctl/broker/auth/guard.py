"""Delivery to a session that is held to permissions: a handler stands in the routing table instead of its subscription.

Only subscriptions that need it have one: those that match more than may be delivered, and all of a session that may
answer what it receives. The delivery to everybody else pays nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from natsctl.broker.subscription import Subscription

if TYPE_CHECKING:
    from natsctl.broker.auth.permit import Permit
    from natsctl.broker.session import Session


class Guard(Subscription):
    """Handler in place of one subscription of a client: it checks each message and hands it on."""

    __slots__ = ("filters", "permit", "wider")

    def __init__(self, client: Subscription, permit: Permit) -> None:
        super().__init__(client.account, client.subject, client.queue, handler=self._take)
        self.client = client
        self.permit = permit
        self.filters = permit.must_filter(client.subject, client.queue)
        self.wider = permit.is_wider(client.subject)

    def _take(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> bool:
        client = self.client
        session = client.session if client is not None else None
        if (
            client is None
            or session is None
            or session.close_reason is not None
            or (session is origin and not session.echo)
        ):
            return False
        if self.filters and not self.permit.lets_through(subject, self.queue, self.wider):
            return False
        client.account.hand_over(client, subject, reply, header, payload)
        if reply:
            self.permit.note_reply(reply)
        return True


def guard_of(sub: Subscription, permit: Permit | None) -> Guard | None:
    """Return what has to stand for a client's subscription, None where messages may go to it directly."""
    if permit is None or (permit.replies is None and not permit.must_filter(sub.subject, sub.queue)):
        return None
    return Guard(sub, permit)
