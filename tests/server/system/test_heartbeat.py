"""When STATSZ is told."""

from __future__ import annotations

from natsctl.server.system_account import Heartbeat
from natsctl.testing.machine import Machine

MILLISECOND = 1_000_000


class Beating:
    """A heartbeat whose messages are noted with the time since the start, in ms."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.start = self.machine.clock.monotonic_ns()
        self.built: list[int] = []
        self.heartbeat = Heartbeat(self.machine.broker, self.body)
        self.subject = f"$SYS.SERVER.{self.machine.broker.server_id}.STATSZ".encode()

    @property
    def now(self) -> int:
        return (self.machine.clock.monotonic_ns() - self.start) // MILLISECOND

    def body(self) -> dict[str, int]:
        self.built.append(self.now)
        return {"at": self.now}

    def listen(self) -> None:
        self.machine.broker.system_account.subscribe(self.subject, lambda *message: None)

    def run(self, until: int) -> None:
        while self.now < until:
            self.machine.clock.advance(50 * MILLISECOND)
            self.heartbeat.tick()


def test_the_waits_double_up_to_ten_seconds_the_second_is_held_back_by_the_rate_limit() -> None:
    beating = Beating()
    beating.listen()
    beating.run(50_000)
    assert beating.built == [250, 1250, 3250, 7250, 15_250, 25_250, 35_250, 45_250]


def test_nothing_is_built_where_nobody_listens() -> None:
    beating = Beating()
    beating.run(20_000)
    assert beating.built == []


def test_who_asks_without_a_reply_is_told_at_once_and_others_not_more_than_once_a_second() -> None:
    beating = Beating()
    beating.listen()
    beating.run(16_000)
    del beating.built[:]
    beating.heartbeat.publish_now()
    beating.heartbeat.publish_now()
    assert beating.built == [16_000, 16_000]
    beating.heartbeat.broadcast()
    assert len(beating.built) == 2
    beating.run(17_500)
    assert beating.built == [16_000, 16_000, 17_000]
