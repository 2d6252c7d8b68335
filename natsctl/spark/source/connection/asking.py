"""Asking a server from the driver: one connection for as long as it holds, another when it is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from natsctl.spark.source.connection.api import JetStreamApi
from natsctl.spark.source.connection.link import Link
from natsctl.spark.source.connection.settings import ServerSettings
from natsctl.spark.source.errors import ConnectionLostError, NoResponseError

Answer = TypeVar("Answer")


class Asking:
    """Questions to JetStream, asked again where the connection was lost or no answer came; pickled unconnected."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self._link: Link | None = None

    def __call__(self, question: Callable[[JetStreamApi], Answer]) -> Answer:
        """Return the question's answer; it may be asked more than once."""
        left = self.settings.retries
        while True:
            try:
                return question(self._api())
            except (ConnectionLostError, NoResponseError):
                self.close()
                if not left:
                    raise
                left -= 1
                time.sleep(self.settings.retry_interval_s)

    def close(self) -> None:
        """End the connection; the next question makes another."""
        if self._link is not None:
            self._link.close()
        self._link = None

    def __getstate__(self) -> dict[str, Any]:
        return {"settings": self.settings, "_link": None}

    def _api(self) -> JetStreamApi:
        if self._link is None:
            self._link = Link.open(self.settings)
        return JetStreamApi(self._link, self.settings)
