"""What clients publish goes where the account's mappings say, and nothing is asked where there are none."""

from __future__ import annotations

from natsctl.api.subject_transform import SubjectMapping
from natsctl.broker.mappings import Mappings, SpaceMapping
from natsctl.testing.machine import Machine


def mapped(*pairs: tuple[str, str]) -> Mappings:
    mappings = Mappings()
    for src, dest in pairs:
        mappings.add(SubjectMapping.compile(src, dest))
    return mappings


def test_the_first_mapping_that_matches_decides() -> None:
    mappings = mapped(("a.*", "x.$1"), ("a.b", "y"), ("*.c", "z"))
    assert mappings.apply(b"a.b") == b"x.b"
    assert mappings.apply(b"a.c") == b"x.c"
    assert mappings.apply(b"d.c") == b"z"
    assert mappings.apply(b"d.e") == b"d.e"


def test_a_source_is_mapped_once() -> None:
    mappings = mapped(("a", "x"), ("b", "y"), ("a", "z"))
    assert (mappings.apply(b"a"), mappings.apply(b"b")) == (b"z", b"y")


def test_a_space_takes_what_follows_as_it_is() -> None:
    space = SpaceMapping("$JS.D.API.CONSUMER", "$JS.API.CONSUMER")
    assert space.apply(b"$JS.D.API.CONSUMER.CREATE.S.C.s.>") == b"$JS.API.CONSUMER.CREATE.S.C.s.>"
    assert space.apply(b"$JS.D.API.CONSUMER") is None
    assert space.apply(b"$JS.D.API.CONSUMER.") is None
    assert space.apply(b"$JS.D.API.CONSUMERS.x") is None


def test_mappings_are_of_what_clients_publish_alone() -> None:
    machine = Machine()
    account = machine.broker.accounts["$G"]
    assert account.publish_from == account.publish
    account.map_subject(SubjectMapping.compile("in.*", "out.$1"))
    client, other = machine.connect(), machine.connect()
    ins, outs = other.subscribe("in.*"), other.subscribe("out.*")
    client.send(b"PUB in.a 1\r\n1\r\n" + b"PUB in.b 1\r\n2\r\n" * 6 + b"PUB none 1\r\n3\r\n")
    account.publish(b"in.c", b"", b"", b"4")
    machine.settle()
    assert [m.subject for m in other.take(outs)] == [b"out.a"] + [b"out.b"] * 6
    assert [m.payload for m in other.take(ins)] == [b"4"]


def test_who_asks_in_vain_is_told_where_nobody_was() -> None:
    machine = Machine()
    machine.broker.accounts["$G"].map_subject(SubjectMapping.compile("in", "out"))
    answer = machine.connect().request("in")
    assert answer.header == b"NATS/1.0 503\r\nNats-Subject: out\r\n\r\n"
