"""What was asked for is compared with what the server's answer says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from natsctl.cli.editing import part_of
from natsctl.cli.main import run
from natsctl.cli.render.change import not_taken, render_not_taken

Run = Callable[..., Any]


@pytest.fixture
def origin(natsctl: Run) -> Run:
    """Return natsctl with a stream O that answers no direct gets; its mirrors do as it does, whatever they ask for."""
    assert natsctl("str", "add", "O", "--subjects", "o", "--no-allow-direct").code == 0
    return natsctl


def test_a_flag_that_the_server_leaves_out_is_told(origin: Run) -> None:
    made = origin("str", "add", "T", "--mirror", "O", "--allow-mirror-direct", "--max-msgs", "5")
    assert made.code == 0
    assert "warning: the server did not take: mirror_direct true (it has false)" in made.err
    assert "warning" not in made.out
    told = origin("str", "cp", "T", "U", "--allow-mirror-direct").err
    assert "did not take: mirror_direct true" in told
    edited = origin("str", "edit", "T", "--allow-mirror-direct", "--max-msgs", "6", "-f").err
    assert "did not take: mirror_direct true (it has false)" in edited


def test_a_program_sees_it_in_the_answer(origin: Run) -> None:
    made = origin("str", "add", "T", "--mirror", "O", "--allow-mirror-direct", "-j")
    assert (made.err, made.json["config"].get("mirror_direct")) == ("", False)


@pytest.mark.both
def test_what_was_taken_is_not_warned_of(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for line in (
        "str add T --subjects t,u --metadata a=b --no-ack --max-bytes 1GB --dupe-window 1m --max-msgs 0 --max-age 1d",
        "con add T C --defaults --pause 2099-01-01T00:00:00+02:00 --filter t --sample 50 --backoff linear",
        "con add T D --target x.y --deliver 1h --heartbeat 5s --flow-control --bps 1000000 --metadata x=y",
        "con add T E --deliver 2026-11-21T07:00:00.5+00:00 --max-waiting 5 --inactive-threshold 1h --filter t,u",
        "str edit T --max-msgs 0 --max-age 0 --metadata a= -f",
        "con edit T C --description z --metadata u=v --filter= -f",
        "str cp T W --subjects w",
    ):
        assert run(["-s", server.url, *line.split()]) == 0, capsys.readouterr().err
        assert "warning" not in capsys.readouterr().err, line


@pytest.mark.parametrize(
    ("asked", "got"),
    [
        ({"max_msgs": -1}, {}),
        ({"max_msgs": 0}, {"max_msgs": -1}),
        ({"description": ""}, {}),
        ({"allow_direct": False}, {}),
        ({"metadata": {"_nats.ver": "1", "a": "b"}}, {"metadata": {"a": "b", "_nats.ver": "2"}}),
        ({"opt_start_time": "2026-01-01T01:00:00+01:00"}, {"opt_start_time": "2026-01-01T00:00:00Z"}),
        ({"sources": [{"name": "A"}]}, {"sources": [{"name": "A", "filter_subject": "x"}]}),
        ({}, {"anything": 1}),
    ],
)
def test_the_same_in_another_spelling_is_taken(asked: dict[str, Any], got: dict[str, Any]) -> None:
    assert not_taken(asked, got, emptied=True) == []


@pytest.mark.parametrize(
    ("asked", "got", "path"),
    [
        ({"max_msgs": 5}, {"max_msgs": -1}, "max_msgs"),
        ({"allow_direct": False}, {"allow_direct": True}, "allow_direct"),
        ({"placement": {"tags": ["a"]}}, {}, "placement.tags"),
        ({"sources": [{"name": "A", "filter_subject": "x"}]}, {"sources": [{"name": "A"}]}, "sources.0.filter_subject"),
        ({"subjects": ["a", "b"]}, {"subjects": ["a"]}, "subjects"),
        ({"unknown_to_us": "x"}, {}, "unknown_to_us"),
    ],
)
def test_what_was_not_taken_is_named_by_its_path(asked: dict[str, Any], got: dict[str, Any], path: str) -> None:
    (one,) = not_taken(asked, got)
    assert one.path == path
    assert path in render_not_taken([one])


def test_emptiness_is_asked_for_by_an_edit_only() -> None:
    assert not_taken({"subjects": []}, {"subjects": ["T"]}) == []
    assert [one.path for one in not_taken({"subjects": []}, {"subjects": ["T"]}, emptied=True)] == ["subjects"]
    assert part_of({"placement": {"tags": ["a"]}, "x": 1}, ["placement.tags", "mirror"]) == {
        "placement": {"tags": ["a"]},
        "mirror": None,
    }


def test_a_server_s_text_cannot_drive_the_terminal() -> None:
    assert "\x1b" not in render_not_taken(not_taken({"description": "a"}, {"description": "\x1b[2J"}))


def test_subjects_that_another_stream_stores_are_told_with_its_name(natsctl: Run) -> None:
    natsctl("str", "add", "FIRST", "--subjects", "orders.*")
    failed = natsctl("str", "add", "SECOND", "--subjects", "orders.>")
    assert failed.code == 4
    assert "stored already by FIRST" in failed.err
    failed = natsctl("str", "add", "FIRST", "--subjects", "other")
    assert "natsctl stream edit FIRST" in failed.err
