"""The ledger of a write: the first sequence of each batch, to find out later which messages are stored.

A server forgets message ids after the stream's duplicate window. The ledger does not: before its first message, a task
notes the target's last sequence in the key-value bucket `natsctl_spark`, under `<query>.<batch>.<run>.<partition>`. A
run is one attempt of a driver. A task reads the message ids stored since then if the first note of the batch belongs to
another run (its rows may have been another task's in that run), or if it finds a note of its own from an earlier
attempt. Message ids are still sent, so that two tasks that write the same rows at the same time do no harm either.
"""

from __future__ import annotations

import base64
import json
import logging
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import LongType, StructField, StructType

from natsctl.spark.source.acks import stream_key
from natsctl.spark.source.arrays import binary_array, int_array
from natsctl.spark.source.errors import (
    ApiRefusedError,
    JetStreamSourceError,
    NoResponseError,
    OptionError,
    PublishError,
    SourceConnectionLostError,
    StreamNotFoundError,
)
from natsctl.spark.source.fetch import read_range
from natsctl.spark.source.fetch_task import FetchLimits, ReadRange
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.jetstream_api import JetStreamApi
from natsctl.spark.source.link import Link, Reply
from natsctl.spark.source.messages import Stored, counted_ids, header_blocks
from natsctl.spark.source.outages import Outage
from natsctl.spark.source.rows import HEADERS, RowShape, arrow_schema
from natsctl.spark.source.write_job import LOGGER

BUCKET: Final = "natsctl_spark"
VERSION: Final = 1
"""The version of a note; notes of earlier natsctls have no number and are the same."""
_STREAM: Final = f"KV_{BUCKET}"
_TAKEN: Final = 10071
"""The contract's number for a key that has a value already."""
_EXISTS: Final = 10058
_ONLY_NEW: Final = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 0\r\n\r\n"


def forget(settings: ServerSettings, key: str) -> None:
    """Remove all notes under a key that is never written again.

    What hinders that is only logged: the messages are stored, and a write that failed now would be run again.
    """
    try:
        with Link.open(settings) as link:
            JetStreamApi(link, settings).ask(f"STREAM.PURGE.{_STREAM}", {"filter": f"$KV.{BUCKET}.{key}.>"})
    except StreamNotFoundError:
        return
    except JetStreamSourceError as failure:
        logging.getLogger(LOGGER).warning("the ledger's notes %s stay in %s: %s", key, BUCKET, failure)


def look_up(settings: ServerSettings, target: str, key: str) -> Stored:
    """Return the messages stored under a key that has a note, over a connection of its own."""
    with Link.open(settings) as link:
        return Ledger(link, settings, target).stored(key)


class Ledger:
    """The bucket, for one target stream."""

    def __init__(self, link: Link, settings: ServerSettings, target: str) -> None:
        self._link = link
        self._settings = settings
        self._api = JetStreamApi(link, settings)
        self._target = target

    def begin(self, key: str, run: str, partition: int) -> Stored:
        """Note that writing begins; returns what earlier runs, or attempts of this task, have stored under the key.

        Raises OptionError for a target that removes messages once they are read, StreamNotFoundError, ApiRefusedError.
        """
        info = self._api.stream_info(self._target)
        if info["config"].get("retention", "limits") != "limits":
            raise OptionError(
                f"idempotence=ledger cannot know the stored messages of {self._target}: its retention is "
                f"{info['config']['retention']}, so messages go once they are read. Use idempotence=ids."
            )
        note = {"v": VERSION, "stream": self._target, "created": info["created"], "last_seq": info["state"]["last_seq"]}
        own = f"{key}.{run}.{partition}"
        is_first = self._noted(own, note)
        subject, earlier = self._first_note(key)
        if subject.startswith(f"$KV.{BUCKET}.{key}.{run}."):
            if is_first:
                return Stored(stream=stream_key(self._named(info)))
            earlier = self._note({"last_by_subj": f"$KV.{BUCKET}.{own}"})[1]
        return self._stored_from(earlier, info)

    def stored(self, key: str) -> Stored:
        """Return the messages that all runs have stored under a key that has a note."""
        return self._stored_from(self._first_note(key)[1], self._api.stream_info(self._target))

    def _named(self, info: dict[str, Any]) -> dict[str, Any]:
        return {"stream": self._target, "domain": info.get("domain")}

    def _first_note(self, key: str) -> tuple[str, dict[str, Any]]:
        return self._note({"seq": 1, "next_by_subj": f"$KV.{BUCKET}.{key}.*.*"})

    def _stored_from(self, note: dict[str, Any], info: dict[str, Any]) -> Stored:
        stream = stream_key(self._named(info))
        if note["created"] != info["created"]:
            warning = f"{self._target} was deleted and recreated since this write began"
            return Stored(stream=stream, warnings=(warning,))
        return replace(self._stored_since(note["last_seq"] + 1, info), stream=stream)

    def _noted(self, key: str, note: dict[str, Any]) -> bool:
        """Return whether this is the first note under the key; then it is stored."""
        reply = self._put(key, note)
        if reply.status == 503:
            self._make_bucket(int(self._api.stream_info(self._target)["config"].get("num_replicas", 1)))
            reply = self._put(key, note)
        answer = json.loads(reply.body or b"{}")
        error = answer.get("error")
        if error and error.get("err_code") != _TAKEN:
            raise PublishError(f"the ledger's note {key} is refused: {error.get('description')}")
        if not error and not answer.get("stream"):
            raise PublishError(f"the ledger's note {key} is not acknowledged")
        return error is None

    def _put(self, key: str, note: dict[str, Any]) -> Reply:
        """Return the answer to a note; after a lost answer the note exists already, and that is fine."""
        outage = Outage(self._settings)
        while True:
            try:
                return self._link.request(f"$KV.{BUCKET}.{key}", json.dumps(note).encode(), headers=_ONLY_NEW)
            except (SourceConnectionLostError, NoResponseError) as failure:
                outage.pause(failure)
                self._link.reopen()

    def _note(self, wanted: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the subject and the content of a note. Raises OptionError for one of another version."""
        message = self._api.ask(f"STREAM.MSG.GET.{_STREAM}", wanted)["message"]
        note: dict[str, Any] = json.loads(base64.b64decode(message["data"]))
        if note.get("v", VERSION) != VERSION:
            raise OptionError(
                f"the ledger's note {message['subject']} is of version {note['v']}, this source reads {VERSION}: go on "
                "with the natsctl that began the write, or a newer one"
            )
        return message["subject"], note

    def _make_bucket(self, replicas: int) -> None:
        config = {
            "name": _STREAM,
            "description": "Where writes from Spark began (idempotence=ledger)",
            "subjects": [f"$KV.{BUCKET}.>"],
            "max_msgs_per_subject": 1,
            "discard": "new",
            "num_replicas": replicas,
            "allow_rollup_hdrs": True,
            "deny_delete": True,
            "allow_direct": True,
        }
        try:
            self._api.ask(f"STREAM.CREATE.{_STREAM}", config)
        except ApiRefusedError as refused:
            if refused.err_code != _EXISTS:
                raise

    def _stored_since(self, first: int, info: dict[str, Any]) -> Stored:
        state = info["state"]
        warnings: tuple[str, ...] = ()
        if state["first_seq"] > first:
            warnings = (
                f"{self._target} has lost the messages {first} to {state['first_seq'] - 1} since this write began: "
                "its messages among them are stored again",
            )
        schema = StructType([StructField("seq", LongType()), StructField("headers", HEADERS)])
        shape = RowShape(("seq", "headers"), arrow_schema(schema))
        wanted = ReadRange(self._target, first, state["last_seq"])
        found, seqs = [binary_array([])], [int_array([])]
        if first <= state["last_seq"]:
            for batch in read_range(self._settings, wanted, FetchLimits(), shape):
                ids = header_blocks(batch.column(1)).ids
                if ids is not None:
                    found.append(ids.drop_null())
                    seqs.append(batch.column(0).filter(pc.is_valid(ids)))
        return Stored(counted_ids(pa.concat_arrays(found)), pa.concat_arrays(seqs), warnings=warnings)
