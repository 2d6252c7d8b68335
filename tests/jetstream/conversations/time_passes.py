"""TTLs, delete markers and schedules: the same conversations with natsctl's engine in memory and with the reference.

Time passes for the reference, so all conversations are held at once there, each in an account of its own.
"""

import base64
import re
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from typing import Any, cast

from natsctl.api import headers
from natsctl.api.times import format_time
from tests.support.differential import TRIES, AccountServer, Live, Score, scrub
from tests.support.jet import Jet
from tests.support.machine import Machine

SECOND = 1_000_000_000
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
VARYING = ("first_ts", "last_ts", "time")
SERVER = "cluster"


class Talk:
    def __init__(self, machine: Machine, now: Callable[[], int]) -> None:
        self.jet = Jet(machine)
        self.now = now
        self.notes: list[Any] = []

    def note(self, value: Any) -> None:
        self.notes.append(_TIME.sub(r"TIME\2", repr(value)))

    def stream(self, name: str = "S", subjects: tuple[str, ...] = ("s.>",), **config: Any) -> Any:
        body = {"name": name, "subjects": list(subjects), **config}
        body = {key: value for key, value in body.items() if value is not None}
        answer = self.jet.api(f"STREAM.CREATE.{name}", body)
        self.note(answer.get("error", "made"))
        return answer.get("config")

    def ask(self, verb: str, body: object = b"") -> Any:
        answer = self.jet.api(verb, body)
        kept = scrub(answer)
        kept = [(k, [p for p in v if p[0] not in VARYING] if k == "state" else v) for k, v in kept]
        self.note([pair for pair in kept if pair[0] != SERVER])
        return answer

    def put(self, subject: str, payload: bytes = b"x", /, **wishes: str) -> Any:
        pairs = [(k.replace("_", "-").encode(), v.encode()) for k, v in wishes.items()]
        header = headers.encode(pairs) if pairs else b""
        answer = self.jet.wire.request(subject, payload, header)
        self.note((subject, wishes, answer))
        return answer

    def messages(self, name: str = "S") -> None:
        state = self.jet.api("STREAM.INFO." + name)["state"]
        found = []
        for seq in range(1, state["last_seq"] + 1):
            answer = self.jet.api("STREAM.MSG.GET." + name, {"seq": seq})
            if "message" in answer:
                m = answer["message"]
                found.append(
                    (seq, m["subject"], base64.b64decode(m.get("hdrs", "")), base64.b64decode(m.get("data", "")))
                )
        self.note((state["messages"], state["first_seq"], state["last_seq"], found))

    def at(self, seconds: float) -> str:
        return "@at " + format_time(self.now() + int(seconds * SECOND))

    def wait(self, seconds: float) -> None:
        self.jet.advance(seconds)


Conversation = Callable[[Talk], None]
TALKS: list[Conversation] = []


def talk(function: Conversation) -> Conversation:
    TALKS.append(function)
    return function


@talk
def every_form_of_a_ttl(t: Talk) -> None:
    t.stream(allow_msg_ttl=True)
    forms = "1s 1.5s 1m1h 60 never NEVER Never 999ms 0 0s -1 -5s 1d 1w abc 00 +5 +5s 1e3 1.s .5s 5.5 1h1 ١ 0x10 1µs 1us"
    for number, form in enumerate(forms.split()):
        t.put(f"s.{number}", Nats_TTL=form)
    t.put("s.blank", Nats_TTL="")
    t.put("s.twice", Nats_TTL=" 5")


@talk
def a_ttl_without_permission(t: Talk) -> None:
    t.stream()
    for form in ("5s", "never", "0", "00", "abc", "1"):
        t.put("s.a", Nats_TTL=form)
    t.ask("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "allow_msg_ttl": True})
    t.put("s.a", Nats_TTL="5s")
    t.ask("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"]})
    t.messages()


@talk
def which_refusal_comes_first(t: Talk) -> None:
    t.stream(max_msg_size=200)
    big = b"x" * 300
    t.put("s.a", big, Nats_TTL="5s")
    t.put("s.a", Nats_TTL="5s", Nats_Expected_Last_Sequence="9")
    t.put("s.a", Nats_TTL="5s", Nats_Expected_Stream="other")
    t.put("s.a", Nats_TTL="x", Nats_Expected_Last_Sequence="9")
    t.put("s.a", Nats_TTL="x", Nats_Rollup="sub")
    t.put("s.a", Nats_Msg_Id="1")
    t.put("s.a", Nats_TTL="x", Nats_Msg_Id="1")


@talk
def messages_go_when_their_ttl_is_over(t: Talk) -> None:
    t.stream(allow_msg_ttl=True)
    t.put("s.a", Nats_TTL="2s")
    t.put("s.b", Nats_TTL="5")
    t.put("s.c", Nats_TTL="never")
    t.put("s.d")
    t.messages()
    t.wait(2.8)
    t.messages()
    t.wait(3)
    t.messages()


@talk
def max_age_spares_what_never_goes(t: Talk) -> None:
    t.stream(allow_msg_ttl=True, max_age=SECOND, duplicate_window=SECOND)
    t.put("s.a", Nats_TTL="never")
    t.put("s.b")
    t.put("s.c", Nats_TTL="never")
    t.put("s.d", Nats_TTL="20s")
    t.wait(2.6)
    t.messages()
    t.put("s.e")
    t.wait(2.6)
    t.messages()


@talk
def markers_after_ttl(t: Talk) -> None:
    t.stream(allow_msg_ttl=True, subject_delete_marker_ttl=2 * SECOND, max_msgs_per_subject=1)
    t.put("s.a", Nats_TTL="1s")
    t.put("s.b", Nats_TTL="1s")
    t.put("s.b", b"without")
    t.put("s.c", b"", Nats_TTL="1s", KV_Operation="PURGE")
    t.put("s.d", b"", Nats_TTL="1s", KV_Operation="DEL")
    t.put("s.e", b"", Nats_TTL="1s", Nats_Marker_Reason="Remove")
    t.wait(1.7)
    t.messages()
    t.wait(2.3)
    t.messages()


@talk
def markers_after_max_age(t: Talk) -> None:
    t.stream(subject_delete_marker_ttl=60 * SECOND, max_age=4 * SECOND, duplicate_window=SECOND)
    for key in "aab":
        t.put(f"s.{key}")
    t.wait(5.5)
    t.messages()


@talk
def a_ttl_is_raised_to_that_of_markers(t: Talk) -> None:
    t.stream(subject_delete_marker_ttl=2500_000_000)
    t.put("s.a", Nats_TTL="1s", Other="kept")
    t.put("s.a", Nats_TTL="never")
    t.put("s.a", Nats_TTL="2s", KV_Operation="PURGE")
    t.messages()
    t.stream("Sb", ("t.>",), subject_delete_marker_ttl=2500_000_000, max_msgs_per_subject=1)
    t.put("t.a", Nats_TTL="1s")
    t.messages("Sb")


@talk
def deletes_and_purges_leave_no_marker(t: Talk) -> None:
    t.stream(subject_delete_marker_ttl=5 * SECOND)
    for key in "abcd":
        t.put(f"s.{key}")
    t.ask("STREAM.MSG.DELETE.S", {"seq": 1})
    t.ask("STREAM.PURGE.S", {"filter": "s.b"})
    t.put("s.c", Nats_Rollup="sub")
    t.messages()
    t.ask("STREAM.PURGE.S")
    t.messages()


@talk
def a_pending_message_expires(t: Talk) -> None:
    t.stream(allow_msg_ttl=True)
    config = {"durable_name": "C", "ack_policy": "explicit", "ack_wait": 30 * SECOND}
    t.ask("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config})
    events = t.jet.listen("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.S.C")
    t.put("s.a", Nats_TTL="1s")
    t.put("s.b", Nats_TTL="1s")
    t.put("s.c")
    t.note([m.payload for m in t.jet.pull(b"1")])
    t.wait(1.7)
    t.note([[pair for pair in scrub(m.json()) if pair[0] != "consumer_seq"] for m in t.jet.heard(events)])
    t.ask("CONSUMER.INFO.S.C")


@talk
def a_pending_message_is_too_old(t: Talk) -> None:
    t.stream(max_age=SECOND, duplicate_window=SECOND)
    config = {"durable_name": "C", "ack_policy": "explicit", "ack_wait": 30 * SECOND}
    t.ask("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config})
    events = t.jet.listen("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.S.C")
    t.put("s.a")
    t.put("s.b")
    t.note([m.payload for m in t.jet.pull(b"1")])
    t.wait(1.8)
    t.note([scrub(m.json()) for m in t.jet.heard(events)])
    t.ask("CONSUMER.INFO.S.C")


@talk
def what_a_schedule_must_be(t: Talk) -> None:
    t.stream(allow_msg_schedules=True)
    far = {"Nats_Schedule_Target": "s.out"}
    patterns = (
        "@at 2099-01-01T00:00:00Z", "@at 2099-01-01T00:00:00", "@at 2099-01-01t00:00:00z", "@at  2099-01-01T00:00:00Z",
        "@at 2099-01-01T5:00:00Z", "@at 2099-01-01T00:00:00.123456789+02:00", "@at 2099-02-30T00:00:00Z", "@at",
        "@at 2099-01-01 00:00:00Z", "@at 2099-01-01T24:00:00Z", "@at 2099-01-01T00:00:60Z",
        "@at 2099-01-01T00:00:00,5Z", "@every 100h", "@every 1h1.5s", "@every 999ms",
        "@every 0", "@every -5s", "@every 1d", "@every", "@every  1h",
        "@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually", "@Hourly", "@reboot",
        "0 0 0 1 1 *", "0 0 0 1 1", "0 0 0 1 1 * *", "60 0 0 1 1 *", "0 0 24 1 1 *", "0 0 0 0 1 *", "0 0 0 32 1 *",
        "0 0 0 1 13 *", "0 0 0 1 0 *", "0 0 0 1 1 7", "0 0 0 1 JAN SUN", "0 0 0 1 january *", "0 0 0 ? * ?",
        "0 0 0 30 2 *", "0 0 0 29 2 *", "0 0/0 0 1 1 *", "0 0 0 1-5 1 *", "0 0 0 5-1 1 *", "0 0 0 1-2-3 1 *",
        "0 0 0 1/2/3 1 *", "0 0 0 1,2,,3 1 *", "0 0 0 , 1 *", "0 0 0 */40 1 *", "0 0 0 +1 1 *", "0 0 0 -1 1 *",
        "0 0 0 1 1 mon-fri", "0 0 0 1 1 L", "0\t0 0  1 1 *", "*-9 0 0 1 1 *", "0 0 0 1 1 1#2", "TZ=UTC 0 0 0 1 1 *",
        "soon", "",
    )  # fmt: skip
    for number, pattern in enumerate(patterns):
        t.put(f"s.{number}", Nats_Schedule=pattern, **far)
    t.ask("STREAM.INFO.S")


@talk
def what_else_a_schedule_must_have(t: Talk) -> None:
    t.stream(allow_msg_schedules=True)
    at = {"Nats_Schedule": "@at 2099-01-01T00:00:00Z"}
    to = {"Nats_Schedule_Target": "s.out"}
    cron = {"Nats_Schedule": "0 0 0 1 1 *", **to}
    t.put("s.a", **at)
    for target in ("s.*", "s.a", "other.a", "", "s..b", "s.b c", "s.>"):
        t.put("s.a", **at, Nats_Schedule_Target=target)
    for source in ("s.*", "s.a", "s.out", "other.a", "", "s.src"):
        t.put("s.a", **at, **to, Nats_Schedule_Source=source)
    for ttl in ("5s", "x", "", "never", "0", "00"):
        t.put("s.a", **at, **to, Nats_Schedule_TTL=ttl)
    for rollup in ("sub", "Sub", "all", ""):
        t.put("s.a", **at, **to, Nats_Schedule_Rollup=rollup)
    for rollup in ("sub", "SUB", "all", "", "x"):
        t.put("s.a", **at, **to, Nats_Rollup=rollup)
    for zone in ("Europe/Berlin", "UTC", "Nowhere/City", "", "CET", "../etc", "europe/berlin", "America", "GMT+3"):
        t.put("s.a", **cron, Nats_Schedule_Time_Zone=zone)
    t.put("s.a", **at, **to, Nats_Schedule_Time_Zone="UTC")
    t.put("s.a", Nats_Schedule="@every 1h", **to, Nats_Schedule_Time_Zone="UTC")
    t.put("s.a", Nats_Schedule="@hourly", **to, Nats_Schedule_Time_Zone="Asia/Tokyo")
    t.put("s.b", Nats_Schedule_Time_Zone="Nowhere")
    t.put("s.b", Nats_Schedule_Time_Zone="UTC")
    t.put("s.b", Nats_Schedule="@at 0001-01-01T00:00:00Z")
    t.messages()


@talk
def who_may_speak_for_a_schedule(t: Talk) -> None:
    t.stream(allow_msg_schedules=True)
    t.put("s.a", Nats_Scheduler="s.b")
    t.put("s.a", Nats_Schedule_Next="purge")
    t.put("s.a", Nats_Schedule_Next="2099-01-01T00:00:00Z", Nats_Scheduler="s.b")
    t.put("s.a", Nats_Schedule_Next="purge", Nats_Scheduler="s.a")
    t.put("s.a", Nats_Schedule_Next="purge", Nats_Scheduler="s.*")
    t.put("s.a", Nats_Schedule_Next="purge", Nats_Scheduler="s.none")
    t.put("s.plain")
    t.put("s.a", Nats_Schedule_Next="purge", Nats_Scheduler="s.plain")
    t.put("s.sch", Nats_Schedule="@every 1h", Nats_Schedule_Target="s.out")
    t.put("s.a", Nats_Schedule_Next="purge", Nats_Scheduler="s.sch")
    t.messages()


@talk
def schedules_without_permission(t: Talk) -> None:
    t.stream()
    t.put("s.a", Nats_Schedule="@every 1h", Nats_Schedule_Target="s.out")
    t.put("s.a", Nats_Schedule="nonsense")
    t.put("s.a", Nats_Schedule_Time_Zone="nonsense")
    t.put("s.a", Nats_Schedule_Next="purge", Nats_Scheduler="s.b")
    t.put("s.a", Nats_Schedule_Target="s.out")
    t.messages()


@talk
def a_schedule_fires_once(t: Talk) -> None:
    t.stream(allow_msg_schedules=True, allow_msg_ttl=True)
    common = {
        "Nats_Schedule_Target": "s.out",
        "Nats_Msg_Id": "id",
        "Nats_Expected_Last_Sequence": "0",
        "Other": "kept",
    }
    t.put("s.one", b"body", Nats_Schedule=t.at(1.5), **common)
    t.put("s.two", b"two", Nats_Schedule=t.at(1.5), Nats_Schedule_Target="s.out2", Nats_Schedule_TTL="7s")
    t.put("s.past", b"past", Nats_Schedule=t.at(-5), Nats_Schedule_Target="s.past.out")
    t.wait(0.6)  # it fires a quarter of a second later: not between the messages that follow
    t.put("s.gone", b"gone", Nats_Schedule=t.at(1.5), Nats_Schedule_Target="s.never")
    t.put("s.replaced", b"old", Nats_Schedule=t.at(1.5), Nats_Schedule_Target="s.never")
    t.put("s.replaced", b"new", Nats_Schedule="@at 2099-01-01T00:00:00Z", Nats_Schedule_Target="s.never")
    t.put("s.covered", b"old", Nats_Schedule=t.at(1.5), Nats_Schedule_Target="s.never")
    t.put("s.covered", b"plain")
    t.ask("STREAM.PURGE.S", {"filter": "s.gone"})
    t.wait(2.4)
    t.messages()


@talk
def a_schedule_passes_its_source_on(t: Talk) -> None:
    t.stream(allow_msg_schedules=True, allow_msg_ttl=True)
    t.put("s.src", b"first", Kind="1")
    t.put("s.src", b"second", Kind="2", Nats_TTL="100s", Nats_Msg_Id="x")
    wishes = {"Nats_Schedule": t.at(1.2), "Nats_Schedule_Rollup": "sub"}
    t.put("s.a", b"own", Nats_Schedule_Source="s.src", Nats_Schedule_Target="s.out", **wishes)
    t.put("s.b", b"own", Nats_Schedule_Source="s.none", Nats_Schedule_Target="s.out2", **wishes)
    t.put("s.out", b"rolled up")
    t.wait(2.1)
    t.messages()


@talk
def a_schedule_repeats_until_it_is_cancelled(t: Talk) -> None:
    t.stream(allow_msg_schedules=True, max_msgs_per_subject=1)
    t.put("s.sch", b"x", Nats_Schedule="@every 1s", Nats_Schedule_Target="s.out")
    t.wait(2.8)
    before = t.jet.api("STREAM.MSG.GET.S", {"last_by_subj": "s.out"})
    t.note(base64.b64decode(before["message"]["hdrs"]))
    t.jet.wire.publish(
        "s.end",
        header=headers.encode([(headers.SCHEDULE_NEXT, b"purge"), (headers.SCHEDULER, b"s.sch")]),
    )
    first = t.jet.api("STREAM.INFO.S")["state"]["last_seq"]
    t.wait(1.6)
    t.note(t.jet.api("STREAM.INFO.S")["state"]["last_seq"] - first)
    t.note(t.jet.api("STREAM.INFO.S")["state"]["messages"])


@talk
def a_repeating_schedule_in_a_time_zone(t: Talk) -> None:
    t.stream(allow_msg_schedules=True, max_msgs_per_subject=1)
    t.put("s.sch", b"x", Nats_Schedule="* * * * * *", Nats_Schedule_Time_Zone="Asia/Tokyo", Nats_Schedule_Target="s.o")
    t.put("s.sc2", b"x", Nats_Schedule="*/1 * * * * ?", Nats_Schedule_Target="s.o2")
    t.wait(2.6)
    for subject in ("o", "o2"):
        found = t.jet.api("STREAM.MSG.GET.S", {"last_by_subj": f"s.{subject}"})
        t.note(base64.b64decode(found["message"]["hdrs"]))


@talk
def mirrors_and_sources_keep_headers(t: Talk) -> None:
    t.stream(allow_msg_ttl=True)
    for suffix, config in (
        ("m", {"mirror": {"name": "S"}}),
        ("mt", {"mirror": {"name": "S"}, "allow_msg_ttl": True}),
        ("s", {"sources": [{"name": "S"}]}),
        ("st", {"sources": [{"name": "S"}], "allow_msg_ttl": True}),
        ("ma", {"mirror": {"name": "S"}, "max_age": 2 * SECOND}),
    ):
        t.stream("S" + suffix, (), **config)
    t.put("s.a", Nats_TTL="4s")
    t.put("s.b", Nats_TTL="never")
    t.put("s.c")
    t.wait(5.6)
    for suffix in ("", "m", "mt", "ma"):
        t.messages("S" + suffix)
    for suffix in ("s", "st"):
        state = t.jet.api(f"STREAM.INFO.S{suffix}")["state"]
        t.note((state["messages"], state["first_seq"], state["last_seq"]))


@talk
def schedules_that_are_sourced(t: Talk) -> None:
    t.stream(allow_msg_schedules=True)
    t.stream("Ss", (), sources=[{"name": "S"}], allow_rollup_hdrs=True)
    t.stream("Sp", (), sources=[{"name": "S"}])
    t.stream("Sx", (), sources=[{"name": "S"}], allow_msg_schedules=True)
    t.stream("Sy", (), mirror={"name": "S"}, allow_msg_schedules=True)
    t.put("s.a", b"job", Nats_Schedule=t.at(2.5), Nats_Schedule_Target="s.out")
    t.wait(4)
    for suffix in ("", "s", "p"):
        state = t.jet.api(f"STREAM.INFO.S{suffix}")["state"]
        t.note((state["messages"], state["first_seq"], state["last_seq"]))


@talk
def everything_in_memory(t: Talk) -> None:
    config: dict[str, Any] = {"storage": "memory", "allow_msg_schedules": True}
    t.stream(subject_delete_marker_ttl=100 * SECOND, **config)
    t.put("s.a", Nats_TTL="1s")
    t.put("s.b", Nats_TTL="1s", KV_Operation="PURGE")
    t.put("s.job", b"job", Nats_Schedule=t.at(1.5), Nats_Schedule_Target="s.out")
    t.wait(2.4)
    t.ask("STREAM.INFO.S")


@talk
def schedules_with_a_transform(t: Talk) -> None:
    t.stream(
        allow_msg_schedules=True,
        subject_transform={"src": "s.*", "dest": "s.x.{{wildcard(1)}}"},
    )
    t.put("s.a", b"job", Nats_Schedule=t.at(1.2), Nats_Schedule_Target="s.out")
    t.wait(2)
    t.messages()


@talk
def schedules_and_consumers(t: Talk) -> None:
    t.stream(allow_msg_schedules=True, retention="workqueue")
    config = {"durable_name": "C", "ack_policy": "explicit", "filter_subject": "s.out"}
    t.ask("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config})
    t.put("s.a", b"job", Nats_Schedule=t.at(1), Nats_Schedule_Target="s.out")
    t.wait(1.6)
    (message,) = t.jet.pull(b"1")
    t.note((message.subject, message.header, message.payload))
    t.jet.double_ack(message)
    t.messages()


def ours(conversation: Conversation) -> list[Any]:
    machine = Machine()
    return _notes(conversation, machine, machine.clock.now_ns)


def theirs(conversation: Conversation, url: str) -> list[Any]:
    """Have a conversation with a server; one that broke off, as it counts on what came late, is told differently."""
    try:
        return _notes(conversation, cast(Machine, Live(url, Score())), time.time_ns)
    except Exception:
        return [traceback.format_exc()]


def _notes(conversation: Conversation, machine: Machine, now: Callable[[], int]) -> list[Any]:
    talk_ = Talk(machine, now)
    try:
        conversation(talk_)
    finally:
        talk_.jet.wire.close()
    return talk_.notes


def assert_all_same_in_time(server: AccountServer) -> None:
    """Have all conversations with the engine, and at once with nats-server, and compare."""

    def compared(conversation: Conversation, notes: list[Any]) -> str:
        pairs: list[Any] = []
        for _ in range(TRIES):
            pairs = [(a, b) for a, b in zip_longest(notes, theirs(conversation, server.url())) if a != b]
            if not pairs:
                break
        return "\n".join(f"{conversation.__name__}\nours   {a}\ntheirs {b}" for a, b in pairs)

    with ThreadPoolExecutor(len(TALKS)) as pool:
        found = list(filter(None, pool.map(compared, TALKS, map(ours, TALKS))))
    assert not found, "\n\n".join(found)
