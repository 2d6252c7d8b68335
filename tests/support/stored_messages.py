"""What tests of the engine publish with headers, and the messages that a stream then has."""

import base64
from typing import Any, NamedTuple

from natsctl.api import headers
from tests.support.jet import Jet, ok


def header_block(**values: str) -> bytes:
    """Return a header block; `_` in a key stands for `-`."""
    return headers.encode([(key.replace("_", "-").encode(), value.encode()) for key, value in values.items()])


def put(jet: Jet, subject: str, payload: bytes = b"x", /, **values: str) -> Any:
    return jet.wire.request(subject, payload, header_block(**values) if values else b"")


class StoredRow(NamedTuple):
    seq: int
    time: str
    subject: str
    header: bytes
    payload: bytes


def stored_rows(jet: Jet, name: str = "S") -> list[StoredRow]:
    state = ok(jet.api(f"STREAM.INFO.{name}"))["state"]
    gets = (jet.api(f"STREAM.MSG.GET.{name}", {"seq": seq}) for seq in range(state["first_seq"], state["last_seq"] + 1))
    rows = [answer["message"] for answer in gets if "message" in answer]
    return [
        StoredRow(m["seq"], m["time"], m["subject"], *(base64.b64decode(m.get(key, "")) for key in ("hdrs", "data")))
        for m in rows
    ]
