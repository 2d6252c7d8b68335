"""Messages that were not acknowledged go out again, in the right order and not for ever."""

from tests.support.jet import SECOND, Jet, texts

NOW = {"batch": 20, "no_wait": True}


def delivered_now(jet: Jet) -> list[str]:
    return texts(jet.pull(NOW))[:-1]


def test_nothing_comes_again_before_the_ack_wait(jet: Jet) -> None:
    jet.consumer(ack_wait=SECOND)
    jet.publish("1")
    jet.pull()
    jet.advance(0.999)
    assert delivered_now(jet) == []
    jet.advance(0.002)
    assert delivered_now(jet) == ["1"]


def test_backoff_stretches_the_wait_and_its_last_entry_repeats(jet: Jet) -> None:
    jet.consumer(backoff=[SECOND, 3 * SECOND])
    jet.publish("1")
    jet.pull()
    for wait in (1, 3, 3):
        jet.advance(wait - 0.01)
        assert delivered_now(jet) == []
        jet.advance(0.02)
        assert delivered_now(jet) == ["1"]


def test_giving_up_makes_room_under_max_ack_pending(jet: Jet) -> None:
    jet.consumer(ack_wait=SECOND, max_deliver=1, max_ack_pending=1)
    jet.publish("1", "2")
    assert texts(jet.pull()) == ["1"]
    sid = jet.listen("in.1")
    jet.wire.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b"", "in.1")
    assert jet.heard(sid) == []
    jet.advance(1.1)
    assert texts(jet.heard(sid)) == ["2"]


def test_a_wall_clock_that_jumps_does_not_redeliver(jet: Jet) -> None:
    jet.consumer()
    jet.publish("1")
    jet.pull()
    jet.machine.clock.set_wall(jet.machine.clock.now_ns() + 3600 * SECOND)
    jet.advance(1)
    assert delivered_now(jet) == []


def test_acked_messages_leave_no_deadlines_behind(jet: Jet) -> None:
    jet.consumer(max_ack_pending=-1)
    jet.publish_many(20_000)
    for _ in range(20):
        for message in jet.pull(b"1000"):
            jet.wire.session.receive(b"PUB %b 0\r\n\r\n" % message.reply)
    consumer = jet.machine.streams["S"].consumers["C"]
    jet.machine.settle()
    assert not consumer.state.pending
    assert sum(len(entry[2]) for entry in consumer.redelivery.due) < 6000
