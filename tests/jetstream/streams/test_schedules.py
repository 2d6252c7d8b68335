"""Messages that streams produce at times of their own.

Cron patterns and schedule patterns.
"""

import errno
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from natsctl.api.times import format_time, parse_time
from natsctl.jetstream.streams.schedule_pattern import CronError, first_firing, next_firing, parse_cron
from tests.support.call_counts import calls_of
from tests.support.jet import SECOND, Jet, ok, texts
from tests.support.simdisk import DiskFault, SimDisk
from tests.support.stored_messages import header_block, put, stored_rows

CRASHES = pytest.mark.parametrize("crash", [SimDisk.kill, SimDisk.power_loss], ids=["kill", "power_loss"])


@pytest.fixture
def jet() -> Jet:
    jet = Jet()
    jet.stream(allow_msg_schedules=True, allow_msg_ttl=True, allow_atomic=True)
    return jet


def left(jet: Jet) -> list[tuple[int, str, str]]:
    return [(row.seq, row.subject, row.payload.decode()) for row in stored_rows(jet)]


def times(jet: Jet, subject: str) -> list[str]:
    return [row.time.removeprefix("2026-01-01T") for row in stored_rows(jet) if row.subject == subject]


def test_a_schedule_fires_to_the_nanosecond_and_is_gone(jet: Jet) -> None:
    listener = jet.listen("s.out")
    jet.consumer("C", filter_subject="s.out")
    put(jet, "s.job", b"work", Nats_Schedule="@at 2026-01-01T00:00:10.123456789Z", Nats_Schedule_Target="s.out")
    jet.advance(10.1)
    assert left(jet) == [(1, "s.job", "work")]
    jet.advance(0.1)
    assert left(jet) == [(2, "s.out", "work")]
    assert times(jet, "s.out") == ["00:00:10.123456789Z"]
    assert texts(jet.pull(b"1")) == ["work"]
    assert jet.heard(listener) == []


def test_a_schedule_that_repeats_fires_at_its_times(jet: Jet) -> None:
    put(jet, "s.every", Nats_Schedule="@every 7s", Nats_Schedule_Target="s.e")
    put(jet, "s.cron", Nats_Schedule="*/20 * * * * *", Nats_Schedule_Target="s.c")
    jet.advance(60)
    assert times(jet, "s.e") == [f"00:00:{at:02}Z" for at in range(7, 60, 7)]
    assert times(jet, "s.c") == ["00:00:20Z", "00:00:40Z", "00:01:00Z"]


@CRASHES
def test_a_firing_survives_a_crash_once(jet: Jet, crash: Any) -> None:
    put(jet, "s.one", b"one", Nats_Schedule="@at 2026-01-01T00:00:10Z", Nats_Schedule_Target="s.out")
    put(jet, "s.two", b"two", Nats_Schedule="@at 2026-01-01T00:00:20Z", Nats_Schedule_Target="s.out")
    jet.advance(11)
    for _ in range(3):
        jet = Jet(jet.machine.restarted(crash))
        jet.advance(1)
        assert [payload for _, subject, payload in left(jet) if subject == "s.out"] == ["one"]
    jet.machine.clock.advance(100 * SECOND)
    for _ in range(3):
        jet = Jet(jet.machine.restarted(crash))
        jet.advance(1)
        assert [(subject, payload) for _, subject, payload in left(jet)] == [("s.out", "one"), ("s.out", "two")]


@pytest.mark.parametrize("schedule", ["@at 2026-01-01T00:00:10Z", "@every 10s", "*/10 * * * * *"])
def test_a_crash_between_a_firing_and_what_follows_from_it(jet: Jet, schedule: str) -> None:
    """What was produced is durable; that the schedule goes, or when it comes again, is not."""
    put(jet, "s.job", Nats_Schedule=schedule, Nats_Schedule_Target="s.out")
    put(jet, "s.other", Nats_Schedule=schedule, Nats_Schedule_Target="s.out")
    machine = jet.machine
    store = machine.store.streams["$G/S"]
    machine.hold_commits = True
    jet.advance(10)
    commit = store.begin_commit()
    assert commit is not None
    commit.run()
    jet = Jet(machine.restarted(SimDisk.kill))
    jet.advance(5)
    assert times(jet, "s.out") == ["00:00:10Z"] * 2
    jet.advance(10)
    assert times(jet, "s.out")[2:] == ([] if schedule.startswith("@at") else ["00:00:20Z"] * 2)


@pytest.mark.parametrize("keeps", [True, False], ids=["target_kept", "target_gone"])
def test_missed_moments_are_made_up_for_once(jet: Jet, keeps: bool) -> None:
    put(jet, "s.job", Nats_Schedule="@every 10s", Nats_Schedule_Target="s.out")
    jet.advance(25)
    if not keeps:
        ok(jet.api("STREAM.PURGE.S", {"filter": "s.out"}))
    before = len(times(jet, "s.out"))
    jet.machine.clock.advance(60 * SECOND + SECOND // 2)
    jet = Jet(jet.machine.restarted())
    jet.advance(20)
    made_up = times(jet, "s.out")[before:]
    assert made_up[0].startswith("00:01:25.75")
    assert made_up[1:] == ["00:01:36Z"]


def test_a_restart_does_not_move_what_is_to_come(jet: Jet) -> None:
    put(jet, "s.job", Nats_Schedule="@every 1m", Nats_Schedule_Target="s.out")
    jet.advance(61)
    ok(jet.api("STREAM.PURGE.S", {"filter": "s.out"}))
    jet.advance(29)
    jet = Jet(jet.machine.restarted())
    jet.machine.streams["S"].consumer_set.rewrite()
    jet.advance(1)
    jet = Jet(jet.machine.restarted())
    jet.advance(40)
    assert times(jet, "s.out") == ["00:02:00Z"]


@pytest.mark.parametrize(
    "end",
    [
        lambda jet: ok(jet.api("STREAM.PURGE.S", {"filter": "s.job"})),
        lambda jet: ok(jet.api("STREAM.MSG.DELETE.S", {"seq": 1})),
        lambda jet: put(jet, "s.job", b"plain"),
        lambda jet: put(jet, "s.end", Nats_Schedule_Next="purge", Nats_Scheduler="s.job"),
        lambda jet: put(jet, "s.job", Nats_Schedule="@at 2030-01-01T00:00:00Z", Nats_Schedule_Target="s.out"),
    ],
    ids=["purge", "delete", "cover", "cancel", "replace"],
)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_schedule_can_be_called_off(jet: Jet, end: Any, restarts: bool) -> None:
    put(jet, "s.job", Nats_Schedule="@every 5s", Nats_Schedule_Target="s.out")
    jet.advance(1)
    end(jet)
    if restarts:
        jet = Jet(jet.machine.restarted())
    jet.advance(30)
    assert times(jet, "s.out") == []


def test_what_schedules_produce_calls_no_schedule_off(jet: Jet) -> None:
    put(jet, "s.a", Nats_Schedule="@every 10s", Nats_Schedule_Target="s.out")
    put(jet, "s.b", Nats_Schedule="@at 2026-01-01T00:00:05Z", Nats_Schedule_Target="s.a")
    jet.advance(11)
    assert times(jet, "s.out") == ["00:00:10Z"]


def test_a_batch_may_hold_schedules(jet: Jet) -> None:
    wishes = {"Nats_Schedule": "@at 2026-01-01T00:00:05Z", "Nats_Schedule_Target": "s.out", "Nats_Batch_Id": "b"}
    jet.wire.publish("s.a", b"a", header=header_block(**wishes, Nats_Batch_Sequence="1"))
    answer = put(jet, "s.b", b"b", **wishes, Nats_Batch_Sequence="2", Nats_Batch_Commit="1")
    assert answer["count"] == 2
    jet.advance(6)
    assert [(subject, payload) for _, subject, payload in left(jet)] == [("s.out", "a"), ("s.out", "b")]


def test_a_disk_that_is_full_loses_no_firing(jet: Jet) -> None:
    put(jet, "s.job", b"work", Nats_Schedule="@at 2026-01-01T00:00:05Z", Nats_Schedule_Target="s.out")
    full = [DiskFault(error=errno.ENOSPC)]
    jet.machine.disk.plan = lambda call, path: full.pop() if full and path.endswith(".seg") else None
    jet.advance(5.5)
    assert not full
    assert [subject for _, subject, _ in left(jet)] == ["s.job"]
    jet.advance(5)
    assert [subject for _, subject, _ in left(jet)] == ["s.out"]


def test_schedules_wait_for_a_minute_when_the_clock_jumps(jet: Jet) -> None:
    put(jet, "s.job", Nats_Schedule="@at 2026-01-01T01:00:00Z", Nats_Schedule_Target="s.out")
    put(jet, "s.now", Nats_Schedule="@every 2s", Nats_Schedule_Target="s.now.out")
    clock = jet.machine.clock
    clock.set_wall(clock.now_ns() + 7200 * SECOND)
    jet.advance(30)
    assert times(jet, "s.out") == []
    jet.advance(60)
    assert len(times(jet, "s.out")) == 1


@pytest.mark.parametrize("restart", [False, True])
def test_an_interval_begins_with_the_clock_after_it_was_ahead(jet: Jet, restart: bool) -> None:
    clock = jet.machine.clock
    clock.set_wall(clock.now_ns() + 86_400 * SECOND)
    jet.publish("x", subject="s.other")
    clock.set_wall(clock.now_ns() - 86_400 * SECOND)
    put(jet, "s.job", Nats_Schedule="@every 2m", Nats_Schedule_Target="s.out")
    if restart:
        jet = Jet(jet.machine.restarted())
    jet.advance(119)
    assert times(jet, "s.out") == []
    jet.advance(5)
    assert len(times(jet, "s.out")) == 1


def test_many_schedules_at_one_moment_all_fire(jet: Jet) -> None:
    for at in range(300):
        put(jet, f"s.job.{at}", b"%d" % at, Nats_Schedule="@at 2026-01-01T00:00:05Z", Nats_Schedule_Target="s.out")
    jet.advance(5.1)
    state = jet.api("STREAM.INFO.S")["state"]
    assert (state["messages"], state["num_subjects"]) == (300, 1)
    assert times(jet, "s.out") == ["00:00:05Z"] * 300


def test_what_follows_from_many_firings_takes_several_turns(jet: Jet) -> None:
    for at in range(1000):
        put(jet, f"s.job.{at}", Nats_Schedule="@every 5s", Nats_Schedule_Target="s.out")
    machine = jet.machine
    machine.hold_commits = True
    jet.advance(6)
    assert calls_of(machine.commit) < 16_000  # writing them takes 11 calls each
    machine.release_commits()
    jet.advance(5)
    assert times(jet, "s.out") == ["00:00:05Z"] * 1000 + ["00:00:10Z"] * 1000


def test_a_schedule_that_its_message_pushes_out_is_counted_once_by_consumers() -> None:
    jet = Jet()
    jet.stream(allow_msg_schedules=True, allow_rollup_hdrs=True, max_msgs=3)
    jet.consumer()
    due = format_time(jet.machine.clock.now_ns() + 2 * SECOND)
    lines = f"NATS/1.0\r\nNats-Schedule: @at {due}\r\nNats-Schedule-Target: s.a\r\n\r\n"
    jet.wire.publish("s.plan", b"x", header=lines.encode())
    jet.publish("a", "b")
    jet.advance(3)
    assert jet.counts()["pending"] == jet.api("STREAM.INFO.S")["state"]["messages"] == 3
    assert len(jet.pull({"batch": 5, "no_wait": True})) == 4  # and the status that nothing is left


def moments(pattern: str, start: str, number: int = 3, zone: str = "UTC") -> list[str]:
    cron, ts_ns, found = parse_cron(pattern), parse_time(start), []
    for _ in range(number):
        moment = cron.next_after(ts_ns, ZoneInfo(zone))
        found.append(moment.isoformat())
        ts_ns = int(moment.timestamp()) * 1_000_000_000
    return found


@pytest.mark.parametrize(
    ("pattern", "first"),
    [
        ("* * * * * *", "2026-01-01T00:00:01"),
        ("*/10 * * * * *", "2026-01-01T00:00:10"),
        ("0 30 * * * *", "2026-01-01T00:30:00"),
        ("0 0/20 * * * *", "2026-01-01T00:20:00"),
        ("0 0 0 * * sun", "2026-01-04T00:00:00"),
        ("0 0 0 13 * fri", "2026-01-02T00:00:00"),
        ("0 0 0 */2 * mon", "2026-01-03T00:00:00"),
        ("0 0 0 29 2 *", "2028-02-29T00:00:00"),
        ("0 0 0 1 JAN,MAR ?", "2026-03-01T00:00:00"),
        ("5,1-3 0 0 1 1 *", "2026-01-01T00:00:01"),
    ],
)
def test_the_next_moment(pattern: str, first: str) -> None:
    assert moments(pattern, "2026-01-01T00:00:00.5Z", 1) == [first + "+00:00"]


def test_a_pattern_that_names_no_moment_is_an_error() -> None:
    with pytest.raises(CronError, match="no moment within five years"):
        parse_cron("0 0 0 30 2 *").next_after(parse_time("2026-01-01T00:00:00Z"))


def test_an_hour_that_is_skipped_names_no_moment_and_one_that_is_repeated_names_two() -> None:
    spring = moments("0 30 2 * * *", "2026-03-07T12:00:00Z", 2, "America/New_York")
    assert spring == ["2026-03-09T02:30:00-04:00", "2026-03-10T02:30:00-04:00"]
    autumn = moments("0 30 1 * * *", "2026-10-31T12:00:00Z", 3, "America/New_York")
    assert autumn == ["2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00", "2026-11-02T01:30:00-05:00"]


def header(pattern: str, zone: str = "") -> bytes:
    line = f"Nats-Schedule-Time-Zone: {zone}\r\n" if zone else ""
    return f"NATS/1.0\r\nNats-Schedule: {pattern}\r\n{line}\r\n".encode()


def test_an_interval_counts_from_the_nearest_second() -> None:
    for start, first in (("10.4", "13"), ("10.5", "14")):
        firing = first_firing(header("@every 3s"), parse_time(f"2026-01-01T00:00:{start}Z"))
        assert firing is not None
        assert (firing.text, firing.repeats) == (f"2026-01-01T00:00:{first}Z", True)


def test_moments_that_have_passed_are_left_out() -> None:
    stored, now = parse_time("2026-01-01T00:00:00Z"), parse_time("2026-01-01T00:00:59.6Z")
    every = next_firing(header("@every 10s"), stored, now)
    cron = next_firing(header("*/7 * * * * *", "Asia/Tokyo"), stored, now)
    assert every is not None
    assert cron is not None
    assert every.text == "2026-01-01T00:01:10Z"
    assert cron.text == "2026-01-01T09:01:07+09:00"
