"""Spark's failures in natsctl's words, and none of them twice on stderr."""

from __future__ import annotations

import logging

import pytest
from py4j import java_gateway, protocol

from natsctl.api.errors import NatsctlError, UsageError
from natsctl.spark.session.failures import MAX_TEXT_CHARS, SparkQueryError, quieten_interrupts, translated
from natsctl.spark.source.errors import (
    DataLossError,
    JetStreamSourceError,
    OptionError,
    PublishError,
    ServerUnreachableError,
    SourceNotAuthorisedError,
    StreamNotFoundError,
    StreamRecreatedError,
)

READING = protocol.Py4JNetworkError("Error", RuntimeError("reentrant call inside <_io>"), protocol.ERROR_ON_RECEIVE)
OTHER = protocol.Py4JNetworkError("Error", RuntimeError("other"), protocol.ERROR_ON_RECEIVE)


@pytest.mark.parametrize(("failure", "logged"), [(KeyboardInterrupt(), 0), (READING, 0), (OTHER, 1)])
def test_an_interrupt_is_not_logged_and_everything_else_is(
    caplog: pytest.LogCaptureFixture, failure: BaseException, logged: int
) -> None:
    class Connection:
        socket = None

        def send_command(self, command: str) -> str:
            raise failure

        def close(self, reset: bool) -> None:
            pass

    class Client(java_gateway.GatewayClient):
        def _get_connection(self) -> Connection:
            return Connection()

    quieten_interrupts()
    if isinstance(failure, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            Client().send_command("x")
    else:
        assert Client().send_command("x") == protocol.ERROR
    logging.getLogger().error("more")
    assert len(caplog.records) == logged + 1


_IN_SPARK = """\
An error occurred while calling o51.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/venv/pyspark/worker.py", line 3304, in main
    process()
natsctl.spark.source.errors.{kind}: {text}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
"""


class AnalysisException(Exception):
    """Named as Spark's is: what is told apart is the name."""


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (DataLossError, 1),
        (StreamRecreatedError, 1),
        (PublishError, 1),
        (OptionError, 2),
        (StreamNotFoundError, 3),
        (ServerUnreachableError, 5),
        (SourceNotAuthorisedError, 6),
    ],
)
def test_the_sources_own_failures_are_told_as_they_were_written(kind: type[JetStreamSourceError], code: int) -> None:
    text = "stream ORDERS: messages 101..150 expired; failOnDataLoss=false goes on behind them"
    inside = _IN_SPARK.format(kind=kind.__name__, text=str(kind(text)))
    found = translated(RuntimeError(inside))
    assert (found.text, int(found.exit_code)) == (text, code)
    if code == 1:
        assert isinstance(found, SparkQueryError)
        assert "PythonRunner.scala:581" in found.detail, "all that Spark said is kept for --trace"


@pytest.mark.parametrize(
    ("said", "code", "text"),
    [
        ("SparkException: All masters are unresponsive! Giving up.", 5, "no master of the cluster answers"),
        ("<_InactiveRpcError: status = StatusCode.UNAVAILABLE", 5, "no Spark Connect server answers"),
        ("status = StatusCode.UNAUTHENTICATED", 6, "the Spark Connect server refuses the login"),
        ("ModuleNotFoundError: No module named 'pyarrow'\n", 1, "No module named 'pyarrow'"),
        (
            "x: ExecutorLostFailure (executor 1 exited) Reason: exit code 137\nat a",
            1,
            "ExecutorLostFailure (executor 1",
        ),
        ("java.lang.NoSuchMethodError: 'void org.a.B.<init>()'\n\tat c", 1, "NoSuchMethodError: 'void org.a.B"),
        ("java.lang.OutOfMemoryError: Java heap space", 1, "Spark ran out of memory"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version", 1, "[PYTHON_VERSION_MISMATCH]"),
        ('Cannot run program "/nope/python": error=2, No such file', 1, 'Cannot run program "/nope/python"'),
        (
            "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: jetstream. Make",
            1,
            "Spark does not find the format",
        ),
        ("[PATH_ALREADY_EXISTS] Path file:/out already exists. SQLSTATE: 42K04", 4, "Path file:/out already exists."),
        ("[PATH_NOT_FOUND] Path does not exist: file:/in. SQLSTATE: 42K03", 3, "Path does not exist: file:/in."),
    ],
)
def test_known_failures_end_with_their_code_and_say_what_to_do(said: str, code: int, text: str) -> None:
    found = translated(RuntimeError(f"An error occurred while calling o1.count.\n: {said}"))
    assert found.text.startswith(text)
    assert int(found.exit_code) == code


def test_a_failure_whose_java_has_ended_is_told_by_what_it_noted_and_by_the_log() -> None:
    class Ended(Exception):
        def __str__(self) -> str:
            raise ConnectionRefusedError(111, "Connection refused")

    found = translated(Ended(), log="ERROR All masters are unresponsive! Giving up.")
    assert int(found.exit_code) == 5
    noted = Ended()
    noted.add_note("java.lang.IllegalStateException: it is over")
    assert "it is over" in translated(noted).text
    for failure in (ConnectionRefusedError(111, "Connection refused"), RuntimeError("Answer from Java side is empty")):
        found = translated(failure)
        assert found.text == "Spark's process has ended"
        assert "spark.driver.memory" in found.hint


def test_a_mistake_in_a_query_is_usage_with_its_place() -> None:
    said = (
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `x` cannot be resolved. SQLSTATE: 42703; line 1 pos 7;\n"
        "'Project ['x]\n\n== SQL (line 1, position 8) ==\n"
        "select x from ORDERS\n       ^\n\nJVM stacktrace:\n\tat org.a.b"
    )
    found = translated(AnalysisException(said))
    assert isinstance(found, UsageError)
    assert found.text == "A column `x` cannot be resolved."
    assert found.hint == "select x from ORDERS\n       ^"
    found = translated(AnalysisException("[TABLE_OR_VIEW_NOT_FOUND] The table `NOPE` cannot be found. SQLSTATE: 42P01"))
    assert int(found.exit_code) == 3
    assert "natsctl stream ls" in found.hint


def test_whatever_else_is_told_without_stacks_and_in_bounds() -> None:
    found = translated(
        RuntimeError(f"An error occurred while calling o9.save.\n: java.lang.Foo: {'long ' * 1000}\n\tat a.b")
    )
    assert isinstance(found, NatsctlError)
    assert found.text.startswith("Foo: long long")
    assert len(found.text) <= MAX_TEXT_CHARS + 1
    assert "\tat" not in found.text


@pytest.mark.parametrize("begin", ["[PYTHON_EXCEPTION] An exception was thrown from the Python worker: ", ""])
def test_what_python_raises_in_a_task_is_told_without_its_stack(begin: str) -> None:
    said = (
        f"{begin}Traceback (most recent call last):\n"
        '  File "/a/reader.py", line 45, in read\n    yield from rows\nKeyError: 1\n\n'
        "During handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "/a/columns.py", line 9, in read\n    cut(None)\n'
        "TypeError: 'NoneType' object is not iterable\n SQLSTATE: 38000\n"
        "\tat org.apache.spark.api.python.PythonRunner.read(PythonRunner.scala:581)\n"
    )
    found = translated(RuntimeError(f"An error occurred while calling o9.save.\n: java.lang.Foo: {said}"))
    assert found.text == "TypeError: 'NoneType' object is not iterable"
    assert "--trace" in found.hint


def test_causes_are_looked_at_and_may_form_a_ring() -> None:
    outer, inner = RuntimeError("outer"), RuntimeError(str(StreamNotFoundError("there is no stream NOPE")))
    outer.__cause__, inner.__cause__ = inner, outer
    assert int(translated(outer).exit_code) == 3
    own = UsageError("wrong")
    assert translated(own) is own
