"""A durable consumer that stands where a query stands, so that a list of consumers shows its lag.

Nothing is read through it, and the query never asks it where to go on: that is in Spark's checkpoint.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from natsctl.spark.source.connection.api import NO_CONSUMER, JetStreamApi
from natsctl.spark.source.errors import (
    ApiRefusedError,
    ConnectionLostError,
    JetStreamSourceError,
    NoResponseError,
    OptionError,
)
from natsctl.spark.source.reading.offsets import Offsets

_MARK: Final = {"natsctl.spark": "follows a query"}
_RESET_SINCE: Final = (2, 14)
"""The server release that can set a consumer back or forth; older ones have it deleted and made again."""


@dataclass(frozen=True)
class Follower:
    """The durable's name, the same on each stream, and the subjects that the query reads."""

    name: str
    filters: tuple[str, ...] = ()

    def check(self, api: JetStreamApi, streams: Sequence[str]) -> None:
        """Raise OptionError where a durable is another's, or one would change what the stream keeps."""
        for stream in streams:
            retention = api.stream_info(stream)["config"].get("retention", "limits")
            if retention != "limits":
                raise OptionError(
                    f"option commitConsumer: {stream} has retention {retention!r}, where a consumer decides what is "
                    "kept; a durable for show is only for streams with retention 'limits'"
                )
            found = self._info(api, stream)
            if found is not None and not _is_ours(found):
                raise OptionError(
                    f"option commitConsumer: {stream} has a consumer {self.name} that is not of this source, and it is "
                    "left alone: choose another name"
                )

    def follow(self, api: JetStreamApi, offsets: Offsets) -> None:
        """Move the durables behind what was read; a refusal is only logged, since nothing depends on them."""
        for stream, position in offsets.items():
            try:
                self._move(api, stream, position.seq + 1)
            except (ConnectionLostError, NoResponseError):
                raise
            except JetStreamSourceError as failure:
                logging.getLogger("pyspark_jetstream").warning(
                    "%s on %s does not follow: %s", self.name, stream, failure
                )

    def _move(self, api: JetStreamApi, stream: str, following: int) -> None:
        """Move the durable of one stream to where it delivers a sequence next."""
        found = self._info(api, stream)
        if found is not None and found["delivered"]["stream_seq"] == following - 1:
            return
        if found is not None and _can_reset(api):
            api.ask(f"CONSUMER.RESET.{stream}.{self.name}", {"seq": following})
            return
        if found is not None:
            api.delete_consumer(stream, self.name)
        begin: dict[str, Any] = {"deliver_policy": "all"}
        if not _can_reset(api):
            begin = {"deliver_policy": "by_start_sequence", "opt_start_seq": following}
        filters = {"filter_subjects": list(self.filters)} if self.filters else {}
        config = {"durable_name": self.name, "ack_policy": "explicit", "metadata": _MARK, **begin, **filters}
        api.create_consumer(stream, self.name, config)
        if _can_reset(api) and following > 1:
            api.ask(f"CONSUMER.RESET.{stream}.{self.name}", {"seq": following})

    def _info(self, api: JetStreamApi, stream: str) -> dict[str, Any] | None:
        """Return the durable as the server has it, None where there is none."""
        try:
            return api.ask(f"CONSUMER.INFO.{stream}.{self.name}")
        except ApiRefusedError as refusal:
            if refusal.err_code == NO_CONSUMER:
                return None
            raise


def _is_ours(found: dict[str, Any]) -> bool:
    return _MARK.items() <= (found["config"].get("metadata") or {}).items()


def _can_reset(api: JetStreamApi) -> bool:
    numbers = re.findall(r"\d+", str(api.link.info.get("version", "")))
    return tuple(int(number) for number in numbers[:2]) >= _RESET_SINCE
