"""What is kept from stderr."""

from __future__ import annotations

import logging

import pytest

from natsctl.spark.session.quiet import quieten_interrupts


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
