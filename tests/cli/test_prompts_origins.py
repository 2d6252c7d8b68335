"""The dialogue about mirrors and sources, answered at a pseudo-terminal; nothing is created (`--validate`)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from natsctl.cli.stream.dialogue import read_name, read_start_time, read_subject

pytest.importorskip("pexpect")

Run = Callable[..., Any]

GIVEN = shlex.split(
    "--storage file --replicas 1 --retention limits --discard old --max-msgs=-1 --max-msgs-per-subject=-1 "
    "--max-bytes=-1 --max-age=-1 --max-msg-size=-1 --dupe-window 2m --no-allow-rollup --no-deny-delete"
    " --no-deny-purge --validate"
)


def document(screen: str) -> Any:
    return json.loads(screen[screen.index("{\n") :])


def test_a_mirror_is_adjusted_by_answers(person: Run) -> None:
    one = person("str", "add", "M", "--mirror", "ORDERS", *GIVEN)
    one.answers("Configure a custom durable consumer")
    one.answers("Adjust mirror start", "y\r")
    one.answers("Mirror Start Sequence")
    one.answers("Mirror Start Time (YYYY:MM:DD HH:MM:SS)", "2026:01:31 12:00:00\r")
    one.answers("Adjust mirror filter and transform", "y\r")
    one.answers("Filter mirror by subject (enter to finish)", "ORDERS.new\r")
    one.answers("Subject transform destination")
    one.answers("Filter mirror by subject (enter to finish)")
    one.answers("Import mirror from a different JetStream domain", "y\r")
    one.answers("Foreign JetStream domain name", "hub\r")
    one.answers("Delivery prefix", "deliver.hub\r")
    status, screen = one.end()
    assert status == 0, screen
    assert document(screen)["mirror"] == {
        "name": "ORDERS",
        "opt_start_time": "2026-01-31T12:00:00Z",
        "filter_subject": "ORDERS.new",
        "external": {"api": "$JS.hub.API", "deliver": "deliver.hub"},
    }


def test_each_source_is_asked_about_by_name_unless_given_whole(person: Run) -> None:
    one = person("str", "add", "S", "--source", "A", "--source", '{"name": "B", "opt_start_seq": 7}', *GIVEN)
    one.answers("Configure a custom durable consumer for source A")
    one.answers("Adjust source A start", "y\r")
    one.answers("A Start Sequence", "5\r")
    one.answers("A Start Time")
    one.answers("Adjust source A filter and transform", "y\r")
    one.answers("Filter A by subject", "a.>\r")
    one.answers("Subject transform destination", "b.>\r")
    one.answers("Filter A by subject")
    one.answers("Import source A from a different JetStream domain")
    one.answers("Import source A from a different account", "y\r")
    one.answers("Foreign account API prefix", "api.x\r")
    one.answers("Foreign account delivery prefix", "deliver.x\r")
    status, screen = one.end()
    assert status == 0, screen
    assert document(screen)["sources"] == [
        {
            "name": "A",
            "opt_start_seq": 5,
            "subject_transforms": [{"src": "a.>", "dest": "b.>"}],
            "external": {"api": "api.x", "deliver": "deliver.x"},
        },
        {"name": "B", "opt_start_seq": 7},
    ]


def test_start_times_are_read_in_three_spellings() -> None:
    assert read_start_time("2026:01:31 12:00:00") == "2026-01-31T12:00:00Z"
    assert read_start_time("2026-01-31 12:00:00") == "2026-01-31T12:00:00Z"
    assert read_start_time("2026-01-31T12:00:00+01:00") == "2026-01-31T12:00:00+01:00"
    assert read_start_time("") == ""
    with pytest.raises(ValueError, match="expected a time"):
        read_start_time("yesterday")
    with pytest.raises(ValueError, match="not a day"):
        read_start_time("2026:02:31 12:00:00")


def test_subjects_and_names_of_origins_are_checked() -> None:
    assert (read_subject(""), read_subject("a.>"), read_name("A-b")) == ("", "a.>", "A-b")
    for read, wrong in ((read_subject, "a..b"), (read_subject, ">.a"), (read_name, "a.b")):
        with pytest.raises(ValueError, match=r".+"):
            read(wrong)


def test_a_message_to_show_is_asked_for_by_sequence_or_subject(person: Run, natsctl: Any) -> None:
    natsctl("str", "add", "S", "--subjects", "s.*")
    natsctl("pub", "s.a", "first", "-q", "-J")
    natsctl("pub", "s.b", "second", "-q", "-J")
    one = person("str", "get", "S")
    one.answers("Message Sequence to retrieve", "1\r")
    one.sees("first")
    assert one.end()[0] == 0
    one = person("str", "get", "S")
    one.answers("Message Sequence to retrieve")
    one.answers("Subject to retrieve last message for", "s.b\r")
    one.sees("second")
    assert one.end()[0] == 0
