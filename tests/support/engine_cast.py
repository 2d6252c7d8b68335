"""The streams and consumers of one session of the engine's simulation."""

from __future__ import annotations

import random
from typing import Any, Final

from tests.support.engine_consumers import ConsumerBook
from tests.support.engine_ledger import Book

SECOND: Final = 1_000_000_000
LIMITS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {},
    {"max_msgs": 10},
    {"max_msgs_per_subject": 1},
    {"max_msgs_per_subject": 2},
    {"max_bytes": 1500},
    {"max_age": 10 * SECOND},
    {"max_msgs": 15, "discard": "new"},
    {"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True},
)
WISHES: Final[tuple[dict[str, Any], ...]] = (
    {"allow_rollup_hdrs": True},
    {"allow_msg_ttl": True},
    {"allow_msg_ttl": True, "allow_rollup_hdrs": True, "subject_delete_marker_ttl": 3 * SECOND},
    {"allow_atomic": True},
    {"allow_batched": True},
    {"allow_msg_schedules": True, "allow_rollup_hdrs": True},
)
KEY_VALUE: Final[dict[str, Any]] = {
    "discard": "new",
    "deny_delete": True,
    "allow_rollup_hdrs": True,
    "allow_direct": True,
}
"""What a KV bucket's stream is made with by the clients."""
HISTORIES: Final[tuple[dict[str, Any], ...]] = (
    {"max_msgs_per_subject": 1},
    {"max_msgs_per_subject": 3},
    {"max_msgs_per_subject": 1, "allow_msg_ttl": True, "subject_delete_marker_ttl": 3 * SECOND},
)
OBJECTS: Final[dict[str, Any]] = {"discard": "new", "allow_rollup_hdrs": True, "allow_direct": True}
"""What an object bucket's stream is made with."""


def _wishes(rng: random.Random) -> dict[str, Any]:
    config: dict[str, Any] = {"duplicate_window": 10 * SECOND}
    for wish in WISHES:
        if rng.random() < 0.4:
            config |= wish
    return config


def _stream(name: str, **config: Any) -> Book:
    return Book(name, {"name": name, **config})


def draw_cast(rng: random.Random) -> tuple[dict[str, Book], list[ConsumerBook]]:
    """Return streams and consumers.

    Limits (A), work queue (Q), interest (I), counters (N), mirror (M), source (X), KV bucket (K), object bucket (O).
    """
    common = {"A": _wishes(rng) | rng.choice(LIMITS), "Q": _wishes(rng), "I": _wishes(rng)}
    books = {name: _stream(name, subjects=[f"{name.lower()}.>"], **config) for name, config in common.items()}
    if books["A"].config.get("discard") == "new":
        books["A"].config.pop("allow_msg_schedules", None)
    books["Q"].config |= {"retention": "workqueue"}
    books["I"].config |= {"retention": "interest"}
    counter = rng.choice(({}, {"max_msgs_per_subject": 1}, {"allow_atomic": True}))
    books["N"] = _stream(
        "N", subjects=["n.>"], allow_msg_counter=True, allow_rollup_hdrs=True, duplicate_window=10 * SECOND, **counter
    )
    origin = books["A"]
    books["M"] = Book("M", {"name": "M", "mirror": {"name": "A"}}, origin)
    sourcing = rng.choice(LIMITS[:7])
    books["X"] = Book("X", {"name": "X", "sources": [{"name": "A"}], "allow_rollup_hdrs": True, **sourcing}, origin)
    books["K"] = _stream("K", subjects=["$KV.K.>"], **KEY_VALUE, **rng.choice(HISTORIES))
    books["O"] = _stream("O", subjects=["$O.O.C.>", "$O.O.M.>"], **OBJECTS)
    for book in books.values():
        if rng.random() < 0.5:
            book.config["compression"] = "s2"
    consumers = [
        ConsumerBook("AC", books["A"]),
        ConsumerBook("AB", books["A"], "a.b"),
        ConsumerBook("QC", books["Q"]),
        ConsumerBook("IA", books["I"], "i.a"),
        ConsumerBook("IS", books["I"], "i.*"),
        ConsumerBook("XC", books["X"]),
        ConsumerBook("KW", books["K"]),
        ConsumerBook("OC", books["O"], "$O.O.C.a"),
    ]
    return books, consumers
