"""Streams for tests of the Spark source, made and filled over its own connection."""

import time
from base64 import b64decode
from collections.abc import Callable
from typing import Any

from natsctl.spark.source.errors import ApiRefusedError
from natsctl.spark.source.jetstream_api import JetStreamApi

REACHED_WITHIN_S = 30.0
STORE_FAILED = 10049


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + REACHED_WITHIN_S
    while not reached():
        assert time.monotonic() < deadline, f"not reached within {REACHED_WITHIN_S:g} s"
        time.sleep(0.005)


def make(api: JetStreamApi, name: str = "ORDERS", number: int = 100, **config: Any) -> None:
    """A stream with so many messages, on name.0 to name.3 in turn.

    nats-server at times still has the messages of a stream that it has just deleted, or removes its files with those of
    the new one of that name, which then is deleted again.
    """
    wanted = {"name": name, "subjects": [f"{name}.>"], **config}
    deadline = time.monotonic() + REACHED_WITHIN_S
    while True:
        try:
            created = api.ask(f"STREAM.CREATE.{name}", wanted)
        except ApiRefusedError as refusal:  # the files of the old stream are being removed
            if refusal.err_code != STORE_FAILED or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
            continue
        if not created["state"]["last_seq"]:
            add(api, name, number)
            state = api.stream_info(name)["state"]
            if state["last_seq"] == number and (state["messages"] == number or len(config) > 0):
                return
        api.ask(f"STREAM.DELETE.{name}")


def add(api: JetStreamApi, name: str, number: int, body: bytes = b"x") -> None:
    """So many messages more, stored at another time than those before."""
    if not number:
        return
    last = api.stream_info(name)["state"]["last_seq"] + number
    frame = b"PUB %s.%d %d\r\n%s\r\n"
    api.link.send(b"".join(frame % (name.encode(), at % 4, len(body), body) for at in range(number)))
    until(lambda: bool(api.stream_info(name)["state"]["last_seq"] >= last))


def remake(api: JetStreamApi, name: str = "ORDERS", number: int = 100, **config: Any) -> None:
    api.ask(f"STREAM.DELETE.{name}")
    make(api, name, number, **config)


def purge(api: JetStreamApi, below: int, name: str = "ORDERS") -> None:
    api.ask(f"STREAM.PURGE.{name}", {"seq": below})


def delete(api: JetStreamApi, *sequences: int, name: str = "ORDERS") -> None:
    for seq in sequences:
        api.ask(f"STREAM.MSG.DELETE.{name}", {"seq": seq, "no_erase": True})


def messages(api: JetStreamApi, name: str) -> list[tuple[str, bytes, bytes]]:
    """Subject, headers and payload of every message, in the order of the stream."""
    state = api.stream_info(name)["state"]
    found = [
        api.ask(f"STREAM.MSG.GET.{name}", {"seq": seq})["message"]
        for seq in range(state["first_seq"], state["last_seq"] + 1)
    ]
    return [(each["subject"], *(b64decode(each.get(part, "")) for part in ("hdrs", "data"))) for each in found]
