"""What one request with many items costs: not much more for each item, and no turn that others wait long for.

Costs are counted in calls of functions, so that they are the same on every machine. `python -m bench.inputs` has the
times.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest

from tests.support.call_counts import CallCounter
from tests.support.jet import Jet

FEW: Final = 200
MANY: Final = 2_000
GROWTH: Final = 1.5
"""By how much an item may cost more among ten times as many: n log n, and what grows in steps."""
TURN_CALLS: Final = 40_000
"""Calls that one turn may make: about 15 ms."""
CROSSING: Final = "crossing subjects"
"""Comparing these takes more than n log n, in nats-server too, and is done in turns."""


class Cost(NamedTuple):
    """Calls of functions: in all, and in the longest turn."""

    calls: int
    longest: int


def cost_of(jet: Jet, act: Callable[[], object]) -> Cost:
    """Count the calls of an action; what a client sends and each turn of the engine are turns."""
    counter, engine, session = CallCounter(), jet.machine.engine, jet.wire.session
    receive = counter.noting(session.receive)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(session), "receive", lambda _, data: receive(data))
        patch.setattr(engine, "run_ready", counter.noting(engine.run_ready))
        with counter:
            act()
    return Cost(counter.calls, max(counter.turns))


def create(jet: Jet, name: str = "A", **config: Any) -> Any:
    return jet.api(f"STREAM.CREATE.{name}", {"name": name, "storage": "memory", **config})


def consume(jet: Jet, name: str = "C", **config: Any) -> Any:
    config = {"durable_name": name, "ack_policy": "explicit", **config}
    return jet.api(f"CONSUMER.DURABLE.CREATE.A.{name}", {"stream_name": "A", "config": config})


def subjects(count: int) -> list[str]:
    return [f"s.{number}" for number in range(count)]


def crossing(count: int) -> list[str]:
    """Return patterns that nearly meet each other, all with all."""
    return [f"s.*.x{number}" if number % 2 else f"s.y{number}.*.z" for number in range(count)]


def wide(first: str, tokens: int) -> str:
    return ".".join([first, *["*"] * tokens])


def update(jet: Jet, count: int) -> Any:
    return jet.api("STREAM.UPDATE.A", {"name": "A", "storage": "memory", "subjects": subjects(count)})


def transforms(count: int) -> list[dict[str, str]]:
    return [{"src": f"s.{number}", "dest": f"d.{number}"} for number in range(count)]


def externals(count: int) -> list[dict[str, Any]]:
    return [{"name": f"E{n}", "external": {"api": f"$JS.d{n}.API", "deliver": f"d{n}"}} for n in range(count)]


def filled(jet: Jet, count: int) -> None:
    create(jet, subjects=["s.>"], allow_direct=True)
    jet.wire.send(b"".join(b"PUB s.%d 1\r\nx\r\n" % number for number in range(count)))


SAVED: Final[list[tuple[dict[str, Any], bytes]]] = []


def saved(jet: Jet, subjects: list[str], consumers: int) -> None:
    """Keep a backup of a stream with these subjects and so many consumers."""
    create(jet, subjects=subjects)
    for number in range(consumers):
        consume(jet, f"C{number}")
    SAVED[:] = [jet.backup("A")]
    jet.api("STREAM.DELETE.A")


def restore(jet: Jet) -> None:
    described, archive = SAVED[0]
    subject = jet.api("STREAM.RESTORE.A", described)["deliver_subject"]
    for chunk in (archive, b""):
        jet.wire.request(subject, chunk)
    assert "A" in jet.machine.streams


Act = Callable[[Jet, int], object]
INPUTS: Final[dict[str, Act | tuple[Act, Act]]] = {
    "subjects": lambda jet, count: create(jet, subjects=subjects(count)),
    "subjects that overlap": lambda jet, count: create(jet, subjects=[*subjects(count), "s.*"]),
    "wide subjects": lambda jet, count: create(jet, subjects=[f"s.*.{number}" for number in range(count)]),
    "tokens of a subject": lambda jet, count: create(
        jet, subjects=[wide("a", 20 * count), wide("b", 20 * count)], republish={"src": wide("a", 20 * count)}
    ),
    "subjects of many tokens": lambda jet, count: create(
        jet, subjects=[wide(f"s{number}", 1_000) for number in range(count // 20)]
    ),
    "tokens of a transform": lambda jet, count: create(
        jet, subjects=["a.*"], subject_transform={"src": "a.*", "dest": ".".join(["$1", "b"] * 20 * count)}
    ),
    "messages for a transform of many tokens": (
        lambda jet, count: create(
            jet, subjects=["a.*"], subject_transform={"src": "a.*", "dest": ".".join(["$1"] * 1_000)}
        ),
        lambda jet, count: jet.wire.send(b"PUB a.x 1\r\nx\r\n" * (count // 10)),
    ),
    CROSSING: lambda jet, count: create(jet, subjects=crossing(count // 4)),
    "subjects of an update": (lambda jet, count: create(jet, subjects=["first"]), update),
    "subjects of an update of many": (
        lambda jet, count: create(jet, subjects=[f"t.{number}" for number in range(20 * count)]),
        lambda jet, count: update(jet, 20 * count),
    ),
    "subjects of another stream": (
        lambda jet, count: create(jet, subjects=subjects(count)),
        lambda jet, count: create(jet, "B", subjects=[*(f"t.{n}" for n in range(count)), "s.7"]),
    ),
    "removed subjects": (
        lambda jet, count: create(jet, subjects=subjects(count)),
        lambda jet, count: jet.api("STREAM.DELETE.A"),
    ),
    "names by subject": (
        lambda jet, count: create(jet, subjects=subjects(count)),
        lambda jet, count: [jet.api("STREAM.NAMES", {"subject": f"t.{number}"}) for number in range(count // 10)],
    ),
    "sources": lambda jet, count: create(jet, sources=[{"name": f"O{number}"} for number in range(count)]),
    "sources that end": (
        lambda jet, count: (
            create(jet, sources=[{"name": f"O{number}"} for number in range(count // 4)]),
            jet.advance(1),
        ),
        lambda jet, count: jet.api("STREAM.DELETE.A"),
    ),
    "info of a stream with sources": (
        lambda jet, count: create(jet, sources=[{"name": f"O{number}"} for number in range(10 * count)]),
        lambda jet, count: jet.api("STREAM.INFO.A"),
    ),
    "sources of one origin": (
        lambda jet, count: create(jet, "O", subjects=subjects(count), sources=[{"name": "A"}]),
        lambda jet, count: create(jet, sources=[{"name": "O", "filter_subject": each} for each in subjects(count)]),
    ),
    "external sources": (
        lambda jet, count: create(jet, "O", subjects=[f"s.{number}.>" for number in range(count)]),
        lambda jet, count: create(jet, sources=[{"name": "O"}, *externals(count)]),
    ),
    "transforms of a source": lambda jet, count: create(
        jet, sources=[{"name": "O", "subject_transforms": transforms(count)}]
    ),
    "transforms of a mirror": lambda jet, count: create(
        jet, mirror={"name": "O", "subject_transforms": transforms(count)}
    ),
    "metadata": lambda jet, count: create(jet, metadata={f"k{number}": "v" for number in range(count)}),
    "unknown fields": lambda jet, count: create(jet, **{f"k{number}": 1 for number in range(count)}),
    "values instead of one": lambda jet, count: jet.wire.request("$JS.API.STREAM.CREATE.A", b"{}" * 20 * count),
    "fractions": lambda jet, count: create(jet, x=[1.5] * 20 * count),
    "empty lists": lambda jet, count: create(jet, x=[[]] * 20 * count),
    "transforms of many sources": lambda jet, count: create(
        jet, sources=[{"name": f"O{n}", "subject_transforms": [{}] * 200} for n in range(count // 20)]
    ),
    "backoff": (
        lambda jet, count: create(jet, subjects=["s.>"]),
        lambda jet, count: consume(jet, backoff=[1] * 10 * count, max_deliver=20 * count),
    ),
    "priority groups": (
        lambda jet, count: create(jet, subjects=["s.>"]),
        lambda jet, count: consume(jet, priority_policy="overflow", priority_groups=["g"] * 20 * count),
    ),
    "filters of many tokens": (
        lambda jet, count: create(jet, subjects=["*.>"]),
        lambda jet, count: consume(jet, filter_subjects=[wide(f"s{number}", 1_000) for number in range(count // 20)]),
    ),
    "filters": (
        lambda jet, count: create(jet, subjects=["s.>"]),
        lambda jet, count: consume(jet, filter_subjects=subjects(count)),
    ),
    "wide filters": (
        lambda jet, count: create(jet, subjects=["s.>"]),
        lambda jet, count: consume(jet, filter_subjects=crossing(count)),
    ),
    "filters of two consumers": (
        lambda jet, count: (
            create(jet, subjects=subjects(count), retention="workqueue"),
            consume(jet, filter_subjects=subjects(count)),
        ),
        lambda jet, count: consume(jet, "D", filter_subjects=subjects(count)),
    ),
    "subjects of a push consumer's stream": (
        lambda jet, count: create(jet, subjects=subjects(20 * count)),
        lambda jet, count: consume(jet, deliver_subject="d"),
    ),
    "filters of a purge": (
        lambda jet, count: (create(jet, subjects=["s.>"]), consume(jet, filter_subjects=subjects(20 * count))),
        lambda jet, count: (jet.publish("x", subject="s.7"), jet.api("STREAM.PURGE.A", {"filter": "s.*"})),
    ),
    "removed filters": (
        lambda jet, count: (create(jet, subjects=["s.>"]), consume(jet, filter_subjects=subjects(count))),
        lambda jet, count: jet.api("CONSUMER.DELETE.A.C"),
    ),
    "filters since a time": (
        lambda jet, count: filled(jet, count),
        lambda jet, count: consume(
            jet, filter_subjects=subjects(count), deliver_policy="by_start_time", opt_start_time="2020-01-01T00:00:00Z"
        ),
    ),
    "wide last messages of many": (
        lambda jet, count: filled(jet, count),
        lambda jet, count: jet.wire.request("$JS.API.DIRECT.GET.A", {"multi_last": crossing(count)}),
    ),
    "large streams in a list": (
        lambda jet, count: [
            create(jet, f"L{n}", subjects=[f"l{n}.{s}" for s in subjects(20)]) for n in range(count // 20)
        ],
        lambda jet, count: jet.api("STREAM.LIST"),
    ),
    "subjects of a restored stream": (
        lambda jet, count: saved(jet, subjects(count), 0),
        lambda jet, count: restore(jet),
    ),
    "consumers of a restored stream": (
        lambda jet, count: saved(jet, ["s.>"], count // 10),
        lambda jet, count: restore(jet),
    ),
    "last messages of many": (
        lambda jet, count: create(jet, subjects=["s.>"], allow_direct=True),
        lambda jet, count: jet.wire.request("$JS.API.DIRECT.GET.A", {"multi_last": subjects(count)}),
    ),
}
"""What costs are counted of, behind what is done before."""


def measured(name: str, count: int) -> Cost:
    jet = Jet()
    given = INPUTS[name]
    *before, act = given if isinstance(given, tuple) else (given,)
    for prepare in before:
        prepare(jet, count)
    return cost_of(jet, lambda: act(jet, count))


@pytest.mark.parametrize("name", INPUTS)
def test_an_item_costs_no_more_among_many_and_no_turn_is_long(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("api.strict", "jetstream.endpoints.dispatcher"):
        monkeypatch.setattr(f"natsctl.{module}.SMALL_TEXT", 0)  # few items are read as many are
    few, many = measured(name, FEW), measured(name, MANY)
    assert many.calls / MANY <= GROWTH * few.calls / FEW or name == CROSSING
    assert many.longest <= TURN_CALLS


def test_a_push_consumer_looks_for_a_route_among_long_patterns_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("natsctl.jetstream.consumers.push.SLICE_NS", -1)
    jet, depth = Jet(), 400
    create(jet, subjects=["s.>"])
    jet.wire.send(b"".join(b"PUB s.%d 1\r\nx\r\n" % number for number in range(10)))
    tokens = ["a"] * depth
    for at in range(depth // 2):
        jet.wire.send(f"SUB {'.'.join([*tokens[:at], '*', *tokens[at + 1 :]])} w{at}\r\n".encode())
    subject = ".".join([*tokens[:-1], "z"])
    consume(jet, deliver_subject=subject, ack_policy="none")
    cost = cost_of(jet, lambda: (jet.wire.subscribe(subject), jet.advance(1)))
    assert len(jet.wire.take()) == 10
    assert cost.longest <= TURN_CALLS // 4
