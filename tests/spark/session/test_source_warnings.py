"""Warnings of the data source reach the user of a session, once for all tasks that have the same."""

import logging
from pathlib import Path

import pytest

from natsctl.spark.session.sessions import warnings_passed_on
from natsctl.spark.source.outages import PREFIX


def test_warnings_of_the_source_are_passed_on_once_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    down = f"{PREFIX}no server answers at a:1; trying again, for"
    with (tmp_path / "log").open("w+b") as log, caplog.at_level(logging.WARNING, "natsctl.spark.jetstream"):
        log.write(f"{PREFIX}before the session\n".encode())
        log.flush()
        with warnings_passed_on(log):
            for text in ("WARN something of Spark\n", f"{down} 120 s more\n", f"{down} 119 s more\n"):
                log.write(text.encode())
            log.write(f"{PREFIX}the server answers again, after 3 s\n{PREFIX}half a li".encode())
            log.flush()
    texts = [record.getMessage() for record in caplog.records]
    assert texts == [f"{down} 120 s more", f"{PREFIX}the server answers again, after 3 s"]
