"""Random subscriptions and messages on both sides of a link, against what anybody would expect of them."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from natsctl.api.subjects import matches
from tests.support import tiers
from tests.support.leaf_servers import MemoryLink, Servers
from tests.support.machine import Wire

PATTERNS = ["a", "a.b", "a.*", "*.b", "a.>", ">", "*"]
SUBJECTS = ["a", "a.a", "a.b", "b.b"]
SIDES = 3
"""Two spokes of one hub, and the hub."""

subscribing = st.tuples(
    st.just("sub"), st.integers(0, SIDES - 1), st.sampled_from(PATTERNS), st.sampled_from(["", "g", "g", "h"])
)
steps = st.one_of(
    subscribing,
    subscribing,
    st.tuples(st.just("unsub"), st.integers(0, 30)),
    st.tuples(st.just("pub"), st.integers(0, SIDES - 1), st.sampled_from(SUBJECTS)),
    st.tuples(st.just("pub"), st.integers(0, SIDES - 1), st.sampled_from(SUBJECTS)),
    st.tuples(st.just("cut"), st.integers(0, SIDES - 2)),
)


class World:
    """Three servers with one client each, and the subscriptions that there should be."""

    def __init__(self) -> None:
        self.servers = Servers()
        names = ("HUB", "LEFT", "RIGHT")
        self.sides = [self.servers.start(name) for name in names]
        self.cables: list[MemoryLink] = [self.servers.join(side, self.sides[0]) for side in self.sides[1:]]
        self.clients: list[Wire] = [side.machine.connect() for side in self.sides]
        self.subs: list[tuple[int, bytes, str, str]] = []
        self.count = 0

    def sub(self, side: int, pattern: str, queue: str) -> None:
        self.subs.append((side, self.clients[side].subscribe(pattern, queue), pattern, queue))

    def unsub(self, index: int) -> None:
        if self.subs:
            side, sid, _, _ = self.subs.pop(index % len(self.subs))
            self.clients[side].unsubscribe(sid)

    def cut(self, index: int) -> None:
        self.cables[index].cut()
        self.cables[index] = self.servers.join(self.sides[index + 1], self.sides[0])

    def pub(self, side: int, subject: str) -> None:
        self.count += 1
        payload = b"%d" % self.count
        self.clients[side].publish(subject, payload)
        self.servers.settle()
        got = [(at, m.sid) for at, client in enumerate(self.clients) for m in client.take() if m.payload == payload]
        matching = [sub for sub in self.subs if matches(sub[2], subject)]
        plain = [(at, sid) for at, sid, _, queue in matching if not queue]
        assert sorted(hit for hit in got if hit in plain) == sorted(plain)
        for group in {queue for *_, queue in matching if queue}:
            members = {(at, sid) for at, sid, _, queue in matching if queue == group}
            recipients = [hit for hit in got if hit in members]
            assert len(recipients) == 1
            if any(at == side for at, _ in members):
                assert recipients[0][0] == side
        assert len(got) == len(plain) + len({queue for *_, queue in matching if queue})


@given(st.lists(steps, min_size=10, max_size=40))
@tiers.examples(60)
def test_every_plain_subscription_and_one_of_each_group_gets_each_message(program: list[tuple[Any, ...]]) -> None:
    world = World()
    for step in program:
        getattr(world, step[0])(*step[1:])
        world.servers.settle()
    for sub in tuple(world.subs):
        world.unsub(0)
        assert sub not in world.subs
    world.servers.settle()
    left = [link.local_interest for side in world.sides for link in side.leafs.registered()]
    wanted = [key for local_interest in left for key in local_interest.announced() if not key[0].startswith(b"$")]
    assert wanted == []
