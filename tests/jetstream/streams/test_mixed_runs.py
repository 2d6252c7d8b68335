"""Messages on several subjects that arrive together are taken as each by itself would be."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.store.errors import StoreFullError
from natsctl.store.stream import StreamStore
from tests.support.jet import Jet, texts
from tests.support.machine import Machine

SUBJECTS = st.sampled_from(["s.a", "s.b", "s.a.1", "s.b.1", "s.c.d.e", "s.x", "s.x.y"])
PAYLOADS = st.sampled_from(["", "x", "yy", "z" * 40])
IDS = st.sampled_from(
    [*(f"Nats-Msg-Id:{number}" for number in range(40)), "Nats-Msg-Id: 1 ", "Nats-Msg-Id:", "Msg-Id: 2"]
)
OTHERS = [
    "Trace: 1",
    "Nats-Expected-Last-Sequence: 3",
    "Nats-TTL: 1h",
    "Nats-Rollup: sub",
    "nats-msg-id: 7",
    "Nats-Msg-Id: 3",
]
HEADERS = st.one_of(
    st.just([]), IDS.map(lambda line: [line]), st.tuples(IDS, st.sampled_from(OTHERS)).flatmap(st.permutations)
)
MESSAGES = st.lists(st.tuples(SUBJECTS, PAYLOADS, st.booleans()), max_size=30)
HEADED = st.lists(st.tuples(SUBJECTS, PAYLOADS, st.booleans(), HEADERS), max_size=30)
CONFIGS: list[dict[str, Any]] = [
    {},
    {"max_msgs": 5},
    {"max_bytes": 200},
    {"max_msgs_per_subject": 1},
    {"max_msgs_per_subject": 2, "discard": "new", "discard_new_per_subject": True},
    {"max_msgs_per_subject": 1, "discard": "new"},
    {"max_msgs_per_subject": 2, "discard": "new", "max_msgs": 5},
    {"max_msgs_per_subject": 1, "discard": "new", "max_bytes": 200},
    {"max_msgs_per_subject": 1, "max_msgs": 3},
    {"max_msgs_per_subject": 1, "max_bytes": 200},
    {"max_msgs": 7, "discard": "new"},
    {"max_msg_size": 10},
    {"retention": "interest"},
    {"retention": "interest", "max_msgs_per_subject": 1, "max_msgs": 5},
    {"retention": "interest", "max_msgs": 7, "discard": "new"},
    {"retention": "workqueue", "max_msgs": 6},
    {"no_ack": True},
    {"subject_transform": {"src": "s.*", "dest": "s.x.$1"}},
    {"allow_msg_ttl": True, "allow_rollup_hdrs": True},
    {"allow_msg_counter": True},
]


def line(number: int, subject: str, payload: str, answer: bool, headers: Sequence[str] = ()) -> bytes:
    reply = f" in.{number}" if answer else ""
    if not headers:
        return f"PUB {subject}{reply} {len(payload)}\r\n{payload}\r\n".encode()
    block = "".join(f"{each}\r\n" for each in ("NATS/1.0", *headers, ""))
    return f"HPUB {subject}{reply} {len(block)} {len(block + payload)}\r\n{block}{payload}\r\n".encode()


def outcome(together: bool, messages: Sequence[tuple[Any, ...]], config: dict[str, Any]) -> list[object]:
    jet = Jet(Machine())
    jet.stream("S", "s.>", **config)
    jet.consumer("C", filter_subject="s.*")
    watch, sid = jet.machine.connect(), jet.wire.subscribe("in.*")
    watch.subscribe("s.x.y")
    lines = [line(number, *message) for number, message in enumerate(messages)]
    for chunk in [b"".join(lines)] if together else lines:
        jet.wire.session.receive(chunk)
    jet.machine.settle()
    acks = [(message.subject, message.payload) for message in jet.wire.take(sid)]
    store = jet.machine.streams["S"].store
    kept = [(m.seq, m.subject, m.header, m.payload) for m in store.read_from(1)]
    state = (store.first_seq, store.last_seq, store.messages, store.bytes)
    again = jet.machine.restarted() if config["storage"] == "file" else jet.machine
    dedupe = again.streams["S"].dedupe
    known = [dedupe.find(str(number).encode()) for number in range(40)] + [len(dedupe), dedupe.last_id]
    return [sorted(acks), kept, state, texts(jet.pull({"batch": 50, "no_wait": True})), texts(watch.take()), known]


@given(st.one_of(MESSAGES, HEADED), st.sampled_from(CONFIGS), st.sampled_from(["file", "memory"]))
def test_together_is_as_one_by_one(messages: list[tuple[Any, ...]], config: dict[str, Any], storage: str) -> None:
    config = {**config, "storage": storage}
    assert outcome(True, messages, config) == outcome(False, messages, config)


@pytest.mark.parametrize("unwanted", [(), (17,), range(60)], ids=["none", "one", "all"])
@pytest.mark.parametrize("subjects", [["s.a"], ["s.a", "s.b", "s.x"]], ids=["one subject", "several"])
def test_messages_of_an_interest_stream_are_kept_if_wanted(subjects: list[str], unwanted: Sequence[int]) -> None:
    config = {"retention": "interest", "storage": "file"}
    names = ["s.a.1" if number in unwanted else subjects[number % len(subjects)] for number in range(60)]
    messages = [(name, "x", True) for name in names]
    together = outcome(True, messages, config)
    assert together == outcome(False, messages, config)
    kept: Any = together[1]
    assert [seq for seq, *_ in kept] == [number + 1 for number in range(60) if number not in unwanted]


def test_wanted_messages_of_an_interest_stream_are_stored_together(jet: Jet, monkeypatch: pytest.MonkeyPatch) -> None:
    jet.stream(retention="interest")
    jet.consumer(filter_subject="s.*.x")
    acks = jet.listen("in.*")
    with monkeypatch.context() as patch:
        patch.setattr(type(jet.machine.streams["S"].pipeline), "take", None)
        jet.wire.send(chunk(100))
    assert len(jet.heard(acks)) == jet.counts()["pending"] == 100


def chunk(count: int) -> bytes:
    return b"".join(b"PUB s.%d.x in.%d 1\r\nx\r\n" % (number, number) for number in range(count))


def test_messages_with_new_ids_are_stored_together(jet: Jet, monkeypatch: pytest.MonkeyPatch) -> None:
    jet.stream()
    acks = jet.listen("in.*")
    pipeline = jet.machine.streams["S"].pipeline
    with monkeypatch.context() as patch:
        patch.setattr(type(pipeline), "publish", None)
        for first in (0, 50):
            jet.wire.send(
                b"".join(line(n, f"s.{n % 3}", "x", True, [f"Nats-Msg-Id: {n}"]) for n in range(first, first + 50))
            )
    jet.wire.send(b"".join(line(n, "s.0", "x", True, [f"Nats-Msg-Id: {n}"]) for n in range(40, 104)))
    heard = [m.json() for m in jet.heard(acks)]
    assert [ack["seq"] for ack in heard[:100]] == list(range(1, 101))
    assert sorted(ack["seq"] for ack in heard[100:] if "duplicate" in ack) == list(range(41, 101))
    assert sorted(ack["seq"] for ack in heard[100:] if "duplicate" not in ack) == [101, 102, 103, 104]


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_messages_on_new_subjects_are_stored_in_order_and_survive(storage: str) -> None:
    jet = Jet()
    jet.stream(storage=storage)
    acks = jet.listen("in.*")
    jet.wire.send(chunk(500))
    assert [m.payload for m in jet.heard(acks)] == [b'{"stream":"S","seq":%d}' % seq for seq in range(1, 501)]
    machine = jet.machine.restarted() if storage == "file" else jet.machine
    store = machine.streams["S"].store
    assert [m.subject for m in store.read_from(1, max_msgs=600)] == [b"s.%d.x" % number for number in range(500)]
    assert store.last_seq_of(b"s.7.x") == 8 and store.count_of(b"s.7.x") == 1


def test_a_store_that_is_full_refuses_each(jet: Jet, monkeypatch: pytest.MonkeyPatch) -> None:
    jet.stream()
    acks = jet.listen("in.*")

    def full(*messages: object) -> None:
        raise StoreFullError("no space left")

    monkeypatch.setattr(StreamStore, "append_run", full)
    jet.wire.send(chunk(6))
    assert [m.json()["error"]["err_code"] for m in jet.heard(acks)] == [10047] * 6
