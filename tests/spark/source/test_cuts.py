"""However the rows of a write are cut into tasks, and however often it is killed and run again, each is stored once."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pytest

from natsctl.spark.source import acknowledged
from natsctl.spark.source.acknowledged import WINDOW, pack, parse_lines, unpack
from natsctl.spark.source.alike import publish_rest
from natsctl.spark.source.errors import PublishError
from natsctl.spark.source.jetstream_api import JetStreamApi
from natsctl.spark.source.source_options import BATCH_WRITE
from natsctl.spark.source.write_job import WriteJob, WrittenMessages, write_job
from natsctl.spark.source.writers import write_partition
from tests.spark.source.memory_server import Killed, MemoryServer, connected
from tests.spark.source.reads import parsed_schema
from tests.spark.source.streams import messages
from tests.support import tiers

SCHEMA = parsed_schema("subject string, value string")
CORES = 16
Row = tuple[str, str]


def job(**options: str) -> WriteJob:
    return write_job(
        {"stream": "OUT", "retryInterval": "0s", "numRetries": "9", "window": "6", **options}, BATCH_WRITE, SCHEMA
    )


def batches(rows: list[Row], chance: random.Random) -> Iterator[pa.RecordBatch]:
    start = 0
    while start < len(rows):
        some = rows[start : start + chance.randint(1, 9)]
        start += len(some)
        yield pa.RecordBatch.from_pydict({"subject": [row[0] for row in some], "value": [row[1] for row in some]})


@dataclass
class Run:
    """One attempt of a driver: its tasks with their rows, cut and ordered by chance."""

    job: WriteJob
    tasks: list[list[Row]]
    chance: random.Random

    def task(self, number: int) -> WrittenMessages:
        rows = self.chance.sample(self.tasks[number], len(self.tasks[number]))
        return write_partition(self.job, "w", number, batches(rows, self.chance))

    def finish(self) -> WrittenMessages | None:
        order = self.chance.sample(range(len(self.tasks)), len(self.tasks))
        return publish_rest(self.job, [self.task(number) for number in order])


def cut(rows: list[Row], cores: int, chance: random.Random, **options: str) -> Run:
    tasks: list[list[Row]] = [[] for _ in range(cores)]
    for row in rows:
        chance.choice(tasks).append(row)
    return Run(job(**options), tasks, chance)


def some_rows(chance: random.Random) -> list[Row]:
    alphabet = chance.choice([1, 3, 20, 1000])
    return [(f"out.{chance.randint(0, 2)}", f"v{chance.randrange(alphabet)}") for _ in range(chance.randint(1, 60))]


MOVES = {"src": "out.*", "dest": "out.0"}
"""A subject transform by which a stream stores all messages on another of its subjects, one that rows name as well."""


def killed(memory: MemoryServer, run: Run, chance: random.Random) -> None:
    """Run tasks, some of them twice, until the driver is killed somewhere, be it in its commit."""
    memory.lives = chance.randrange(len(memory.ever) + sum(map(len, run.tasks)) + 20)
    with suppress(Killed):
        for number in chance.sample(range(len(run.tasks)), min(2, len(run.tasks))):
            run.task(number)
        run.finish()
    memory.lives = None


FORGOTTEN = (35, 46)
"""Seeds by which a server that was away longer than its window stores a second message under an id."""


@pytest.mark.parametrize("seed", [*tiers.seeds(3, 24), *FORGOTTEN])
@pytest.mark.parametrize(("idempotence", "retention"), [("ids", "limits"), ("ledger", "limits"), ("ids", "workqueue")])
def test_each_row_is_stored_once_however_the_work_is_cut_and_killed(
    idempotence: str, retention: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    rows = some_rows(chance)
    if retention == "limits":  # else the driver cannot read what was consumed, and needs it from the tasks
        monkeypatch.setattr(acknowledged, "ROOM_BYTES", chance.choice([0, 300, 1 << 20]))
    moves = seed % 3 == 0
    with connected(MemoryServer(retention, MOVES if moves else None)) as memory:
        memory.breaks = chance if seed % 2 else None
        memory.outage_s = 1000.0 if idempotence == "ledger" else 0.0
        earlier = [
            cut(rows, chance.randint(1, CORES), chance, idempotence=idempotence) for _ in range(chance.randint(0, 2))
        ]
        for run in earlier:
            killed(memory, run, chance)
            memory.advance(60.0 if idempotence == "ledger" else 1.0)
            if retention == "workqueue":
                memory.consume()
        run = cut(rows, chance.randint(1, CORES), chance, idempotence=idempotence)
        done = [run.task(number) for number in range(len(run.tasks))]
        for late in earlier if idempotence == "ids" else ():  # the ledger is looked at when a task begins
            late.task(0)
        publish_rest(run.job, done)
        assert Counter(memory.ever) == wanted(rows, moves)
        cut(rows, chance.randint(1, CORES), chance, idempotence=idempotence).finish()
        assert len(memory.ever) == len(rows), seed


def test_a_message_that_stands_for_several_rows_and_is_gone_fails_the_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledged, "ROOM_BYTES", 0)
    run = Run(job(), [[("out.a", "v")], [("out.a", "v")]], random.Random(0))
    with connected(MemoryServer("workqueue")) as memory:
        done = [run.task(0), run.task(1)]
        memory.consume()
        with pytest.raises(PublishError, match="message 1 of OUT represents equal rows of several tasks"):
            publish_rest(run.job, done)


def test_a_stream_that_lost_what_it_acknowledged_fails_the_write() -> None:
    run = Run(job(), [[("out.a", "v")], [("out.a", "w")]], random.Random(0))
    with connected(MemoryServer()) as memory:
        done = [run.task(0)]
        memory.make()
        done.append(run.task(1))
        with pytest.raises(PublishError, match="OUT acknowledged two messages with sequence 1"):
            publish_rest(run.job, done)


def test_rows_with_ids_of_their_own_are_stored_once_and_others_as_often_as_they_come() -> None:
    made = parsed_schema("subject string, value string, msgId string")
    own = write_job({"stream": "OUT"}, BATCH_WRITE, made)
    batch = pa.RecordBatch.from_pydict(
        {"subject": ["out.a"] * 3, "value": ["v", "w", "w"], "msgId": pa.array(["1", None, None], pa.string())}
    )
    with connected(MemoryServer()) as memory:
        publish_rest(own, [write_partition(own, "w", task, [batch]) for task in range(3)])
        assert Counter(memory.ever) == {("out.a", b"v"): 1, ("out.a", b"w"): 6}


def test_rows_alike_that_expect_the_same_sequence_are_refused() -> None:
    made = parsed_schema("subject string, value string, expectedLastSubjectSeq bigint")
    expecting = write_job({"stream": "OUT"}, BATCH_WRITE, made)
    batch = pa.RecordBatch.from_pydict({"subject": ["out.a"], "value": ["v"], "expectedLastSubjectSeq": [0]})
    with connected(MemoryServer("workqueue")) as memory:
        done = [write_partition(expecting, "w", 0, [batch])]
        memory.consume()  # else the server refuses the second row
        done.append(write_partition(expecting, "w", 1, [batch]))
        with pytest.raises(PublishError, match="rows that are alike expect the same sequence"):
            publish_rest(expecting, done)


@pytest.mark.parametrize("seqs", [[], [7], [3 * WINDOW], [5, WINDOW - 1, WINDOW, 9 * WINDOW + 1], range(1, 40_000, 7)])
def test_sequences_come_back_as_they_were_packed(seqs: Sequence[int]) -> None:
    lines = b"".join(b"%d\n" % seq for seq in [*reversed(seqs), *seqs])
    found = [unpack(window, data).to_pylist() for window, data in pack(parse_lines(lines)).items()]
    assert [seq for window in found for seq in window] == list(seqs)


def wanted(rows: list[Row], moves: bool = False) -> Counter[tuple[str, bytes]]:
    return Counter((MOVES["dest"] if moves else subject, value.encode()) for subject, value in rows)


@pytest.fixture
def api(api: JetStreamApi) -> JetStreamApi:
    api.ask("STREAM.CREATE.OUT", {"name": "OUT", "subjects": ["out.>"]})
    return api


def stored(api: JetStreamApi) -> Counter[tuple[str, bytes]]:
    return Counter((subject, payload) for subject, _, payload in messages(api, "OUT"))


@pytest.mark.both
@pytest.mark.parametrize(("room", "moves"), [(0, False), (1 << 20, False), (0, True)])
def test_each_row_is_stored_once_on_a_server_as_well(
    api: JetStreamApi, room: int, moves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if moves:
        api.ask("STREAM.UPDATE.OUT", {"name": "OUT", "subjects": ["out.>"], "subject_transform": MOVES})
    monkeypatch.setattr(acknowledged, "ROOM_BYTES", room)
    chance = random.Random(room)
    rows = some_rows(chance)
    for cores in (2, 5, 3):
        run = cut(rows, cores, chance, servers=api.link.settings.urls[0])
        if cores == 2:
            run.task(1)  # and the driver is killed
        else:
            run.finish()
            assert stored(api) == wanted(rows, moves)
