"""The ORDERS scenario as data: each command line as a person types it, and what its answer must show.

Source: the JetStream tour ("Administration and Usage from the CLI"); waits of minutes are shortened to seconds, and
lines that the reference server answers no longer are marked with `included_only`.
"""

from __future__ import annotations

from typing import NamedTuple


class Step(NamedTuple):
    """One command line of the tour.

    `shows` are texts that must stand in the output; `background` starts the command and collects it at the step that
    has `joins`; `pause_s` waits after the step, where the scenario is about time.
    """

    line: str
    shows: tuple[str, ...] = ()
    exit_code: int = 0
    background: bool = False
    joins: bool = False
    pause_s: float = 0.0
    included_only: bool = False


class Chapter(NamedTuple):
    """A heading and its steps."""

    title: str
    steps: tuple[Step, ...]


ADD_ORDERS = (
    'natsctl str add ORDERS --subjects "ORDERS.*" --ack --max-msgs=-1 --max-bytes=-1 --max-age=1y'
    " --storage file --retention limits --max-msg-size=-1 --discard old"
)
ADD_MONITOR = (
    "natsctl con add ORDERS MONITOR --filter '' --ack none --target monitor.ORDERS --deliver last --replay instant"
)


def _pull(name: str, deliver: str) -> str:
    flags = "--pull --filter ORDERS.processed --ack none --replay instant"
    return f"natsctl con add ORDERS {name} {flags} --deliver {deliver}"


SCENARIO: tuple[Chapter, ...] = (
    Chapter("Account information", (Step("natsctl account info", ("Memory", "Storage", "Streams")),)),
    Chapter(
        "Streams: creating, listing, querying, copying, editing",
        (
            Step(ADD_ORDERS, ("ORDERS.*",)),
            Step("natsctl str ls", ("ORDERS",)),
            Step("natsctl str info ORDERS", ("Subjects: ORDERS.*", "Maximum Age: 1y0d0h0m0s", "Messages: 0")),
            Step("natsctl str info ORDERS -j > orders.json", ()),
            Step("natsctl str add ORDERS --config orders.json", ("ORDERS.*",)),
            Step(
                'natsctl str cp ORDERS ARCHIVE --subjects "ORDERS_ARCVHIVE.*" --max-age 2y',
                ("ORDERS_ARCVHIVE.*", "2y0d0h0m0s"),
            ),
            Step('natsctl str edit ARCHIVE --subjects "ORDERS_ARCHIVE.*" -f', ("ORDERS_ARCHIVE.*",)),
            Step("natsctl str edit ORDERS --config orders.json -f", ()),
        ),
    ),
    Chapter(
        "Publishing into a stream, deleting from it",
        (
            Step("natsctl pub ORDERS.scratch hello", ()),
            Step("natsctl pub --wait ORDERS.scratch hello", ("ORDERS",)),
            Step("natsctl req ORDERS.scratch hello", ('"seq":3',)),
            Step("natsctl str info ORDERS", ("Messages: 3",)),
            Step("natsctl str rmm ORDERS 1 -f", ()),
            Step("natsctl str get ORDERS 2 -j", ('"ORDERS.scratch"',)),
            Step("natsctl str purge ORDERS -f", ("Messages: 0",)),
            Step("natsctl str rm ORDERS -f", ()),
            Step("natsctl str info ORDERS", ("stream not found",), exit_code=3),
            Step(ADD_ORDERS, ("ORDERS.*",)),
        ),
    ),
    Chapter(
        "Consumers: pull-based and push-based",
        (
            Step("natsctl con ls ORDERS", ("No Consumers defined",)),
            Step(
                "natsctl con add ORDERS NEW --filter ORDERS.received --ack explicit --pull --deliver all"
                " --max-deliver=-1 --sample 100",
                ("ORDERS.received",),
            ),
            Step(
                "natsctl con add ORDERS DISPATCH --filter ORDERS.processed --ack explicit --pull --deliver all"
                " --sample 100 --max-deliver 20",
                ("ORDERS.processed",),
            ),
            Step(ADD_MONITOR, ("monitor.ORDERS",)),
            Step("natsctl con info ORDERS MONITOR -j > monitor.json", ()),
            Step("natsctl con add ORDERS MONITOR --config monitor.json", ("monitor.ORDERS",)),
            Step("natsctl con add ORDERS --config monitor.json", ("monitor.ORDERS",)),
            Step("natsctl con ls ORDERS", ("DISPATCH", "MONITOR", "NEW")),
            Step("natsctl con info ORDERS DISPATCH", ("Filter Subject: ORDERS.processed", "Sampling Rate: 100")),
            Step('natsctl pub ORDERS.processed "order 1"', ()),
            Step('natsctl pub ORDERS.processed "order 2"', ()),
            Step('natsctl pub ORDERS.processed "order 3"', ()),
            Step("natsctl con next ORDERS DISPATCH", ("order 1", "Acknowledged message")),
            Step("natsctl con next ORDERS DISPATCH", ("order 2", "Acknowledged message")),
            Step("natsctl req '$JS.NEXT.ORDERS.DISPATCH' ''", ("order 3",), included_only=True),
            Step("natsctl sub monitor.ORDERS --count 4", ("order 3", "order 4"), background=True),
            Step('natsctl pub ORDERS.processed "order 4"', (), joins=True),
        ),
    ),
    Chapter(
        "Message deduplication",
        (
            Step("natsctl str purge ORDERS -f", ("Messages: 0",)),
            Step("natsctl req -H Nats-Msg-Id:1 ORDERS.new hello1", ()),
            Step("natsctl req -H Nats-Msg-Id:1 ORDERS.new hello2", ("duplicate",)),
            Step("natsctl req -H Msg-Id:2 ORDERS.new hello3", (), included_only=True),
            Step("natsctl req -H Msg-Id:2 ORDERS.new hello4", ("duplicate",), included_only=True),
            Step("natsctl str purge ORDERS --seq 6 -f", ()),
        ),
    ),
    Chapter(
        "Acknowledgement models",
        (
            Step("natsctl con rm ORDERS DISPATCH -f", ()),
            Step("natsctl str purge ORDERS -f", ("Messages: 0",)),
            Step(
                "natsctl con add ORDERS DISPATCH --filter ORDERS.processed --ack explicit --pull --deliver all"
                " --sample 100 --wait 2s",
                ("Ack Wait: 2.00s",),
            ),
            Step('natsctl pub ORDERS.processed "order 4"', ()),
            Step("natsctl con next ORDERS DISPATCH", ("order 4", "Acknowledged message")),
            Step('natsctl pub ORDERS.processed "order 5"', ()),
            Step("natsctl con next ORDERS DISPATCH --no-ack", ("order 5",)),
            Step("natsctl con info ORDERS DISPATCH", ("Outstanding Acks: 1",)),
            Step("natsctl con next ORDERS DISPATCH --no-ack", ("order 5",)),
            Step("natsctl con info ORDERS DISPATCH", ("Redelivered Messages: 1",)),
            Step("natsctl con next ORDERS DISPATCH", ("order 5", "Acknowledged message")),
            Step("natsctl con info ORDERS DISPATCH", ("Outstanding Acks: 0",)),
        ),
    ),
    Chapter(
        "Consumer starting position",
        (
            Step("natsctl str purge ORDERS -f", ()),
            Step('natsctl pub ORDERS.processed "order {{Count}}" --count 12', ()),
            Step(_pull("ALL", "all"), ()),
            Step("natsctl con next ORDERS ALL", ("order 1",)),
            Step(_pull("LAST", "last"), ()),
            Step("natsctl con next ORDERS LAST", ("order 12",), pause_s=2.5),
            Step('natsctl pub ORDERS.processed "order 13"', ()),
            Step(_pull("TWOSECONDS", "2s"), ()),
            Step("natsctl con next ORDERS TWOSECONDS", ("order 13",)),
            Step(_pull("TEN", "10"), ("From Sequence 10",)),
        ),
    ),
    Chapter(
        "Ephemeral consumers, message rates, ack sampling",
        (
            Step("natsctl sub my.monitor --count 1", ("order 13",), background=True),
            Step(
                "natsctl con add ORDERS --filter '' --ack none --target 'my.monitor' --deliver last"
                " --replay instant --ephemeral",
                (),
                joins=True,
            ),
            Step("natsctl str purge ORDERS -f", ()),
            Step('natsctl pub ORDERS.processed "order 1"', (), pause_s=1.0),
            Step('natsctl pub ORDERS.processed "order 2"', ()),
            Step(
                "natsctl con add ORDERS REPLAY --target out.original --filter ORDERS.processed --ack none"
                " --deliver all --sample 100 --replay original",
                ("Replay Policy: Original",),
            ),
            Step("natsctl sub -t out.original --count 2", ("order 1", "order 2")),
            Step("natsctl con events ORDERS NEW --count 1", ("Acknowledgment Sample",), background=True),
            Step('natsctl pub ORDERS.received "order 6"', ()),
            Step("natsctl con next ORDERS NEW", ("order 6",), joins=True),
        ),
    ),
    Chapter(
        "Disaster recovery",
        (
            Step("natsctl stream backup ORDERS ORDERS.tgz --no-progress", ("Starting backup of Stream",)),
            Step("natsctl str rm ORDERS -f", ()),
            Step("natsctl str restore ORDERS ORDERS.tgz --no-progress", ("Restored stream",)),
            Step("natsctl str info ORDERS", ("Messages: 3", "Active Consumers")),
            Step("natsctl backup js-backup --data", ("Configuration backup complete",)),
            Step("natsctl restore js-backup --update-streams", ("ORDERS",)),
        ),
    ),
    Chapter(
        "The API underneath",
        (
            Step("natsctl req '$JS.API.STREAM.INFO.nonexisting' ''", ('"code":404',)),
            Step("natsctl req '$JS.STREAM.INFO.ORDERS' ''", ('"ORDERS"',), included_only=True),
            Step("natsctl req '$JS.API.STREAM.MSG.GET.ORDERS' '{\"last_by_subj\": \"ORDERS.received\"}'", ('"data"',)),
            Step("natsctl str ls", ("ARCHIVE", "ORDERS")),
        ),
    ),
)
