"""What Spark says of an update, and where in a file that is."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark import errors

from natsctl.api.errors import NotFoundError
from natsctl.spark.pipeline.graph import line_of_failure, line_of_syntax, statements
from natsctl.spark.pipeline.project import check_tables
from natsctl.spark.pipeline.run_record import parse_event, readable_error, short_name, without_counters

AT = datetime(2026, 11, 21, 22, 21, 30)
SQL = """\
CREATE STREAMING TABLE evens AS SELECT ';' FROM STREAM `my-stream`; -- ; no end
/* ; */
CREATE MATERIALIZED VIEW IF NOT EXISTS db.bad AS
SELECT nope
FROM copied;
"""


@pytest.mark.parametrize(
    ("message", "flow", "state"),
    [
        ("Flow spark_catalog.default.copied is QUEUED.", "copied", "QUEUED"),
        ("Flow spark_catalog.default.`a.b` has COMPLETED.", "a.b", "COMPLETED"),
        ("Flow 'odds to SNK' is EXCLUDED.", "odds to SNK", "EXCLUDED"),
        ("Run is COMPLETED.", "", "COMPLETED"),
        ("Something else happened.", "", ""),
    ],
)
def test_the_parts_of_a_sentence_are_found(message: str, flow: str, state: str) -> None:
    event = parse_event(message, AT)
    assert (event.flow, event.state, event.message) == (flow, state, message)
    assert event.time == AT.replace(tzinfo=UTC)


def test_a_failure_is_told_without_plans_and_wrapping() -> None:
    message = (
        "Flow 'spark_catalog.default.wrong' has FAILED.\nError: [STREAM_FAILED] Query [id = 4, runId = d] terminated "
        "with exception: [USER_RAISED_EXCEPTION] boom SQLSTATE: P0001 SQLSTATE: XXKST\n=== Streaming Query ===\nsecret"
    )
    event = parse_event(message, AT)
    assert (event.flow, event.state) == ("wrong", "FAILED")
    assert (event.condition, event.error) == ("USER_RAISED_EXCEPTION", "boom")
    assert "secret" not in event.message
    text = "[STREAM_FAILED] x: [PYTHON_DATA_SOURCE_ERROR] y Traceback\n  a.py\nE: [JETSTREAM_DATA_LOSS] 101..150 gone\n"
    assert readable_error(text) == ("JETSTREAM_DATA_LOSS", "101..150 gone")
    assert [short_name(name) for name in ("a.b.c", "x", "`a.b`", "s.d.`x``y`")] == ["c", "x", "`a.b`", "x`y"]


def test_a_flow_that_cannot_be_is_told_with_its_position() -> None:
    message = (
        "Failed to resolve flow: 'spark_catalog.db.bad'.\nError: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `nope` "
        "cannot be resolved. Did you mean `value`? SQLSTATE: 42703; line 3 pos 7;\n'Project ['nope]\n"
    )
    event = parse_event(message, AT)
    assert (event.flow, event.state) == ("bad", "UNRESOLVED")
    assert event.error == "A column `nope` cannot be resolved. Did you mean `value`?"
    good, bad = statements(SQL)
    assert (good.name, good.first_line, bad.name) == ("evens", 1, "bad")
    # Spark counts from behind the semicolon of the first line.
    assert line_of_failure(bad, message.replace("line 3", "line 4")) == 4
    assert line_of_failure(bad, "no position") == bad.first_line


def test_a_mistake_of_syntax_is_found_by_what_spark_draws() -> None:
    sql = "CREATE TEMPORARY VIEW a AS SELECT 1;\n\nCREATE MATERIALIZED VIEW bad AS SELEC 2;\n"
    text = (
        "[PARSE_SYNTAX_ERROR] Syntax error at or near 'SELEC'. SQLSTATE: 42601 (line 3, pos 32)\n\n== SQL ==\n\n\n"
        "CREATE MATERIALIZED VIEW bad AS SELEC 2\n--------------------------------^^^\n"
    )
    assert line_of_syntax(sql, text) == 3
    assert line_of_syntax(sql, "nothing drawn") == 0


@pytest.mark.parametrize(("condition", "fails"), [("UNKNOWN_RESPONSE", False), ("CONNECT_URL_NOT_SET", True)])
def test_counters_behind_a_successful_update_are_no_failure_of_it(condition: str, fails: bool) -> None:
    def responses() -> Iterator[dict[str, Any]]:
        yield {"event": "Run is COMPLETED."}
        raise errors.PySparkValueError(
            errorClass=condition, messageParameters={} if fails else {"response": "observed()"}
        )

    found = without_counters(responses())
    assert next(found)
    with pytest.raises(errors.PySparkValueError if fails else StopIteration):
        next(found)


def test_a_table_that_the_pipeline_has_not_is_told_with_those_that_it_has() -> None:
    check_tables(["MESSAGES"], {"messages", "by_subject"})
    with pytest.raises(NotFoundError, match="no table nope") as told:
        check_tables(["messages", "nope"], {"messages", "by_subject"})
    assert told.value.hint == "it has by_subject, messages"


def test_tables_and_what_a_flow_fills_are_found() -> None:
    sql = """-- What the table
CREATE STREAMING TABLE s.a USING Delta AS SELECT 1;
CREATE STREAMING TABLE b;
CREATE FLOW c AS INSERT INTO `x-y`.b BY NAME SELECT 1 -- table
;
/* x */ create or refresh materialized view d as select 1;
CREATE TEMPORARY VIEW e AS SELECT table FROM STREAM a;
"""
    found = [(one.name, one.filled, one.format, one.is_streaming_table, one.is_table) for one in statements(sql)]
    assert found == [
        ("a", ("s", "a"), "Delta", True, True),
        ("b", (), "", True, True),
        ("c", ("x-y", "b"), "", False, False),
        ("d", ("d",), "", False, True),
        ("e", ("e",), "", False, False),
    ]
