"""What is kept from stderr."""

from __future__ import annotations

import logging

import pytest

from natsctl.spark.session.failures import quieten_interrupts


def test_an_interrupt_is_raised_and_not_logged_and_everything_else_is(caplog: pytest.LogCaptureFixture) -> None:
    java_gateway = pytest.importorskip("py4j.java_gateway", reason="the extra `spark` is not installed")

    class Interrupted:
        socket = None

        def send_command(self, command: str) -> str:
            raise KeyboardInterrupt

    class Client(java_gateway.GatewayClient):  # type: ignore[misc, name-defined]  # of a library without types
        def _get_connection(self) -> Interrupted:
            return Interrupted()

    quieten_interrupts()
    with pytest.raises(KeyboardInterrupt):
        Client().send_command("x")
    logging.getLogger().error("other")
    assert [record.message for record in caplog.records] == ["other"]


@pytest.mark.parametrize(("cause", "logged"), [("reentrant call inside <_io.BufferedReader>", 0), ("other", 1)])
def test_an_interrupt_while_an_answer_is_read_is_not_logged(
    caplog: pytest.LogCaptureFixture, cause: str, logged: int
) -> None:
    java_gateway = pytest.importorskip("py4j.java_gateway", reason="the extra `spark` is not installed")
    protocol = pytest.importorskip("py4j.protocol")

    class Reading:
        def send_command(self, command: str) -> str:
            raise protocol.Py4JNetworkError("Error", RuntimeError(cause), protocol.ERROR_ON_RECEIVE)

        def close(self, reset: bool) -> None:
            pass

    class Client(java_gateway.GatewayClient):  # type: ignore[misc, name-defined]  # of a library without types
        def _get_connection(self) -> Reading:
            return Reading()

    quieten_interrupts()
    assert Client().send_command("x") == protocol.ERROR
    assert len(caplog.records) == logged
