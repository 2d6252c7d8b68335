"""Getting, deleting and purging messages."""

import errno
from typing import Any

import msgspec
import pytest

from tests.support.jet import Jet, ok
from tests.support.simdisk import DiskFault


def got(answer: Any) -> Any:
    return answer["message"]["seq"] if "message" in answer else answer["error"]["err_code"]


def test_a_get_waits_for_what_was_published_before_it(jet: Jet) -> None:
    jet.stream(allow_direct=True)
    sid = jet.wire.subscribe("inbox")
    jet.machine.hold_commits = True
    jet.wire.publish("s.a", b"x")
    jet.wire.publish("$JS.API.STREAM.MSG.GET.S", b'{"seq":1}', "inbox")
    jet.wire.publish("$JS.API.DIRECT.GET.S", b'{"seq":1}', "inbox")
    jet.wire.publish("$JS.API.STREAM.INFO.S", b"", "inbox")
    assert jet.wire.take(sid) == []
    jet.machine.release_commits()
    get, direct, info = jet.wire.take(sid)
    assert (got(get.json()), direct.payload, info.json()["state"]["messages"]) == (1, b"x", 1)


def asked(jet: Jet, *requests: tuple[str, object]) -> list[bytes]:
    sids = []
    for number, (verb, body) in enumerate(requests):
        sids.append(jet.listen(f"answer.{number}"))
        jet.wire.publish(
            f"$JS.API.{verb}", body if isinstance(body, bytes) else msgspec.json.encode(body), f"answer.{number}"
        )
    return sids


def test_one_moment_makes_a_message_visible_everywhere(jet: Jet) -> None:
    jet.stream(allow_direct=True)
    jet.consumer()
    jet.machine.hold_commits = True
    jet.publish("x")
    last_of_each = {"name": "X", "deliver_policy": "last_per_subject", "filter_subject": "s.a"}
    sids = asked(
        jet,
        ("STREAM.INFO.S", {"subjects_filter": ">"}),
        ("STREAM.LIST", b""),
        ("CONSUMER.INFO.S.C", b""),
        ("CONSUMER.LIST.S", b""),
        ("CONSUMER.CREATE.S.X", {"stream_name": "S", "config": last_of_each}),
        ("CONSUMER.CREATE.S", {"stream_name": "S", "config": {"deliver_policy": "new"}}),
        ("INFO", b""),
        ("STREAM.MSG.GET.S", {"last_by_subj": "s.a"}),
        ("DIRECT.GET.S.s.a", b""),
        ("CONSUMER.MSG.NEXT.S.C", {"no_wait": True}),
    )
    assert [jet.heard(sid) for sid in sids] == [[]] * len(sids)
    jet.machine.release_commits()
    stream, streams, consumer, consumers, last, new, account, get, direct, pulled = (jet.heard(sid)[0] for sid in sids)
    assert stream.json()["state"]["subjects"] == {"s.a": 1}
    assert streams.json()["streams"][0]["state"]["messages"] == 1
    assert consumer.json()["num_pending"] == consumers.json()["consumers"][0]["num_pending"] == 1
    assert (last.json()["num_pending"], new.json()["num_pending"]) == (1, 0)
    assert account.json()["storage"] > 0
    assert (got(get.json()), direct.payload, pulled.payload) == (1, b"x", b"x")


def test_what_the_disk_could_not_take_is_counted_nowhere(jet: Jet) -> None:
    jet.stream()
    jet.consumer()
    jet.machine.hold_commits = True
    jet.publish("x")
    sids = asked(jet, ("STREAM.INFO.S", b""), ("CONSUMER.INFO.S.C", b""), ("CONSUMER.MSG.NEXT.S.C", {"no_wait": True}))
    full = DiskFault(error=errno.ENOSPC)
    disk = jet.machine.disk
    disk.plan = lambda call, path: full if call == "pwrite" and disk.exists("RESERVE") else None
    jet.machine.release_commits()
    stream, consumer, pulled = (jet.heard(sid)[0] for sid in sids)
    assert (stream.json()["state"]["messages"], consumer.json()["num_pending"], pulled.status) == (
        0,
        0,
        b"404 No Messages",
    )


def test_an_answer_waits_for_no_message_that_comes_after_the_request(jet: Jet) -> None:
    """Somebody publishes while every commit is in flight, so that there is always one more to come."""
    jet.stream(max_msgs_per_subject=1, allow_direct=True)
    jet.publish("0")
    store = jet.machine.streams["S"].store
    jet.machine.hold_commits = True

    def commit_while_publishing(payload: str) -> None:
        commit = store.begin_commit()
        assert commit is not None
        jet.publish(payload)
        commit.run()
        store.finish_commit(commit)
        jet.machine.settle()

    jet.publish("1")
    sids = asked(
        jet,
        ("STREAM.INFO.S", b""),
        ("STREAM.LIST", b""),
        ("STREAM.MSG.GET.S", {"last_by_subj": "s.a"}),
        ("STREAM.MSG.GET.S", {"last_by_subj": "s.*"}),
        ("DIRECT.GET.S.s.a", b""),
    )
    commit_while_publishing("2")
    stream, streams, get, by_pattern, direct = (jet.heard(sid)[0] for sid in sids)
    assert (stream.json()["state"]["last_seq"], streams.json()["streams"][0]["state"]["last_seq"]) == (2, 2)
    assert (got(get.json()), got(by_pattern.json()), direct.payload) == (2, 2, b"1")


def test_an_erased_message_leaves_the_disk(jet: Jet) -> None:
    jet.stream()
    jet.publish("secret-one", "secret-two")
    assert jet.machine.disk.holds(b"secret-one")
    ok(jet.api("STREAM.MSG.DELETE.S", {"seq": 1}))
    assert not jet.machine.disk.holds(b"secret-one")
    assert jet.machine.disk.holds(b"secret-two")


# Direct get


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_names_with_nul_are_refused_as_nats_server_does(jet: Jet, storage: str) -> None:
    answer = jet.api("STREAM.CREATE.a\0b", {"name": "a\0b", "subjects": ["q"], "storage": storage})
    assert answer["error"]["err_code"] == 10049
    jet.stream(storage=storage)
    for verb, config in (("DURABLE.CREATE", {"durable_name": "a\0b"}), ("CREATE", {"name": "a\0b"})):
        request = {"stream_name": "S", "config": {"ack_policy": "explicit", **config}}
        assert jet.api(f"CONSUMER.{verb}.S.a\0b", request)["error"]["err_code"] == 10012
    assert jet.api("STREAM.NAMES")["streams"] == ["S"]
    assert jet.api("CONSUMER.NAMES.S")["consumers"] == []


@pytest.mark.parametrize("mark", ["\x01", "\x0b", "\x1c", "\x1f", "\x7f", "\x85", "\xa0", "\u2028"])
def test_other_control_characters_are_taken_as_nats_server_does(jet: Jet, mark: str) -> None:
    name = f"a{mark}b"
    assert ok(jet.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"q.{name}"]}))["config"]["name"] == name
    request = {"stream_name": name, "config": {"name": name, "filter_subject": f"q.{name}", "ack_policy": "explicit"}}
    assert ok(jet.api(f"CONSUMER.CREATE.{name}.{name}", request))["name"] == name
