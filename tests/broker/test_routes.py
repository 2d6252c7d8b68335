"""Cached routes say what the plain matcher says, whatever came and went before; and they stay small."""

from itertools import islice
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from natsctl.api.subjects import matches
from natsctl.broker.routes import Route, Routes
from natsctl.broker.subscription import Subscription

TOKENS = st.sampled_from([b"a", b"b", b"c"])
PATTERNS = st.builds(
    lambda tokens, rest: b".".join([*tokens, b">"] if rest or not tokens else tokens),
    st.lists(TOKENS | st.just(b"*"), max_size=4),
    st.booleans(),
)
SUBJECTS = st.lists(TOKENS | st.sampled_from([b"*", b">", b"", b"$JS"]), min_size=1, max_size=8).map(b".".join)
ACKS = st.lists(TOKENS, min_size=2, max_size=8).map(lambda tokens: b"$JS.ACK." + b".".join(tokens))
QUEUES = st.sampled_from([b"", b"", b"q", b"r"])
STEPS = st.lists(
    st.tuples(st.just("add"), PATTERNS | ACKS, QUEUES)
    | st.tuples(st.just("remove"), st.integers(0, 30), st.none())
    | st.tuples(st.just("ask"), SUBJECTS | ACKS, st.none()),
    max_size=60,
)


def add(routes: Routes, pattern: bytes, queue: bytes = b"") -> Subscription:
    sub = Subscription(None, pattern, queue)  # type: ignore[arg-type]  # a route asks no account
    routes.insert(sub)
    return sub


def look_up(routes: Routes, subject: bytes) -> Route:
    return routes.exact.get(subject) or routes.find(subject)


def recipients(route: Route) -> set[Subscription]:
    clients, queues, handlers = route
    return {sub for _, sub, _ in clients} | {sub for group in queues for _, sub, _ in group} | set(handlers)


def expected(live: list[Subscription], subject: bytes) -> set[Subscription]:
    return set() if b"" in subject.split(b".") else {sub for sub in live if matches(sub.subject, subject)}


@given(STEPS)
def test_routes_agree_with_the_plain_matcher(steps: list[tuple[str, bytes | int, bytes | None]]) -> None:
    routes, live = Routes(), list[Subscription]()
    asked: set[bytes] = set()
    for kind, what, queue in steps:
        if isinstance(what, int):
            if live:
                assert routes.remove(live.pop(what % len(live)))
        elif kind == "add":
            live.append(add(routes, what, queue or b""))
        else:
            asked.add(what)
        for subject in sorted(asked):
            route = look_up(routes, subject)
            assert recipients(route) == expected(live, subject), subject
            stem = routes.stem(subject)
            for longer in (b"a", b"c.b", b"b.b.c", b"*.d") if stem else ():
                assert recipients(look_up(routes, stem + longer)) == expected(live, stem + longer), stem + longer


@given(st.lists(TOKENS, min_size=4, max_size=8).map(b".".join), st.lists(PATTERNS, max_size=20), STEPS)
def test_a_walk_in_steps_agrees_whatever_changes_meanwhile(
    subject: bytes, patterns: list[bytes], steps: list[tuple[str, bytes | int, bytes | None]]
) -> None:
    routes, changes = Routes(), iter(steps)
    live = [add(routes, pattern) for pattern in patterns]
    with patch("natsctl.api.subject_index.WALK_STEP", 1):
        while not routes.walked(subject, lambda: False):
            for kind, what, queue in islice(changes, 4):
                if isinstance(what, int):
                    if live:
                        assert routes.remove(live.pop(what % len(live)))
                elif kind == "add":
                    live.append(add(routes, what, queue or b""))
    assert routes.is_known(subject) and recipients(look_up(routes, subject)) == expected(live, subject)
    for kind, what, _ in changes:
        if isinstance(what, bytes) and kind == "ask":
            assert recipients(look_up(routes, what)) == expected(live, what)


def test_a_walk_takes_no_more_steps_where_subscriptions_change_meanwhile() -> None:
    def steps(change: bytes = b"") -> int:
        routes, count = Routes(), 0
        for place in range(50):
            add(routes, b".".join([b"a"] * place + [b"*"] + [b"a"] * (49 - place)))
        with patch("natsctl.api.subject_index.WALK_STEP", 1):
            while not routes.walked(b".".join([b"a"] * 49 + [b"x"]), lambda: False):
                count += 1
                if change:
                    assert routes.remove(add(routes, change))
        return count

    assert steps(b"x.*") == steps(b">") == steps() > 50


def test_one_look_below_a_stem_tells_of_every_subject_there() -> None:
    routes = Routes()
    sub = add(routes, b"orders.>")
    route = routes.find(b"orders.1.new")
    assert recipients(route) == {sub}
    assert routes.stem(b"orders.2.old.again") == b"orders."
    assert routes.find(b"orders.2.old.again")[2] is route[2]
    assert [routes.stem(bad) for bad in (b"orders", b"orders.", b"orders.a..b", b"orders.a.")] == [b""] * 4


def test_subjects_that_reach_the_same_patterns_share_what_was_made_for_the_first() -> None:
    routes = Routes()
    add(routes, b"orders.>")
    add(routes, b"orders.literal.new")
    first, second = routes.find(b"orders.1.new"), routes.find(b"orders.2.new")
    assert first[2] is second[2]


def test_very_many_recipients_are_the_same_as_in_a_tuple() -> None:
    routes = Routes()
    session: Any = object()
    for number, queue in enumerate([b"", b"q"] * 9):
        routes.insert(Subscription(None, b"s", queue, session=session, sid=b"%d" % number))  # type: ignore[arg-type]
    clients, (group,), _ = look_up(routes, b"s")
    with patch("natsctl.broker.routes.LISTED_RECIPIENTS", 3):
        routes.begin_leaving()  # the route is made again
        routes.end_leaving()
        crowd, (crowded,), handlers = look_up(routes, b"s")
    assert type(clients) is tuple and type(crowd) is not tuple and type(crowded) is not tuple and handlers == ()
    assert [tuple(each) for each in (crowd, crowded)] == [clients, group] and len(crowd) == 9
    assert [crowd[at] for at in (0, 4, -1)] == [clients[at] for at in (0, 4, -1)]
    assert crowd[2:5] == clients[2:5]
