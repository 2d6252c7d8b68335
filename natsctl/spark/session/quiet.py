"""What PySpark and Py4J say beside raising it, kept from stderr."""

from __future__ import annotations

import logging

_INTERRUPTED = "KeyboardInterrupt while sending command."
"""What Py4J writes to the root's log, with a stack, before it raises the interrupt."""
_REENTRANT = "reentrant call"
"""How a failure begins of what PySpark's handler sends while an answer is read, as it may until Spark has started."""
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def quieten() -> None:
    """Keep PySpark from logging each failure on stderr."""
    from pyspark.logger import PySparkLogger

    for name in _LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def quieten_interrupts() -> None:
    """Keep Py4J from logging an interrupt on stderr."""
    logging.getLogger().addFilter(_is_no_interrupt)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    cause = getattr(record.exc_info[1], "cause", None) if record.exc_info else None
    return record.msg != _INTERRUPTED and not str(cause).startswith(_REENTRANT)
