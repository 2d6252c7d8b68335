"""The questions of `stream add`: answers are judged while they are typed, help names the flag, Ctrl-C makes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from natsctl.cli.stream.dialogue import read_name, read_start_time, read_subject

Run = Callable[..., Any]


def test_answers_are_judged_while_they_are_typed(person: Callable[..., Any], natsctl: Run) -> None:
    one = person("str", "add", "S")
    one.answers("Subjects", "a..b")
    one.sees("'a..b' is not a subject")
    one.child.send("\x15s.*\r")
    one.answers("Storage", "\x03")
    assert one.end()[0] == 130
    assert natsctl("str", "ls", "-n").out == ""


def test_help_in_the_dialogue_of_a_mirror_names_its_flag(person: Callable[..., Any], natsctl: Run) -> None:
    natsctl("str", "add", "S", "--subjects", "s")
    words = [f"--{name}={value}" for name, value in (("storage", "file"), ("replicas", 1), ("retention", "limits"))]
    words += ["--discard=old", "--max-msgs=-1", "--max-bytes=-1", "--max-age=-1", "--max-msg-size=-1"]
    one = person("str", "add", "M", "--mirror", "S", *words, "--no-allow-rollup", "--no-deny-delete", "--no-deny-purge")
    one.answers("Configure a custom durable consumer", "?")
    one.sees("Settable using --mirror")
    one.answers("Configure a custom durable consumer", "\r")
    one.answers("Adjust mirror start", "y\r")
    one.answers("Mirror Start Sequence", "7\r")
    one.answers("Adjust mirror filter and transform", "\r")
    one.answers("different JetStream domain", "\r")
    one.answers("different account", "\r")
    assert one.end()[0] == 0
    assert natsctl("str", "info", "M", "-j").json["config"]["mirror"] == {"name": "S", "opt_start_seq": 7}


def test_what_is_typed_about_origins_is_checked() -> None:
    assert read_start_time("2026:01:31 12:00:00") == "2026-01-31T12:00:00Z"
    assert (read_subject(""), read_subject("a.>"), read_name("A-b")) == ("", "a.>", "A-b")
    for read, wrong in ((read_subject, "a..b"), (read_subject, ">.a"), (read_name, "a.b"), (read_start_time, "noon")):
        with pytest.raises(ValueError, match=r".+"):
            read(wrong)
