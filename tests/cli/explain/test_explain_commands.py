"""`natsctl explain` as a script runs it; tests/client/test_explain.py plants the situations."""

import pytest

from tests.support.commands import Run


@pytest.fixture
def unmatched(natsctl: Run) -> Run:
    assert natsctl("str", "add", "ORDERS", "--subjects", "ORDERS.>", "--defaults").code == 0
    assert natsctl("pub", "ORDERS.eu.new", "x", "--jetstream", "--quiet").code == 0
    assert natsctl("con", "add", "ORDERS", "NEW", "--filter", "ORDERS.*", "--pull", "--defaults").code == 0
    return natsctl


def test_the_first_line_is_the_cause_and_the_next_lines_show_it(unmatched: Run) -> None:
    done = unmatched("explain", "consumer", "ORDERS", "NEW")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Consumer ORDERS > NEW: the filter selects no message of the stream\n")
    assert "near miss: ORDERS.eu.new has more tokens" in done.out
    assert "Next: natsctl stream subjects ORDERS" in done.out


def test_check_ends_with_1_if_a_cause_was_found(unmatched: Run) -> None:
    assert unmatched("explain", "consumer", "ORDERS", "NEW", "--check").code == 1
    assert unmatched("explain", "stream", "ORDERS", "--check").code == 0


def test_json_is_one_document_with_the_causes(unmatched: Run) -> None:
    found = unmatched("why", "con", "ORDERS", "NEW", "-j").json
    assert found["verdict"] == found["causes"][0]["text"] == "the filter selects no message of the stream"
    assert found["causes"][0]["evidence"][0] == "filter: ORDERS.*"


def test_a_message_shows_each_consumer(unmatched: Run) -> None:
    done = unmatched("explain", "message", "ORDERS", "1")
    assert "NEW: filtered out, filter ORDERS.*" in done.out
    assert unmatched("explain", "message", "ORDERS", "1", "-j").json["consumers"][0]["state"] == "filtered out"


def test_what_does_not_exist_is_explained(unmatched: Run) -> None:
    assert "stream ORDER does not exist" in unmatched("explain", "stream", "ORDER").out
    assert "similar names: NEW" in unmatched("explain", "consumer", "ORDERS", "NEWS").out
    assert unmatched("explain", "message", "NOPE", "1").code == 3


def test_a_subject_says_who_stores_and_reads_it(unmatched: Run) -> None:
    assert unmatched("explain", "subject", "ORDERS.new").out.startswith(
        "Subject ORDERS.new: stream ORDERS stores it, 1 consumer gets it\n"
    )
    assert "no stream stores the subject" in unmatched("explain", "subject", "other").out
