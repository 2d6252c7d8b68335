"""`natsctl sql` where the server knows the answer: no Spark is started, and the answer is right on both servers."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from natsctl.api.errors import UsageError
from tests.support.commands import Run


@pytest.fixture
def orders(natsctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream whose first, third and last message are gone; whoever starts Spark fails."""
    monkeypatch.setitem(sys.modules, "natsctl.cli.spark_work", None)
    assert natsctl("str", "add", "my-orders", "--subjects", "o.>", "--defaults").code == 0
    for subject in ("o.a", "o.b", "o.a", "o.b", "o.b", "o.c"):
        assert natsctl("pub", subject, "x", "--wait", "-q").code == 0
    for seq in ("1", "3", "6"):
        assert natsctl("str", "rmm", "my-orders", seq, "-f").code == 0


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("select count(*) n from my-orders", [{"n": 3}]),
        ("select min(seq), max(seq) from MY-ORDERS", [{"min(seq)": 2, "max(seq)": 5}]),
        ("select subject, count(*) n from my-orders group by 1", [{"subject": "o.b", "n": 3}]),
    ],
)
def test_counts_are_right_where_messages_are_gone(
    natsctl: Run, orders: None, query: str, rows: list[dict[str, Any]]
) -> None:
    assert natsctl("sql", query, "-j").json == rows


@pytest.mark.ours("how an answer is shown")
def test_an_answer_is_a_table_csv_or_what_a_pipe_asked_for(natsctl: Run, orders: None) -> None:
    query = "select subject, count(*) messages from my-orders group by subject"
    assert "│ o.b     │        3 │" in natsctl("sql", query).out
    assert natsctl("sql", "-", "--csv", stdin=query.encode()).out == "subject,messages\no.b,3\n"
    assert natsctl("sql", query, "--explain", "-j").json["spark"] is False
    watched = natsctl("sql", query, "--watch", "100ms", "--count", "2", "-j")
    assert watched.out == '[{"subject":"o.b","messages":3}]\n' * 2
    assert "without Spark" in natsctl("sql", query, "--trace").err


@pytest.mark.ours("how an answer is shown")
def test_a_query_from_a_file_and_none_at_all(natsctl: Run, orders: None, tmp_path: Any) -> None:
    (tmp_path / "q.sql").write_text("-- how many\nselect count(*) from my-orders;\n")
    assert natsctl("sql", f"@{tmp_path / 'q.sql'}", "--csv").out == "count(1)\n3\n"
    for words in ((), ("",), ("-- nothing",), ("@none",), ("select 1", "--csv", "-j")):
        assert natsctl("sql", *words).code == 2, words


@pytest.mark.ours("how an answer is shown")
@pytest.mark.parametrize(
    ("words", "messages"),
    [
        (("sql", "select max(value) from my-orders"), 3),
        (("sql", "select 1 from my-orders a, `my-orders` b, OTHER"), 5),
        (("sql", "select max(subject) from `my-orders$subjects`"), 0),
        (("sql", "select max(value) from my-orders", "--explain"), 0),
        (("stream", "export", "my-orders", "out.csv"), 3),
        (("stream", "report", "my-orders", "--deep"), 3),
    ],
)
def test_spark_is_told_how_much_there_is_to_read(
    natsctl: Run, orders: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, words: tuple[str, ...], messages: int
) -> None:
    monkeypatch.chdir(tmp_path)
    assert natsctl("str", "add", "OTHER", "--subjects", "other", "--defaults").code == 0
    for _ in range(2):
        assert natsctl("pub", "other", "x", "--wait", "-q").code == 0
    told: list[int] = []

    def run_on_spark(*_: object, messages: int = 0, **__: object) -> None:
        told.append(messages)
        raise UsageError("Spark is not started here")

    monkeypatch.setitem(sys.modules, "natsctl.cli.spark_work", SimpleNamespace(run_on_spark=run_on_spark))
    assert natsctl(*words).code == 2
    assert told == [messages]
