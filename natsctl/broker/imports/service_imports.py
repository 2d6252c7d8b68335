"""Imports of services: requests to other accounts, and the responses that find their way back.

Theory of operation. An import is a handler subscription in the importing account. A request that it receives is
published in the exporting account, with the requester in its header and with a reply of the form
`_R_.<account>.<request>`; it counts as delivered if a subscriber receives it there, so that a requester without a
responder is notified immediately. A request that passes a service for the second time is a loop and ends.

One handler for the exporting account's prefix receives all responses, looks up the requester, and publishes them in
the requester's account on its own reply. A pending request is dropped after the response (for services of one
response), after an empty message (for streamed responses), when the reply has no subscriber any more, when a response
reached no subscriber, and when the export's threshold has passed without one. Clients may not publish with such a
reply, so that no client can make a service answer for another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from natsctl.api.subject_index import Steps
from natsctl.api.subject_transform import SubjectMapping
from natsctl.broker.imports.account_imports import REPLIES_STEP, AccountImports, ImportHop
from natsctl.broker.imports.service_latency import (
    BAD_REQUEST,
    INTEREST_LOST,
    TIMEOUT,
    UNAVAILABLE,
    Sample,
    draw_digits,
    hash_digits,
    is_measured,
    publish_failure,
    publish_success,
)
from natsctl.broker.info import requester_info, with_info
from natsctl.broker.ordered_jobs import begun
from natsctl.broker.subscription import RoutedSubscription

if TYPE_CHECKING:
    from collections.abc import Sequence

    from natsctl.api.advisories import ClientInfo
    from natsctl.broker.account import Account
    from natsctl.broker.imports.account_config import ServiceExport
    from natsctl.broker.imports.import_plan import ServiceLink
    from natsctl.broker.message_trace import MessageTrace
    from natsctl.broker.routes import Routes
    from natsctl.broker.session import Session


_ACKS: Final = b"$JS.ACK."
"""Replies that are left as they are: a consumer's messages on their way through another account."""
FAST_BATCH: Final = b".$FI"
"""Ends of replies that carry meaning of their own: a stream has to see them."""


class ServiceProxy(RoutedSubscription):
    __slots__ = ("_dest", "_exporter", "_importer", "_mapping", "_service", "active", "link")
    leads_on = True

    def __init__(self, importer: AccountImports, link: ServiceLink, exporter: AccountImports) -> None:
        super().__init__(importer.account, link.local.encode())
        self.foreign = True
        self.active = False
        """Whether requests are handled: not before the import is in effect, nor after its end."""
        self.link = link
        self._importer = importer
        self._exporter = exporter
        self._service = (link.account, link.export.subject)
        self._dest = link.subject.encode() if link.destination is None else b""
        self._mapping: SubjectMapping | None = None
        if link.destination:
            self._mapping = SubjectMapping.compile(link.local, link.destination, literal=False)

    def _destination(self, subject: bytes) -> bytes:
        if self._mapping is not None:
            return subject if (to := self._mapping.apply(subject)) is None else to
        return self._dest or subject

    def onward(self, to: bytes) -> Sequence[tuple[Routes, bytes]]:
        if not self.active:
            return ()
        exporter = self._exporter.account
        self._exporter.take_responses()
        return [(exporter.routes, exporter.mapped_next(self._destination(to)))]

    def receive(
        self, to: bytes, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool:
        return self.active and self._request(to, subject, reply, header, payload, origin, None)

    def take_traced(self, trace: MessageTrace, message: tuple[bytes, bytes, bytes, bytes]) -> bool:
        return self.active and self._request(message[0], *message, trace.origin, trace)

    def _request(
        self,
        at: bytes,
        subject: bytes,
        reply: bytes,
        header: bytes,
        payload: bytes,
        origin: Session | None,
        trace: MessageTrace | None,
    ) -> bool:
        imports, exporter, hops = self._exporter, self._exporter.account, self._exporter.hops
        before = hops.of(at)
        if before is not None and before.passed(self._service):
            return False
        info, share = self._who(before, origin)
        if before is None and reply.endswith(FAST_BATCH):
            info.reply = reply.decode("utf-8", "replace")
        sample, waiting = self._sample(header, origin, reply), None
        if reply and not reply.startswith(_ACKS):
            measured = sample is not None
            waiting = imports.responses.expect(self._importer, reply, self._service, self.link.export, measured)
            waiting.sample = sample
        to = exporter.mapped(self._destination(at))
        hop = ImportHop(before, self._service, info, share, before.depth + 1 if before is not None else 1)
        block = with_info(header, info)
        hops.enter(to, hop)
        try:
            back = waiting.subject if waiting else reply
            if trace is not None:
                allowed = self.link.export.allow_trace
                taken = trace.through_service_import(exporter, allowed, at, (to, back, block, payload))
            else:
                shown = to if at == subject else subject
                taken = exporter.deliver(to, shown, back, block, payload, origin)
        finally:
            hops.leave()
        if waiting is not None and trace is not None and trace.only:
            waiting.sample, taken = None, 0  # nobody was asked
        if waiting is None and sample is not None and not reply:
            publish_failure(exporter, sample, BAD_REQUEST)
        if not taken and waiting is not None:
            imports.responses.give_up(waiting, UNAVAILABLE)
        return taken > 0

    def _who(self, before: ImportHop | None, origin: Session | None) -> tuple[ClientInfo, bool]:
        """Return the facts about the requester for the service, and whether they are complete."""
        exporter, link = self._exporter.account, self.link
        broker = exporter.broker
        if before is None or before.info is None:
            info, share = requester_info(broker.server_name, self.account.name, origin, link.share), link.share
        else:
            info, share = msgspec.structs.replace(before.info, svc=self.account.name), before.share
        if not share and (exporter is broker.system_account or (before is not None and link.share)):
            info.server = broker.server_name
        return info, share

    def _sample(self, header: bytes, origin: Session | None, reply: bytes) -> Sample | None:
        latency, exporter = self.link.export.latency, self._exporter.account
        if latency is None:
            return None
        measured, trace = is_measured(exporter, latency, header)
        if not measured:
            return None
        requestor = requester_info(exporter.broker.server_name, self.account.name, origin, self.link.share)
        return Sample(latency.subject, requestor, exporter.broker.clock.now_ns(), trace)


MAX_WAITING: Final = 131_072
"""Requests of one exporting account that may wait for responses (about 400 bytes each); the oldest is given up."""
_DIGITS: Final = 6
"""Random digits of an account's prefix, and of each request. Source: nats-server."""


class PendingRequest(msgspec.Struct, eq=False):
    subject: bytes
    requester: AccountImports
    reply: bytes
    service: tuple[str, str]
    export: ServiceExport
    since_ns: int
    sample: Sample | None = None
    """Latency sample if measured, until it is published."""


class ResponseRecipient(RoutedSubscription):
    """Handler of all responses of the services of one account."""

    __slots__ = ("_responses",)
    leads_on = True

    def __init__(self, account: Account, subject: bytes, responses: Responses) -> None:
        super().__init__(account, subject)
        self.foreign = True
        self._responses = responses

    def onward(self, to: bytes) -> Sequence[tuple[Routes, bytes]]:
        waiting = self._responses.get(to)
        if waiting is None:
            return ()
        requester = waiting.requester.account
        return [(requester.routes, requester.mapped_next(waiting.reply))]

    def receive(
        self, to: bytes, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool | None:
        return self._responses.receive(to, subject, reply, header, payload, origin)


class Responses:
    def __init__(self, imports: AccountImports) -> None:
        account, broker = imports.account, imports.account.broker
        self._imports = imports
        self._account = account
        self._by_subject: dict[bytes, PendingRequest] = {}
        self._prefix = f"_R_.{draw_digits(broker.secret_rng, _DIGITS)}.".encode()
        self._tail = f".{hash_digits(broker.server_name, 8)}.T".encode()
        self._look_ns = 0
        self._is_looking = False
        account.place(ResponseRecipient(account, self._prefix + b">", self))

    def __len__(self) -> int:
        return len(self._by_subject)

    def made(self, subject: bytes) -> bool:
        """Return whether a subject is one for responses to this account's services."""
        return subject.startswith(self._prefix)

    def get(self, subject: bytes) -> PendingRequest | None:
        return self._by_subject.get(subject)

    def expect(
        self,
        requester: AccountImports,
        reply: bytes,
        service: tuple[str, str],
        export: ServiceExport,
        measured: bool = False,
    ) -> PendingRequest:
        """Return a new subject for the responses to a request; they go to `reply` in the requester's account."""
        broker = self._account.broker
        if len(self._by_subject) >= MAX_WAITING:
            self.give_up(next(iter(self._by_subject.values())), TIMEOUT)
        subject = self._prefix + draw_digits(broker.secret_rng, _DIGITS).encode() + (self._tail if measured else b"")
        now_ns = broker.clock.monotonic_ns()
        waiting = self._by_subject[subject] = PendingRequest(subject, requester, reply, service, export, now_ns)
        self._look_by(now_ns + export.response_threshold_ns)
        requester.awaited.add(waiting, self)
        return waiting

    def receive(
        self, at: bytes, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None
    ) -> bool | None:
        """Pass a response on; one without a pending request is dropped, unless it is JetStream's."""
        exporter, hops = self._account, self._imports.hops
        waiting = self._by_subject.get(at)
        if waiting is None:
            return None if origin is not None else False
        before = hops.of(at)
        if before is not None and before.passed(waiting.service):
            return None
        requester = waiting.requester.account
        back = self._way_back(waiting, reply) if reply and not reply.startswith(_ACKS) else None
        self._measure(waiting, origin)
        to = requester.mapped(waiting.reply)
        hop = ImportHop(before, waiting.service, None, False, before.depth + 1 if before is not None else 1)
        hops.enter(to, hop)
        try:
            shown = to if at == subject else subject
            taken = requester.deliver(to, shown, back.subject if back else reply, header, payload, origin)
        finally:
            hops.leave()
        if not taken and back is not None:
            waiting.requester.responses.give_up(back, UNAVAILABLE)
        if not taken or waiting.export.response == "single" or not (header or payload):
            self.give_up(waiting, UNAVAILABLE)
        else:
            waiting.since_ns = exporter.broker.clock.monotonic_ns()
        return None if taken or origin is not None else False

    def _way_back(self, waiting: PendingRequest, reply: bytes) -> PendingRequest:
        responses = waiting.requester.responses
        return responses.expect(self._imports, reply, waiting.service, waiting.export)

    def _measure(self, waiting: PendingRequest, origin: Session | None) -> None:
        sample, waiting.sample = waiting.sample, None
        if sample is not None and origin is not None:
            exporter = self._account
            publish_success(
                exporter, sample, requester_info(exporter.broker.server_name, exporter.name, origin, detailed=True)
            )

    def give_up(self, waiting: PendingRequest, why: tuple[int, str]) -> None:
        """Stop waiting; no-op if already ended."""
        if self._by_subject.pop(waiting.subject, None) is None:
            return
        waiting.requester.awaited.discard(waiting)
        sample, waiting.sample = waiting.sample, None
        if sample is not None:
            publish_failure(self._account, sample, why)

    def unheard(self, waiting: PendingRequest) -> None:
        """Drop a pending request: the reply has no subscriber."""
        self.give_up(waiting, INTEREST_LOST)

    def tick(self) -> None:
        """Give up requests that have waited too long; like nats-server, within two thresholds."""
        now_ns = self._account.broker.clock.monotonic_ns()
        if not self._look_ns or now_ns < self._look_ns or self._is_looking:
            return
        self._look_ns, self._is_looking = 0, True
        if (rest := begun(self._looking(now_ns))) is not None:
            self._account.broker.long_work.add(rest, self._account)
            self._account.broker.jobs.wake()

    def _looking(self, now_ns: int) -> Steps[None]:
        for place, waiting in enumerate(tuple(self._by_subject.values()), 1):
            threshold_ns = waiting.export.response_threshold_ns
            if waiting.since_ns + threshold_ns <= now_ns:
                self.give_up(waiting, TIMEOUT)
            elif waiting.subject in self._by_subject:
                self._look_by(now_ns + threshold_ns)
            if not place % REPLIES_STEP:
                yield REPLIES_STEP
        self._is_looking = False

    def _look_by(self, at_ns: int) -> None:
        if not self._look_ns or at_ns < self._look_ns:
            self._look_ns = at_ns
