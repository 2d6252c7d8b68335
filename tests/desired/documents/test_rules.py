"""What servers refuse is told offline, where it stands; and what is likely not meant."""

from pathlib import Path

import pytest

from natsctl.desired.documents import read_documents


@pytest.mark.parametrize(
    ("text", "line", "path", "reason"),
    [
        ("name: a.b", 1, "$.name", "stream name is required and can not contain"),
        ("name: A\nmax_age: 10ms", 2, "$.max_age", "max age needs to be >= 100ms"),
        ("name: A\nmax_age: 1h\nduplicate_window: 2h", 3, "$.duplicate_window", "duplicates window can not be larger"),
        ("name: A\nsubjects: ['>']", 2, "$.subjects", "capturing all subjects requires no-ack"),
        ("name: A\nsubjects:\n- a.>\n- a.b", 2, "$.subjects", "overlaps with"),
        ("name: A\nsubjects: [$JS.API.x]", 2, "$.subjects", "overlap with jetstream api"),
        ("name: A\nnum_replicas: 7", 2, "$.num_replicas", "maximum replicas is 5"),
        ("name: A\ndiscard_new_per_subject: true", 2, "$.discard_new_per_subject", "requires discard new"),
        ("name: A\ndeny_purge: true\nallow_rollup_hdrs: true", 3, "$.allow_rollup_hdrs", "roll-ups require the purge"),
        ("name: A\nmirror: {name: B}\nsubjects: [x]", 2, "$.mirror", "stream mirrors can not contain subjects"),
        ("name: A\nsources: [{name: A}]\nsubjects: [a]", 2, "$.sources", "detected cycle"),
        ("name: A\nrepublish: {src: a.>, dest: A}", 2, "$.republish", "forms a cycle"),
        ("name: A\nsubject_transform: {src: a, dest: 'b.{{nope(1)}}'}", 2, "$.subject_transform", "transform"),
        ("name: A\nallow_msg_counter: true\ndiscard: new", 2, "$.allow_msg_counter", "counter stream cannot use"),
        ("name: A\npersist_mode: async\nstorage: memory", 2, "$.persist_mode", "only supported on file storage"),
        ("name: A\nplacement: {preferred: n1}", 2, "$.placement", "preferred server not permitted"),
        ("stream: A\nname: x.y", 2, "$.name", "can not contain"),
        ("stream: A\nname: C\ndurable_name: D", 2, "$.name", "expected D, which is its durable_name, got C"),
        ("stream: A\nname: C\nack_policy: none\nmax_ack_pending: 5\ndeliver_subject: x", 4, "$.max_ack_pending", "ack"),
        ("stream: A\nname: C\nidle_heartbeat: 1s", 3, "$.idle_heartbeat", "requires a push based consumer"),
        ("stream: A\nname: C\nflow_control: true", 3, "$.flow_control", "requires a push based consumer"),
        ("stream: A\nname: C\ndeliver_subject: a.*", 3, "$.deliver_subject", "has wildcards"),
        ("stream: A\nname: C\nfilter_subject: a\nfilter_subjects: [b]", 4, "$.filter_subjects", "cannot have both"),
        ("stream: A\nname: C\nfilter_subjects: [a.>, a.b]", 3, "$.filter_subjects", "cannot overlap"),
        ("stream: A\nname: C\ndeliver_policy: by_start_time", 3, "$.deliver_policy", "start time is not set"),
        ("stream: A\nname: C\nopt_start_seq: 5", 3, "$.opt_start_seq", "start sequence is also set"),
        ("stream: A\nname: C\nsample_freq: many", 3, "$.sample_freq", "sampling configuration"),
        ("stream: A\nname: C\nbackoff: [1s, 2s]\nmax_deliver: 1", 3, "$.backoff", "max deliver is required"),
        ("stream: A\nname: C\npriority_policy: overflow", 3, "$.priority_policy", "at least one PriorityGroup"),
        ("stream: A\nname: C\nrate_limit_bps: 5", 3, "$.rate_limit_bps", "can not have rate limit"),
        ("kind: KeyValue\nbucket: B\nhistory: 65", 3, "$.history", "1 to 64 values"),
        ("kind: KeyValue\nbucket: a.b", 2, "$.bucket", "is not a valid bucket name"),
        ("kind: KeyValue\nbucket: B\nttl: 1ms", 3, "$.ttl", "max age needs to be >= 100ms"),
        ("kind: KeyValue\nbucket: B\nreplicas: 9", 3, "$.replicas", "maximum replicas is 5"),
        ("kind: KeyValue\nbucket: B\nmirror: C\nsources: [D]", 3, "$.mirror", "a mirror has no sources"),
        ("kind: KeyValue\nbucket: B\nrepublish: {src: '>'}", 3, "$", "destination is needed"),
    ],
)
def test_a_refusal_is_told_at_its_field(told, text: str, line: int, path: str, reason: str) -> None:
    ((at, where, why),) = told(text)
    assert reason in why
    assert (where == path and at == line) or path == "$", (at, where)


SET = """
streams:
- name: A
  subjects: [a.>]
  consumers:
  - {name: OUT, filter_subject: b.x}
- name: B
  subjects: [b.*, "a.b.*"]
- name: M
  mirror: {name: N}
- name: N
  mirror: {name: M}
- name: Q
  subjects: [q.*]
  retention: workqueue
  consumers:
  - {name: ONE, filter_subject: q.a, ack_policy: explicit}
  - {name: TWO, filter_subject: "q.*", ack_policy: explicit}
  - {name: LATE, filter_subject: q.c, ack_policy: explicit, deliver_policy: new}
  - {name: MUTE, filter_subject: q.d, ack_policy: none}
- name: F
  max_consumers: 1
  consumer_limits: {max_ack_pending: 10}
  consumers: [{name: X}, {name: Y}, {name: Z, ack_policy: explicit, max_ack_pending: 20}]
- name: BIG
  max_msg_size: 10
  sources: [{name: B2}]
- name: B2
  max_msg_size: 20
"""


def test_what_excludes_each_other_in_a_set_is_told(tmp_path: Path) -> None:
    (tmp_path / "set.yaml").write_text(SET)
    documents, faults = read_documents([str(tmp_path / "set.yaml")], {})
    assert [(fault.place.line, fault.reason) for fault in faults] == [
        (8, "subject a.b.* overlaps with a.> of stream A"),
        (10, "detected cycle"),
        (12, "detected cycle"),
        (18, "on a workqueue each message has one consumer: its filter overlaps with that of ONE"),
        (19, "a consumer of a workqueue has to deliver all"),
        (19, "on a workqueue each message has one consumer: its filter overlaps with that of TWO"),
        (20, "consumer in pull mode requires explicit ack policy on workqueue stream"),
        (24, "consumer max ack pending exceeds system limit of 10"),
        (24, "stream F takes 1 consumers (max_consumers), and has them already"),
        (27, "stream source must have max message size >= target"),
    ]
    assert documents.notes == (
        f"{tmp_path}/set.yaml:6: $.streams[0].consumers[0].filter_subject: "
        "warning: filter b.x matches nothing that stream A stores (a.>)",
    )


def test_what_the_server_has_may_be_right(read) -> None:
    consumer = "stream: ELSEWHERE\nname: C\nnum_replicas: 3\nfilter_subject: any.thing\n"
    assert len(read(f"{consumer}---\nname: A\nmirror: {{name: ELSEWHERE}}\n").wanted) == 2


@pytest.mark.parametrize(
    "more", ["sources: [{name: B}]", "subject_transform: {src: a.>, dest: b.>}", "mirror: {name: B}"]
)
def test_filters_of_what_comes_from_elsewhere_are_not_doubted(read, more: str) -> None:
    subjects = "" if "mirror" in more else "  subjects: [a.>]\n"
    text = f"streams:\n- name: A\n{subjects}  {more}\n  consumers: [{{name: C, filter_subject: b.x}}]\n"
    assert read(text).notes == ()
