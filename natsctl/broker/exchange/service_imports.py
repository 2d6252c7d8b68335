"""Services of other accounts, asked in this one.

Theory of operation. An import is a handler subscription here. A request that it takes is published in the exporting
account, with who asks in its header and with a reply from which responses find their way back (service_responses.py);
it counts as taken where somebody takes it there, so that who asks in vain is told so at once. A request that comes
through a service for the second time has gone in a circle and ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from natsctl.api.subjects import has_wildcard
from natsctl.broker.exchange.hops import Hop
from natsctl.broker.exchange.import_subjects import PatternMapping
from natsctl.broker.exchange.requester import requester_info, with_info
from natsctl.broker.exchange.service_latency import BAD_REQUEST, UNAVAILABLE, Sample, is_measured, tell_failure
from natsctl.broker.subscription import Subscription

if TYPE_CHECKING:
    from natsctl.api.advisories import ClientInfo
    from natsctl.broker.account import Account
    from natsctl.broker.exchange.import_plan import ServiceLink
    from natsctl.broker.session import Session

_ACKS: Final = b"$JS.ACK."
"""Replies that are left as they are: a consumer's messages on their way through another account."""
FAST_BATCH: Final = b".$FI"
"""Ends of replies that carry meaning of their own: a stream has to see them."""


class ServiceDoor(Subscription):
    """One import of a service."""

    __slots__ = ("_dest", "_exporter", "_mapping", "_service", "link")

    def __init__(self, importer: Account, link: ServiceLink, exporter: Account) -> None:
        super().__init__(importer, link.local.encode(), handler=self._take)
        self.foreign = True
        self.link = link
        self._exporter = exporter
        self._service = (link.account, link.export.subject)
        self._dest = b"" if has_wildcard(link.subject) else link.subject.encode()
        self._mapping = PatternMapping(link.local, link.destination) if link.destination else None

    def _destination(self, subject: bytes) -> bytes:
        if self._mapping is not None:
            return self._mapping.apply(subject) or subject
        return self._dest or subject

    def _take(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> bool:
        importer, exporter = self.account, self._exporter
        at = importer.destination(subject)
        before = exporter.broker.hops.of(at)
        if before is not None and before.passed(self._service):
            return False
        info, share = self._who(before, origin)
        if before is None and reply.endswith(FAST_BATCH):
            info.reply = reply.decode("utf-8", "replace")
        sample, waiting = self._sample(header, origin, reply), None
        if reply and not reply.startswith(_ACKS):
            measured = sample is not None
            waiting = exporter.exchange.responses.expect(importer, reply, self._service, self.link.export, measured)
            waiting.sample = sample
        to = exporter.mapped(self._destination(at))
        hop = Hop(before, self._service, info, share, before.depth + 1 if before is not None else 1)
        block = with_info(header, info)
        exporter.broker.hops.enter(to, hop)
        try:
            shown = to if at is subject else subject
            taken = exporter.relay(to, shown, waiting.subject if waiting else reply, block, payload, origin, None)
        finally:
            exporter.broker.hops.leave()
        if waiting is None and sample is not None and not reply:
            tell_failure(exporter, sample, BAD_REQUEST)
        if not taken and waiting is not None:
            exporter.exchange.responses.give_up(waiting, UNAVAILABLE)
        return taken > 0

    def _who(self, before: Hop | None, origin: Session | None) -> tuple[ClientInfo, bool]:
        """Return the facts about the requester for the service, and whether they are complete."""
        broker, link = self._exporter.broker, self.link
        if before is None or before.info is None:
            info, share = requester_info(broker, self.account, origin, link.share), link.share
        else:
            info, share = msgspec.structs.replace(before.info, svc=self.account.name), before.share
        if not share and (self._exporter is broker.system_account or (before is not None and link.share)):
            info.server = broker.server_name
        return info, share

    def _sample(self, header: bytes, origin: Session | None, reply: bytes) -> Sample | None:
        latency, exporter = self.link.export.latency, self._exporter
        if latency is None:
            return None
        measured, trace = is_measured(exporter, latency, header)
        if not measured:
            return None
        requestor = requester_info(exporter.broker, self.account, origin, self.link.share)
        return Sample(latency.subject, requestor, exporter.broker.clock.now_ns(), trace)
