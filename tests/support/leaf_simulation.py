"""Two servers joined as leaf nodes under random clients, cuts and power failures: one seed is one session.

Theory of operation. The servers `hub` and `edge` have JetStream in domains of these names, a simulated disk each, and
one clock. Each mirrors a stream of the other; the hub also sources one of the edge's, and drains its work queue.
Clients at both ends publish, delete, purge, fetch and acknowledge, at streams of their own server and, through the
link, at those of the other. The link is cut between two requests or while it carries, and comes back; either server
dies with its power, or by kill, at rest or inside a disk call, and the other goes on alone for a while.

Whenever both are up and at rest the models of `engine_ledger` check every stream as in `engine_simulation`: what was
acknowledged is there or has a reason to be gone, what is there was published, and once. Beyond that, a copy is never
ahead of its origin and has no gap where the origin has a message, and nothing leaves the work queue before the hub has
it. In the end the link stays, and within a bounded time every copy must be complete, the work queue empty, everything
delivered, and each side reach the streams of the other.
"""

import random
from typing import Any, Final

from natsctl.api import headers
from natsctl.jetstream.streams.stream import Stream
from natsctl.store.message import StoredMessage
from natsctl.store.options import StoreOptions
from tests.support.engine_clients import Client, Program
from tests.support.engine_model import ConsumerModel, StreamModel
from tests.support.engine_requests import Attempt, snapshot_of
from tests.support.engine_simulation import check_consumers, check_state
from tests.support.jet import SECOND, Jet, ok
from tests.support.leaf_servers import Server, Servers
from tests.support.simdisk import Crash, Journalling, SimDisk, crash_at, no_faults
from tests.support.store_model import Report, Violation, simulating

DOMAINS: Final = ("hub", "edge")
PATIENCE: Final = 12
"""Looks, five seconds apart, by which everything must have come to its end."""
CRASH_WITHIN: Final = 6
"""Rounds of requests in which a server is to stop inside a disk call."""
LIMITS: Final[tuple[dict[str, Any], ...]] = ({}, {}, {"max_msgs": 12}, {"max_msgs_per_subject": 2})
WINDOW: Final[dict[str, Any]] = {"duplicate_window": 10 * SECOND, "allow_rollup_hdrs": True}


class Side:
    """One of the two servers, with its disk, models and clients."""

    def __init__(self, domain: str, disk: SimDisk, options: StoreOptions) -> None:
        self.domain = domain
        self.disk = disk
        self.options = options
        self.models: dict[str, StreamModel] = {}
        self.consumers: list[ConsumerModel] = []
        self.server: Server | None = None
        self.local: Client
        """Works with the streams of this server."""
        self.remote: Client
        """Works with the streams of the other one, through the link."""

    @property
    def up(self) -> Server:
        assert self.server is not None
        return self.server

    def stream(self, name: str) -> Stream:
        """Return a stream; raises Violation when it is gone."""
        streams = self.up.machine.streams
        if name not in streams:
            raise Violation(f"{name} is gone")
        return streams[name]

    def collect(self) -> None:
        if self.server is not None:
            self.local.collect()
            self.remote.collect()


class LeafSession:
    def __init__(self, seed: int) -> None:
        self.report = Report(seed)
        self._work = random.Random(f"{seed}/leaf")
        self._faults = random.Random(f"{seed}/leaf faults")
        self._slow = random.Random(f"{seed}/leaf slow")
        self._servers = Servers()
        self._sides = [self._side(seed, domain) for domain in DOMAINS]
        self._hub, self._edge = self._sides
        self._cast()
        self._programs = {side.domain: Program(self._work, _origins(side), side.consumers) for side in self._sides}
        self._linked = True
        """Whether the link must exist as soon as both servers run."""

    def _side(self, seed: int, domain: str) -> Side:
        disk = SimDisk(random.Random(f"{seed}/{domain} disk"), self._faults.choice(list(Journalling)))
        sizes = (1024, 4096, 1 << 20)
        return Side(
            domain,
            disk,
            StoreOptions(
                segment_bytes=self._work.choice(sizes), reserve_bytes=4096, tail_index_bytes=512, page_bytes=64
            ),
        )

    def _cast(self) -> None:
        """Make the models: H and K at the hub, L and the work queue W at the edge, and their copies over there."""
        hub, edge, rng = self._hub, self._edge, self._work
        origin_h = StreamModel("H", {"name": "H", "subjects": ["h.>"], **WINDOW, **rng.choice(LIMITS)})
        bucket = {"max_msgs_per_subject": 3, "discard": "new", "deny_delete": True, "allow_direct": True}
        origin_k = StreamModel("K", {"name": "K", "subjects": ["$KV.K.>"], "allow_rollup_hdrs": True, **bucket})
        origin_l = StreamModel("L", {"name": "L", "subjects": ["l.>"], **WINDOW, **rng.choice(LIMITS)})
        queue = StreamModel("W", {"name": "W", "subjects": ["w.>"], "retention": "workqueue", **WINDOW})
        drain = _copy("D", queue, "sources", "edge")
        queue.may_go = lambda message: message.seq in self._sourced(drain)
        for model in (origin_h, origin_k, _copy("LM", origin_l, "mirror", "edge"), drain):
            hub.models[model.name] = model
        hub.models["LS"] = _copy("LS", origin_l, "sources", "edge")
        for model in (origin_l, queue, _copy("HM", origin_h, "mirror", "hub"), _copy("KM", origin_k, "mirror", "hub")):
            edge.models[model.name] = model
        hub.consumers = [ConsumerModel("HC", origin_h), ConsumerModel("HA", origin_h, "h.a")]
        edge.consumers = [ConsumerModel("LC", origin_l)]

    def _sourced(self, model: StreamModel) -> set[int]:
        """Return the sequences of its origin whose messages a stream holds now, or is known to have held."""
        held = {_source_seq(message) for message in model.history.values()}
        return held | {_source_seq(m) for m in snapshot_of(self._hub.stream(model.name).store).messages.values()}

    # A session

    def run(self) -> Report:
        """Live, be cut, fail and come to an end; raises Violation."""
        for side in self._sides:
            self._start(side)
        self._make()
        self._join()
        self._check_streams()
        for _ in range(self._work.randint(3, 6)):
            self._live()
            self._fail()
        self._finish()
        return self.report

    def _start(self, side: Side) -> None:
        side.server = self._servers.start(side.domain, side.domain, disk=side.disk, store=side.options)
        if side.up.machine.report.damaged:
            raise Violation(f"refused after a crash: {side.up.machine.report.damaged}")
        other = next(each for each in self._sides if each is not side)
        side.local = Client(side.up.machine, f"{side.domain}1")
        side.remote = Client(side.up.machine, f"{side.domain}2", f"$JS.{other.domain}.API")

    def _make(self) -> None:
        for side in self._sides:
            jet = Jet(side.up.machine)
            for model in side.models.values():
                ok(jet.api(f"STREAM.CREATE.{model.name}", model.config))
            for consumer in side.consumers:
                jet.consumer(consumer.name, consumer.model.name, **consumer.config)
            jet.wire.close()

    def _join(self) -> None:
        if self._linked and not self._servers.cables and all(side.server for side in self._sides):
            self._servers.join(self._edge.up, self._hub.up)

    def _live(self) -> None:
        for _ in range(self._work.randint(2, 10)):
            self.report["steps"] += 1
            kind = self._work.choice(("ask",) * 7 + ("time",) * 3 + ("cut",) + ("break",) * 3)
            if kind == "time":
                self._servers.advance(self._work.choice((0.3, 1, 3)))
            elif kind == "cut":
                self._cut()
            else:
                if kind == "break" and self._servers.cables:
                    self._servers.cables[0].left = self._work.choice((0, 50, 400, 1500))
                self._ask(self._sides)
                self._servers.settle()
                self._mend()
            self._check_streams()

    def _cut(self) -> None:
        self._linked = not self._linked
        if not self._linked:
            self.report["cuts"] += 1
            for cable in self._servers.cables:
                cable.cut()
        self._mend()

    def _mend(self) -> None:
        """Make the link anew after a break, as the edge would."""
        self.report["breaks"] += sum(cable.left == 0 for cable in self._servers.cables)
        self._servers.cables = [cable for cable in self._servers.cables if not cable.cut_off]
        for cable in self._servers.cables:
            cable.left = None
        self._servers.settle()
        self._join()

    def _ask(self, sides: list[Side]) -> None:
        """Run clients of some sides, one after the other, on disks that may be slow."""
        slow = self._slow if self._work.random() < 0.5 else None
        for side in sides:
            side.up.machine.slow = slow
        for _ in range(self._work.randint(1, 6)):
            side, remote = self._work.choice(sides), self._work.random() < 0.5
            domain = side.domain if not remote else next(d for d in DOMAINS if d != side.domain)
            self._programs[domain].act(side.remote if remote else side.local)
            self._servers.settle()
            for each in self._sides:  # what one client is sent before another one's ack comes before the ack's answer
                each.collect()
        for side in sides:
            side.up.machine.slow = None

    # Failures

    def _fail(self) -> None:
        """Crash one server, at rest or at work, and start it again while the other may go on alone."""
        dying = self._faults.choice(self._sides)
        how = self._faults.choice(("rest", "crash", "crash", "stall"))
        if how == "crash":
            self._crash(dying)
        elif how == "stall":
            self._stall(dying)
        self._die(dying)
        for _ in range(self._work.choice((0, 0, 1, 3))):
            if self._work.random() < 0.3:
                self._servers.advance(1)
            else:
                self._ask([side for side in self._sides if side is not dying])
                self._servers.settle()
        self._start_again(dying)
        self._mend()
        self._check_streams()
        self._servers.advance(1)
        self._check_streams()

    def _crash(self, side: Side) -> None:
        """Run a server until it stops inside a disk call, or for a while."""
        side.disk.plan = crash_at(self._faults.randint(1, 60))
        try:
            for _ in range(CRASH_WITHIN):
                self._ask(self._sides)
                self._servers.settle()
        except Crash:
            self.report["crashes"] += 1
        for each in self._sides:
            each.up.machine.slow = None
        side.disk.plan = no_faults

    def _stall(self, side: Side) -> None:
        """Advance time while the disk of a server does not answer."""
        self.report["stalls"] += 1
        side.up.machine.hold_commits = True
        for _ in range(self._faults.randint(1, 4)):
            self._ask([each for each in self._sides if each is not side])
        self._servers.advance(self._faults.choice((0.3, 2, 2, 4)))

    def _die(self, side: Side) -> None:
        for each in self._sides:
            each.collect()
        side.server = None
        if self._faults.random() < 0.7:
            self.report["power_losses"] += 1
            side.disk.power_loss()
        else:
            self.report["kills"] += 1
            side.disk.kill()
        self._servers.lose(side.domain)
        self._servers.settle()
        for each in self._sides:
            for model in each.models.values():
                model.step.crashed = True  # what was on its way to it is as uncertain as what it did

    def _start_again(self, side: Side) -> None:
        for _ in range(2):
            if self._faults.random() < 0.3:
                side.disk.plan = crash_at(self._faults.randint(1, 30))
                try:
                    self._start(side)
                    break
                except Crash:
                    self.report["crashed_starts"] += 1
                    side.disk.power_loss()
        side.disk.plan = no_faults
        if side.server is None:
            self._start(side)
        for consumer in side.consumers:
            consumer.held.clear()

    # Judging

    def _check_streams(self) -> None:
        self._servers.settle()
        for side in self._sides:
            side.collect()
            if side.up.machine.store.faults:
                raise Violation(f"{side.domain} is fenced off: {side.up.machine.store.faults}")
        places = [(side, model) for side in self._sides for model in side.models.values()]
        for side, model in sorted(places, key=lambda place: place[1].origin is not None):
            self._count(model)
            model.take_config(side.stream(model.name).config)  # the answer to a change may have been cut off
            snapshot = snapshot_of(side.stream(model.name).store)
            model.judge(snapshot, self._servers.clock.now_ns())
            if model.origin is not None:
                check_copy(model)
        for side in self._sides:
            jet = Jet(side.up.machine)
            for model in side.models.values():
                check_state(model, jet)
                consumers = [consumer for consumer in side.consumers if consumer.model is model]
                check_consumers(consumers, side.stream(model.name), jet, model.before)
            jet.wire.close()

    def _count(self, model: StreamModel) -> None:
        for attempt in model.step.attempts:
            self.report["acks"] += bool(attempt.acked_seq)
            self.report["acks_over_the_link"] += bool(attempt.acked_seq) and attempt.far
            self.report["unanswered"] += attempt.answer is None

    # The end

    def _finish(self) -> None:
        """With the link there, everything must arrive, and each side reach the other's streams."""
        self._linked = True
        self._mend()
        for _ in range(PATIENCE):
            self._servers.advance(5)
            for side in self._sides:
                self._consume(side)
            self._check_streams()
        for side in self._sides:
            for model in side.models.values():
                self._check_end(model)
            self._reach(side)
        for side in self._sides:
            for consumer in side.consumers:
                self.report["deliveries"] += len(consumer.delivered)
                wanted = {m.seq for m in consumer.model.before.messages.values() if consumer.takes(m)}
                if missed := wanted - consumer.delivered:
                    raise Violation(f"{consumer.name} never delivered {sorted(missed)}")

    def _consume(self, side: Side) -> None:
        """Fetch what the consumers of the other side have, through the link, and acknowledge it."""
        for consumer in next(each for each in self._sides if each is not side).consumers:
            side.remote.fetch(consumer, 100)
            self._servers.settle()
            side.remote.collect()
            for seq, message in consumer.held:
                side.remote.ack(consumer, seq, message, b"+ACK", confirm=True)
            consumer.held.clear()
            self._servers.settle()

    def _check_end(self, model: StreamModel) -> None:
        if model.origin is None:
            if model.config.get("retention") == "workqueue" and model.before.messages:
                raise Violation(f"{model.name} still holds {sorted(model.before.messages)}, and the link is there")
            return
        theirs = model.origin.before
        self.report["copied"] += len(model.before.messages)
        self.report["drained"] += len(model.before.messages) if model.name == "D" else 0
        if model.mirrors:
            model.check_end()
        elif missed := {seq for seq in theirs.messages if seq > model.sourced_seq}:
            raise Violation(f"{model.name} has not sourced {sorted(missed)}")

    def _reach(self, side: Side) -> None:
        """Publish to the streams of the other side, through the link."""
        for model in next(each for each in self._sides if each is not side).models.values():
            if model.origin is None and "max_msgs" not in model.config and model.name != "K":
                attempt = Attempt(b"last %b" % model.name.encode(), f"{model.prefix}.end".encode(), b"", b"")
                side.remote.publish(attempt, model)
                self._servers.settle()
                side.remote.collect()
                if not attempt.acked_seq:
                    raise Violation(f"{model.name} is not reached through the link: {attempt.answer}")


def _origins(side: Side) -> dict[str, StreamModel]:
    return {name: model for name, model in side.models.items() if model.origin is None}


def _copy(name: str, origin: StreamModel, kind: str, domain: str) -> StreamModel:
    """Return a mirror, or a stream that sources another one, of the other domain."""
    theirs: dict[str, Any] = {"name": origin.name, "external": {"api": f"$JS.{domain}.API", "deliver": ""}}
    return StreamModel(name, {"name": name, kind: theirs if kind == "mirror" else [theirs]}, origin)


def _source_seq(message: StoredMessage) -> int:
    source = (headers.get(message.header, headers.STREAM_SOURCE) or b"").split(b" ")
    return int(source[1]) if len(source) > 1 else 0


def check_copy(model: StreamModel) -> None:
    """Compare a mirror, or a stream with a source, with its origin; raises Violation."""
    assert model.origin is not None
    theirs = model.origin.before
    ends = model.before.last_seq if model.mirrors else model.sourced_seq
    if ends > theirs.last_seq:
        raise Violation(f"{model.name} has {ends} of its origin, which ends at {theirs.last_seq}")
    held = model.before.messages.keys() if model.mirrors else {_source_seq(m) for m in model.before.messages.values()}
    if missed := {seq for seq in theirs.messages if seq <= ends} - held:
        raise Violation(f"{model.name} has come to {ends} of its origin and lacks {sorted(missed)}")


simulate_leaf = simulating(LeafSession)
