"""Simulation of a whole server under random clients and random disasters: one seed is one reproducible session.

Theory of operation. A session is several lives of one simulated disk. Its *cast* is a handful of streams that have
between them what streams can do: limits of every kind, work queue, interest, counters, a mirror and a stream with a
source. In a life the clients of `engine_clients` send requests, several at a time, so that one commit holds much; then
time may pass. A life ends by a crash inside a disk call, by kill or power loss at rest, or cleanly; the start after it
may be interrupted by another crash. After each step, and after each start, the models of `engine_model` check streams
and consumers. At random rests a server is started on the synced image of the disk alone: what it lacks was promised too
early. A last life without crashes must bring everything to its end. Time slices are so small that a few messages take
many (`small_steps`). Between the requests of a step another connection reads blocks of the log (ADR 0027).
"""

import contextlib
import random
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final
from unittest import mock

from natsctl.jetstream.streams.stream import Stream
from natsctl.store.options import StoreOptions
from natsctl.store.packed import MAGIC as PACKED
from tests.support.clock import VirtualClock
from tests.support.engine_clients import SECOND, Client, Program, draw_cast
from tests.support.engine_model import ConsumerModel, StreamModel, retention_of
from tests.support.engine_requests import Snapshot, size_of, snapshot_of
from tests.support.jet import Jet, ok
from tests.support.machine import Machine
from tests.support.simdisk import Crash, Journalling, SimDisk, crash_at, no_faults
from tests.support.store_model import Report, Violation, simulating

SIZES: Final = {
    "STEP": 2,
    "BULK_STEP": 3,
    "LOOK_STEP": 2,
    "QUICK_LOOK_STEP": 2,
    "FIRST_SLICE": 2,
    "SLICE": 2,
    "GONE_STEP": 2,
    "PRUNE_STEP": 2,
}
"""Names of the step sizes in `store.steps`, `jetstream.work` and the modules that work in steps."""


@contextlib.contextmanager
def small_steps() -> Iterator[None]:
    """Limit every job to one step of a few messages in each turn."""
    with contextlib.ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            for size in SIZES if name.startswith("natsctl.") else ():
                if isinstance(getattr(module, size, None), int):
                    stack.enter_context(mock.patch.object(module, size, SIZES[size]))
        yield


DISK_IMAGE_SHARE: Final = 0.06
"""Probability that a server is started on the durable files at a rest."""
INFO_SHARE: Final = 0.3
"""Probability that a stream's info is checked; after a crash always."""
SLICED_SHARE: Final = 0.5
"""Share of sessions with every long job in slices of a message or two, so that crashes come between them."""
BLOCKS_SHARE: Final = 0.8
"""Probability that blocks are read between two requests."""
PATIENCE: Final = 12
"""Looks at the end of a session by which everything must have come to its end."""


class EngineSession:
    def __init__(self, seed: int) -> None:
        self.report = Report(seed)
        self._work = random.Random(f"{seed}/engine")
        self._faults = random.Random(f"{seed}/engine faults")
        self._slices = random.Random(f"{seed}/engine slices")
        self._clock = VirtualClock()
        self._disk = SimDisk(random.Random(f"{seed}/engine disk"), self._faults.choice(list(Journalling)))
        sizes = (1024, 4096, 16384, 1 << 20)
        self._options = StoreOptions(
            segment_bytes=self._work.choice(sizes),
            reserve_bytes=4096,
            tail_index_bytes=512,
            block_bytes=self._work.choice((200, 1000, 65536)),
            page_bytes=64,
        )
        self._slow = random.Random(f"{seed}/engine slow")
        self._reads = random.Random(f"{seed}/engine blocks")
        self._models, consumers = draw_cast(self._work)
        self._consumers: dict[str, list[ConsumerModel]] = {name: [] for name in self._models}
        for consumer in consumers:
            self._consumers[consumer.model.name].append(consumer)
        for name, model in self._models.items():
            retention_of(model, self._consumers[name])
        self._program = Program(self._work, self._models, consumers)
        self._lost: tuple[str, dict[str, Any], bytes] | None = None
        self._machine: Machine
        self._client: Client
        self._reader: Client

    # A session and its lives

    def run(self) -> Report:
        """Live several times and come to an end; raises Violation."""
        sliced = self._slices.random() < SLICED_SHARE
        with small_steps() if sliced else contextlib.nullcontext():
            self._start()
            self._make_cast()
            for _ in range(self._work.randint(2, 5)):
                self._live()
                self._end_life()
                self._start_again()
            self._finish()
        self.report["sliced"] = sliced
        self.report["packed_files"] = sum(data.startswith(PACKED) for data in self._disk.contents())
        return self.report

    def _start(self) -> None:
        self._machine = Machine(self._disk, self._clock, self._work.getrandbits(32), self._options)
        self._client = Client(self._machine)
        self._reader = Client(self._machine, "b")

    def _make_cast(self) -> None:
        jet = Jet(self._machine)
        for model in self._models.values():
            ok(jet.api(f"STREAM.CREATE.{model.name}", model.config))
            for consumer in self._consumers[model.name]:
                jet.consumer(consumer.name, model.name, **consumer.config)
        self._judge()

    def _live(self) -> None:
        self.report["lives"] += 1
        steps = self._work.randint(4, 25)
        crash_step = self._faults.randint(1, int(steps * 1.5))
        for number in range(1, steps + 1):
            self.report["steps"] += 1
            if number == crash_step:
                self._disk.plan = crash_at(self._faults.randint(1, 40))
            try:
                self._step()
            except Crash:
                self.report["crashes"] += 1
                for model in self._models.values():
                    model.step.crashed = True
                return
            if self._disk.plan is no_faults:
                self._judge()
        self._judge_if_whole()

    def _judge_if_whole(self) -> None:
        self._disk.plan = no_faults
        self._judge()

    def _step(self) -> None:
        kind = self._work.choice(("ask",) * 8 + ("time",) * 3 + ("restore",))
        if kind == "time":
            self._machine.advance(int(self._work.choice((0.3, 1, 3, 12)) * SECOND))
        elif kind == "restore":
            self._restore()
        else:
            how = self._work.choice(("alone", "alone", "together", "slow", "slow"))
            self._machine.hold_commits = how == "together"
            self._machine.slow = self._slow if how == "slow" else None
            self.report["slow_steps"] += how == "slow"
            for _ in range(1 if how == "alone" else self._work.randint(1, 6)):
                self._program.act(self._client)
                if how != "slow":
                    self._read_blocks()
            self._machine.hold_commits, self._machine.slow = False, None
            self._machine.settle()

    def _read_blocks(self) -> None:
        """Ask for blocks at times, but not where a crash is planned, whose moment the reads would shift."""
        if self._disk.plan is not no_faults or self._reads.random() > BLOCKS_SHARE:
            return
        model = self._models[self._reads.choice(sorted(self._models))]
        first = self._reads.randint(1, model.before.last_seq + 1)
        last = self._reads.choice((0, 0, first + self._reads.randint(0, 9)))
        filters = self._reads.choice(([], [f"{model.prefix}.{model.tails[0]}"]))
        wish = {"seq": first, "last_seq": last, "filters": filters, "max_bytes": self._reads.choice((0, 0, 300))}
        self._reader.read_blocks(model, wish)

    def _end_life(self) -> None:
        """Stop the server in one of the ways in which servers stop."""
        self._disk.plan = no_faults
        self._client.collect()
        kind = self._faults.choice(("kill", "kill", "power", "power", "clean"))
        if kind == "clean" and not any(model.step.crashed for model in self._models.values()):
            self.report["clean_stops"] += 1
            self._machine.engine.shut_down()
            self._machine.settle()
            self._machine.store.close()
            self._disk.kill()
        elif kind == "power":
            self.report["power_losses"] += 1
            self._disk.power_loss()
        else:
            self.report["kills"] += 1
            self._disk.kill()

    def _start_again(self) -> None:
        if self._work.random() < 0.3:
            self._clock.advance(self._work.randint(1, 10) * SECOND)
        while self._faults.random() < 0.3:
            self._disk.plan = crash_at(self._faults.randint(1, 30))
            try:
                self._start()
                break
            except Crash:
                self.report["crashed_starts"] += 1
                (SimDisk.power_loss if self._faults.random() < 0.5 else SimDisk.kill)(self._disk)
        else:
            self._disk.plan = no_faults
            self._start()
        self._disk.plan = no_faults
        if self._machine.report.damaged:
            raise Violation(f"refused after a crash: {self._machine.report.damaged}")
        self._find_lost()
        for model in self._models.values():
            model.step.crashed = True
            model.take_config(self._stream(model.name).config)
        for consumers in self._consumers.values():
            for consumer in consumers:
                consumer.held.clear()
        self._judge()
        self._machine.advance(SECOND)
        self._judge()

    # Judging

    def _stream(self, name: str) -> Stream:
        streams = self._machine.streams
        if name not in streams:
            raise Violation(f"{name} is gone")
        return streams[name]

    def _judge(self) -> None:
        if self._machine.store.faults:
            raise Violation(f"fenced off although the disk did nothing wrong: {self._machine.store.faults}")
        self._client.collect()
        self._reader.collect()
        jet = Jet(self._machine)
        for model in self._models.values():
            look = model.step.crashed or self._faults.random() < INFO_SHARE
            snapshot = snapshot_of(self._stream(model.name).store)
            self._count(model)
            model.judge(snapshot, self._clock.now_ns())
            if look:
                check_state(model, jet)
                check_consumers(self._consumers[model.name], self._stream(model.name), jet, model.before)
        jet.wire.close()
        if self._faults.random() < DISK_IMAGE_SHARE:
            self._check_disk_image()

    def _count(self, model: StreamModel) -> None:
        self.report["blocks"] += sum(len(read.messages) for read in model.step.blocks)
        for attempt in model.step.attempts:
            self.report["acks"] += bool(attempt.acked_seq)
            self.report["refusals"] += attempt.refused
            self.report["unanswered"] += attempt.answer is None

    def _check_disk_image(self) -> None:
        """Start on what is durable now and nothing else: every message must be there, and known ids refused."""
        self.report["disk_image_checks"] += 1
        twin = Machine(self._disk.synced_image(self.report.seed), self._clock, 1, self._options)
        if twin.report.damaged:
            raise Violation(f"the synced image alone is damaged: {twin.report.damaged}")
        for name, model in self._models.items():
            stream = twin.streams[name]
            there = snapshot_of(stream.store).messages
            for seq, message in model.before.messages.items():
                if there.get(seq) != message and not model.may_go(message):
                    raise Violation(f"the synced image alone has {there.get(seq)} for {message} of {name}")
            for msg_id in model.ids:
                known = model.in_window(msg_id, self._clock.now_ns())
                if known and stream.dedupe.find(msg_id) != known:
                    raise Violation(f"the synced image alone does not know {msg_id!r} of {name}, {known}")

    # Backups

    def _restore(self) -> None:
        """Delete a stream and make it again from its backup; what a crash interrupts is done by the next life."""
        names = [name for name, model in self._models.items() if model.origin is None and name != "A"]
        name = self._work.choice(names)
        plan, self._disk.plan = self._disk.plan, no_faults
        self._judge()
        jet = Jet(self._machine)
        document, archive = jet.backup(name)
        self._disk.plan = plan
        self._lost = (name, document, archive)
        self._models[name].restored()
        ok(jet.api(f"STREAM.DELETE.{name}"))
        self._upload(jet)
        self._lost = None

    def _upload(self, jet: Jet) -> None:
        assert self._lost is not None
        name, document, archive = self._lost
        to = ok(jet.api(f"STREAM.RESTORE.{name}", document))["deliver_subject"]
        for at in range(0, len(archive), 2000):
            jet.wire.request(to, archive[at : at + 2000])
        ok(jet.wire.request(to))
        self.report["restores"] += 1

    def _find_lost(self) -> None:
        """Restore a stream whose deletion was interrupted, unless it is still, or again, there."""
        if self._lost is not None:
            if self._lost[0] not in self._machine.streams:
                self._upload(Jet(self._machine))
            self._lost = None

    # The end

    def _finish(self) -> None:
        """Without crashes everything must arrive, and every consumer must come to its end."""
        for _ in range(PATIENCE):
            self._machine.advance(5 * SECOND)
            for consumers in self._consumers.values():
                for consumer in consumers:
                    self._client.fetch(consumer, 100)
                    self._client.collect()
                    for seq, message in consumer.held:
                        self._client.ack(consumer, seq, message, b"+ACK", confirm=True)
                    consumer.held.clear()
            self._judge()
        for name, model in self._models.items():
            self._check_end(name, model)

    def _check_end(self, name: str, model: StreamModel) -> None:
        for consumer in self._consumers[name]:
            self.report["deliveries"] += len(consumer.delivered)
            wanted = {m.seq for m in model.before.messages.values() if consumer.takes(m)}
            if missed := wanted - consumer.delivered:
                raise Violation(f"{consumer.name} never delivered {sorted(missed)}")
        if model.origin is not None and model.mirrors:
            model.check_end()
        elif model.origin is not None:
            theirs = model.origin.before
            reported = Jet(self._machine).api(f"STREAM.INFO.{name}")["sources"][0].get("seq", 0)
            if max(model.sourced_seq, reported) < max(theirs.messages, default=0):
                raise Violation(f"{name} has sourced up to {reported}, its origin ends at {theirs.last_seq}")


def check_state(model: StreamModel, jet: Jet) -> None:
    """Compare a stream's info with a recount of its messages."""
    asked = {"deleted_details": True, "subjects_filter": ">"}
    state = ok(jet.api(f"STREAM.INFO.{model.name}", asked))["state"]
    messages = model.before.messages
    counts: dict[str, int] = {}
    for message in messages.values():
        counts[message.subject.decode()] = counts.get(message.subject.decode(), 0) + 1
    first_seq = min(messages, default=model.before.last_seq + 1)
    deleted = [seq for seq in range(first_seq, model.before.last_seq + 1) if seq not in messages]
    reported = (state["messages"], state["bytes"], state["last_seq"], state.get("num_subjects", 0))
    recount = (len(messages), sum(map(size_of, messages.values())), model.before.last_seq, len(counts))
    if reported != recount or (messages and state["first_seq"] != first_seq):
        raise Violation(f"{model.name} reports {state}, a recount {recount} from {first_seq}")
    if (state.get("subjects") or {}) != counts or (state.get("deleted") or []) != deleted:
        raise Violation(f"{model.name} reports {state}, a recount {counts}, {deleted}")


def check_consumers(consumers: Iterable[ConsumerModel], stream: Stream, jet: Jet, held: Snapshot) -> None:
    """Compare the info of a stream's consumers with the stream's messages."""
    for consumer in consumers:
        if consumer.name not in stream.consumers:
            raise Violation(f"consumer {consumer.name} is gone")
        consumer.check(stream.consumers[consumer.name], jet.info(consumer.name, stream.name), held)


simulate_engine = simulating(EngineSession)
