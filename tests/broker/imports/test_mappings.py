"""What clients publish goes where the account's mappings say, and nothing is asked where there are none."""

import random

import pytest

from natsctl.api.subject_index import finish
from natsctl.api.subject_transform import SubjectMapping, TransformError
from natsctl.broker.imports.account_config import Destination, SubjectMap
from natsctl.broker.imports.mappings import Mappings
from tests.support.machine import Machine


def mapped(*pairs: tuple[str, str]) -> Mappings:
    mappings = Mappings(random.Random(1))
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
    space = SubjectMapping.compile("$JS.D.API.CONSUMER.>", "$JS.API.CONSUMER.>", literal=False)
    assert space.apply(b"$JS.D.API.CONSUMER.CREATE.S.C.s.>") == b"$JS.API.CONSUMER.CREATE.S.C.s.>"
    assert space.apply(b"$JS.D.API.CONSUMER") is None
    assert space.apply(b"$JS.D.API.CONSUMER.") is None
    assert space.apply(b"$JS.D.API.CONSUMERS.x") is None


def test_mappings_are_of_what_clients_publish_alone() -> None:
    machine = Machine()
    account = machine.broker.accounts["$G"]
    assert account.mappings is None
    account.map_subject(SubjectMapping.compile("in.*", "out.$1"))
    client, other = machine.connect(), machine.connect()
    ins, outs = other.subscribe("in.*"), other.subscribe("out.*")
    client.send(b"PUB in.a 1\r\n1\r\n" + b"PUB in.b 1\r\n2\r\n" * 6 + b"PUB none 1\r\n3\r\n")
    account.publish(b"in.c", b"", b"", b"4")
    machine.settle()
    assert [m.subject for m in other.take(outs)] == [b"out.a"] + [b"out.b"] * 6
    assert [m.payload for m in other.take(ins)] == [b"4"]


def configured(mapping: SubjectMap) -> Mappings:
    return finish(Mappings.compile([mapping], random.Random(1), None))


def shares(*destinations: tuple[str, int], src: str = "a.*", count: int = 2000) -> dict[bytes, float]:
    mappings = configured(SubjectMap(src, tuple(Destination(*to) for to in destinations)))
    went: dict[bytes, int] = {}
    for _ in range(count):
        to = mappings.apply(b"a.x")
        went[to] = went.get(to, 0) + 1
    return {to: round(number / count, 1) for to, number in went.items()}


def test_weights_share_out_what_is_published() -> None:
    assert shares(("b.$1", 20), ("c", 80)) == {b"b.x": 0.2, b"c": 0.8}


def test_what_weights_leave_stays_on_the_source() -> None:
    assert shares(("b", 30)) == {b"b": 0.3, b"a.x": 0.7}
    assert shares(("a.$1", 30)) == {b"a.x": 1.0}
    assert shares() == {b"a.x": 1.0}


def test_a_source_that_is_a_destination_too_loses_the_rest() -> None:
    assert shares(("a.x", 50), src="a.x") == {b"a.x": 0.5, b"": 0.5}
    assert shares(("a.x", 0), src="a.x") == {b"": 1.0}


@pytest.mark.parametrize(
    ("destinations", "text"),
    [
        ([("b", 60), ("c", 60)], "total weight needs to be <= 100"),
        ([("b", 101)], "individual weights need to be <= 100"),
        ([("b", 10), ("b", 10)], 'duplicate entry for "b"'),
        ([("b.$2", 10)], "wildcard index out of range"),
    ],
)
def test_weights_that_can_not_be_are_refused(destinations: list[tuple[str, int]], text: str) -> None:
    with pytest.raises(TransformError, match=text):
        shares(*destinations)


def test_tokens_that_look_like_wildcards_are_text() -> None:
    mappings = configured(SubjectMap("J.*.API.>", (Destination("API.$1.>"),)))
    assert mappings.apply(b"J.x.API.CREATE.S.s.>") == b"API.x.CREATE.S.s.>"
    assert mappings.apply(b"J.x.API") == b"J.x.API"
    mappings = configured(SubjectMap("a.*", (Destination("b.{{left(1,1)}}"),)))
    assert mappings.apply(b"a.*") == b"b.*"


def test_configured_mappings_come_before_the_servers_and_go_alone() -> None:
    account = Machine().broker.accounts["$G"]
    account.map_subject(SubjectMapping.compile("$JS.D.API.>", "$JS.API.>", literal=False))
    account.use_mappings(
        finish(
            account.prepare_mappings(
                [SubjectMap("a", (Destination("b"),)), SubjectMap("$JS.D.API.>", (Destination("c.>"),))]
            )
        )
    )
    assert (account.mapped(b"a"), account.mapped(b"$JS.D.API.INFO")) == (b"b", b"c.INFO")
    account.use_mappings(finish(account.prepare_mappings([])))
    assert (account.mapped(b"a"), account.mapped(b"$JS.D.API.INFO")) == (b"a", b"$JS.API.INFO")


def test_a_message_that_may_go_elsewhere_is_in_no_run() -> None:
    machine = Machine()
    account = machine.broker.accounts["$G"]
    account.use_mappings(finish(account.prepare_mappings([SubjectMap("a", (Destination("b", 50),))])))
    client, other = machine.connect(), machine.connect()
    sid = other.subscribe(">")
    client.send(b"PUB a 1\r\nx\r\n" * 100)
    assert {m.subject for m in other.take(sid)} == {b"a", b"b"}
