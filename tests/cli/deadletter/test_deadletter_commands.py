"""`natsctl deadletter` as a script runs it; tests/client/test_deadletters.py has what is behind it."""

import base64

import pytest

from tests.support.commands import Run


@pytest.fixture
def failed(natsctl: Run) -> Run:
    """Three orders on a stream, two of them terminated; the stream keeps copies of dead letters."""
    for line in (
        "str add ORDERS --subjects ORDERS.> --defaults",
        "dlq enable ORDERS --copy --max-msgs 100",
        "con add ORDERS NEW --pull --defaults",
        "pub ORDERS.new order --count 3 --jetstream --quiet -H Trace:7",
        "con next ORDERS NEW --count 2 --term",
    ):
        done = natsctl(*line.split())
        assert done.code == 0, (line, done.err)
    return natsctl


def test_enable_creates_changes_and_repeats(natsctl: Run) -> None:
    assert natsctl("dlq", "enable", "ORDERS").code == 3
    natsctl("str", "add", "ORDERS", "--subjects", "ORDERS.>", "--defaults")
    done = natsctl("dlq", "enable", "ORDERS", "--max-age", "7d", "-j")
    assert (done.json["capture"], done.json["created"]) == ("DEADLETTERS_ORDERS", True)
    assert done.json["config"]["max_age"] == 7 * 86_400 * 10**9
    assert "exists already" in natsctl("dlq", "enable", "ORDERS").err
    assert "was changed" in natsctl("dlq", "enable", "ORDERS", "--copy").err
    conflict = natsctl("dlq", "enable", "--all")
    assert (conflict.code, "natsctl deadletter disable ORDERS" in conflict.err) == (4, True)
    assert natsctl("dlq", "enable", "ORDERS", "--all").code == 2
    assert natsctl("dlq", "ls").err == "no dead letters\n"
    assert natsctl("dlq", "disable", "ORDERS").code == 2
    assert natsctl("dlq", "disable", "ORDERS", "-f", "-j").json == {"stream": "ORDERS", "removed": True}
    missing = natsctl("dlq", "ls", "ORDERS")
    assert (missing.code, "natsctl deadletter enable ORDERS" in missing.err) == (3, True)


def test_what_failed_is_listed_counted_and_shown(failed: Run) -> None:
    letters = failed("dlq", "ls", "-j").json
    assert [(letter["stream"], letter["consumer"], letter["seq"]) for letter in letters] == [
        ("ORDERS", "NEW", 1), ("ORDERS", "NEW", 2),
    ]  # fmt: skip
    assert letters[0]["subject"] == "ORDERS.new" and letters[0]["exists"] and not letters[0]["copied"]
    assert len(failed("dlq", "ls", "ORDERS", "--limit", "1", "-j").json) == 1
    assert failed("dlq", "ls", "ORDERS", "--reason", "max", "-j").json == []
    assert failed("dlq", "ls", "--since", "2h", "--until", "3h").code == 2
    assert "stored" in failed("dlq", "ls").out
    (counts,) = failed("dlq", "report", "-j").json
    assert (counts["reason"], counts["messages"]) == ("terminated", 2)
    assert "Dead Letters: 2" in failed("dlq", "report", "ORDERS").out
    page = failed("dlq", "show", "ORDERS", "1").out
    assert page.startswith("Message 1 of Stream ORDERS: terminated\n")
    assert "NEW: terminated" in page and "Trace: 7" in page and page.endswith("Data:\n\norder\n")
    shown = failed("dlq", "show", "ORDERS", "1", "-j").json
    assert base64.b64decode(shown["message"]["data"]) == b"order"
    absent = failed("dlq", "show", "ORDERS", "3")
    assert (absent.code, "natsctl explain message ORDERS 3" in absent.err) == (1, True)


def test_the_check_counts_them_and_knows_their_age(failed: Run) -> None:
    assert failed("server", "check", "dlq").code == 1
    done = failed("server", "check", "deadletters", "--stream", "ORDERS", "--msgs-critical", "2", "--age-warn", "1h")
    assert (done.code, "ORDERS > NEW: 2 terminated" in done.out) == (2, True)
    assert failed("server", "check", "deadletters", "--msgs-warn", "3", "--age-critical", "1ms").code == 2
    assert failed("server", "check", "deadletters", "--consumer", "OTHER").code == 0
    metrics = failed("server", "check", "deadletters", "--format", "prometheus").out
    assert 'nats_server_check_deadletters_dead_letters{item="all streams"} 2' in metrics


def test_copies_outlive_messages(failed: Run) -> None:
    assert "2 messages copied" in failed("dlq", "run", "--once").err
    assert failed("str", "purge", "ORDERS", "-f").code == 0
    assert "copied" in failed("dlq", "ls").out
    assert "a copy" in failed("dlq", "show", "ORDERS", "2").out
    assert failed("dlq", "replay", "ORDERS", "2", "-j").json["replayed"] == 1
    assert [letter["seq"] for letter in failed("dlq", "ls", "-j").json] == [1]


def test_run_without_copies_says_how_to_keep_them(natsctl: Run) -> None:
    natsctl("str", "add", "ORDERS", "--subjects", "ORDERS.>", "--defaults")
    natsctl("dlq", "enable", "ORDERS")
    done = natsctl("dlq", "run", "--once")
    assert (done.code, "--copy" in done.err) == (3, True)
    assert natsctl("dlq", "run", "--copy", "--once").code == 0


def test_a_replay_is_shown_and_done(failed: Run) -> None:
    planned = failed("dlq", "replay", "ORDERS", "--dry-run", "-j")
    assert planned.json["effect"] == {"replayed": 2, "removed": 0, "missing": 0, "skipped": 0}
    (header,) = planned.json["requests"][0]["headers"]["Nats-Msg-Id"]
    assert header.startswith("dead-letter.ORDERS.1.")
    assert "2 messages replayed" in failed("dlq", "replay", "ORDERS", "--rate", "1000").err
    assert failed("dlq", "ls").err == "no dead letters\n"
    assert failed("str", "info", "ORDERS", "-j").json["state"]["messages"] == 5
    assert failed("dlq", "replay", "ORDERS", "--to", "x.*").code == 2
    assert failed("dlq", "replay", "--no-input").code == 2


def test_a_subject_without_a_stream_leaves_everything(failed: Run) -> None:
    assert failed("dlq", "replay", "ORDERS", "--to", "nowhere").code == 5
    assert len(failed("dlq", "ls", "-j").json) == 2


def test_discard_asks_and_removes(failed: Run) -> None:
    effect = failed("dlq", "discard", "ORDERS", "--messages", "--dry-run", "-j").json["effect"]
    assert effect == {"dead_letters": 2, "messages_at_most": 2}
    assert failed("dlq", "discard", "ORDERS", "1", "-f", "-j").json == {"discarded": 1, "messages": 0, "skipped": []}
    assert failed("dlq", "discard", "--all", "--messages", "-f", "-j").json["messages"] == 1
    assert failed("str", "info", "ORDERS", "-j").json["state"]["messages"] == 2


def test_watch_shows_dead_letters_as_they_come(failed: Run) -> None:
    lines = failed("dlq", "watch", "ORDERS", "--since", "1h", "--count", "2", "-j").lines
    assert [(line["seq"], line["exists"]) for line in lines] == [(1, True), (2, True)]
    text = failed("dlq", "watch", "--since", "1h", "--consumer", "NEW", "--count", "1").out
    assert "ORDERS > NEW message 1 ORDERS.new: terminated (stored)" in text
