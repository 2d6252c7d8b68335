"""Every field of a mirror and of sources, good and bad, with what they read from there or not: equal answers."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.support.request_differential import Case, Request

SECOND: Final = 1_000_000_000

KNOWN: Final = {
    "update mirror {'name': 'O', 'subject_transforms': []}": "Go tells an empty list from an absent one",
}
"""Cases whose answers differ, with the reason."""

ORIGINS: Final[tuple[Request, ...]] = (
    ("STREAM.CREATE.O", {"name": "O", "subjects": ["o.>"]}),
    ("STREAM.CREATE.BIG", {"name": "BIG", "subjects": ["big.>"], "max_msg_size": 1000}),
    ("STREAM.CREATE.DIRECT", {"name": "DIRECT", "subjects": ["d.>"], "allow_direct": True}),
)

_TIME: Final = "2026-01-01T00:00:00Z"
_DOMAIN: Final = "$JS.D.API"


def _mapped(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {"name": "O", "subject_transforms": [{"src": src, "dest": dest} for src, dest in pairs]}


def _consumer(name: str = "C", deliver: str = "d", **rest: Any) -> dict[str, Any]:
    return {"name": "O", "consumer": {"name": name, "deliver_subject": deliver}, **rest}


def _external(name: str = "O", **external: Any) -> dict[str, Any]:
    return {"name": name, "external": external}


UPSTREAMS: Final[tuple[dict[str, Any], ...]] = (
    {"name": "O"}, {"name": "NONE"}, {"name": "M"}, {"name": ""}, {"name": "a.b"}, {}, {"name": "x" * 300},
    {"name": "BIG"}, {"name": "DIRECT"}, {"name": "O", "x": 1}, {"name": 1},
    {"name": "O", "filter_subject": "o.a"}, {"name": "O", "filter_subject": "o..a"},
    {"name": "O", "filter_subject": "o.a", **_mapped(("o.a", "p"))},
    _mapped(("o.*", "p.$1")), _mapped(("o.a", "p"), ("o.b", "")), _mapped(("o.a", "p"), ("o.*", "q.$1")),
    _mapped(("o.*", "p.$1"), ("*.a", "q.$1")), _mapped(("o..a", "p")), _mapped(("o.*", "p.{{bad(1)}}")),
    _mapped(("o.*", "p.$2")), _mapped(("", "")), _mapped(("", "x.>"), ("a", "b")), _mapped(),
    _mapped(("o.a", "p"), ("o.a", "q")), {"name": "O", "subject_transforms": [None]},
    {"name": "O", "subject_transforms": [{"x": 1}]}, {"name": "O", "opt_start_seq": -5},
    *({"name": "O", "opt_start_time": time} for time in (
        _TIME, "2026-01-01T00:00:00.500Z", "2026-01-01T02:00:00.10+02:00", "x", "2026-01-01T00:00:00+00:00")),
    _external(api=_DOMAIN, deliver="d"), _external(api="$JS.API"), _external(api=_DOMAIN, deliver="d.>"),
    _external(api="a.*"), _external(api="a b"), _external(api="", deliver=""), _external(), _external(x=1),
    _external("a.b", api=_DOMAIN), _external("", api=_DOMAIN), _external(api=_DOMAIN, deliver="o"),
    {"name": "O", "external": None},
    _consumer(), _consumer("a.b"), _consumer(""), _consumer(deliver=""), _consumer(deliver="d.*"),
    _consumer(deliver="d..x"), _consumer(opt_start_seq=1), _consumer(opt_start_time=_TIME),
    _consumer(filter_subject="o.a"), {"name": "O", "consumer": {}}, {"name": "O", "consumer": {"x": 1}},
)  # fmt: skip

BESIDE: Final[tuple[dict[str, Any], ...]] = (
    {"first_seq": 5}, {"subjects": ["a"]}, {"subjects": []}, {"sources": [{"name": "O"}]}, {"allow_msg_counter": True},
    {"allow_atomic": True}, {"allow_batched": True}, {"allow_msg_schedules": True}, {"mirror_direct": True},
    {"subject_delete_marker_ttl": SECOND}, {"allow_msg_ttl": True}, {"duplicate_window": SECOND},
    {"allow_direct": True}, {"republish": {"dest": "r.>"}}, {"subject_transform": {"src": ">", "dest": "t.>"}},
    {"retention": "interest"}, {"retention": "workqueue"}, {"discard": "new"}, {"allow_rollup_hdrs": True},
    {"sealed": True}, {"storage": "memory"}, {"no_ack": True}, {"persist_mode": "async"}, {"max_age": SECOND},
    {"mirror_direct": True, "pedantic": True},
)  # fmt: skip
"""What a stream may have beside a mirror or sources, or not."""


def create(name: str = "M", **config: Any) -> Request:
    return f"STREAM.CREATE.{name}", {"name": name, **config}


def update(name: str = "M", **config: Any) -> Request:
    return f"STREAM.UPDATE.{name}", {"name": name, **config}


def mirrors() -> Iterator[Case]:
    """Each mirror: made, with a smaller message size, pedantically, and put where there was none or another one."""
    for wish in UPSTREAMS:
        yield f"mirror {wish}", [*ORIGINS, create(mirror=wish), create(mirror=wish)]
        yield f"small mirror {wish}", [*ORIGINS, create(mirror=wish, max_msg_size=5)]
        yield f"pedantic mirror {wish}", [*ORIGINS, create(mirror=wish, pedantic=True)]
        yield f"become mirror {wish}", [*ORIGINS, create(), update(mirror=wish)]
        yield f"update mirror {wish}", [*ORIGINS, create(mirror={"name": "O"}), update(mirror=wish)]


def sources() -> Iterator[Case]:
    """Each source: alone, twice, beside another and beside subjects, on create and update."""
    for wish in UPSTREAMS:
        yield f"source {wish}", [*ORIGINS, create(sources=[wish]), create(sources=[wish])]
        yield f"source twice {wish}", [*ORIGINS, create(sources=[wish, wish])]
        yield f"small source {wish}", [*ORIGINS, create(sources=[wish], max_msg_size=5)]
        yield f"source and O {wish}", [*ORIGINS, create(sources=[{"name": "DIRECT"}, wish])]
        yield f"source beside {wish}", [*ORIGINS, create(sources=[wish], subjects=["m.>"])]
        yield f"get source {wish}", [*ORIGINS, create(subjects=["m"]), update(subjects=["m"], sources=[wish])]
        yield f"update source {wish}", [*ORIGINS, create(sources=[{"name": "O"}]), update(sources=[wish])]


def beside() -> Iterator[Case]:
    """Other fields of a mirror, of a stream with sources, and of a mirror that is promoted."""
    for other in BESIDE:
        mirror: dict[str, Any] = {"mirror": {"name": "O"}}
        yield f"mirror beside {other}", [*ORIGINS, create(**mirror, **other), ("STREAM.INFO.M", b"")]
        yield f"direct mirror beside {other}", [*ORIGINS, create(mirror={"name": "DIRECT"}, **other)]
        yield f"sources beside {other}", [*ORIGINS, create(**{"sources": [{"name": "O"}], **other})]
        yield f"mirror gets {other}", [*ORIGINS, create(**mirror), update(**mirror, **other)]
        yield f"promoted with {other}", [*ORIGINS, create(**mirror), update(**other), ("STREAM.INFO.M", b"")]


def cycles() -> Iterator[Case]:
    """Streams that would feed themselves, and some that only look so."""
    fed_by_b: dict[str, Any] = {"subjects": ["a"], "sources": [{"name": "B"}]}
    fed_by_a: dict[str, Any] = {"subjects": ["b"], "sources": [{"name": "A"}]}
    d, of_d = create("D", subjects=["d"]), {"sources": [{"name": "D"}]}
    yield "of itself", [create("A", subjects=["a"], sources=[{"name": "A"}])]
    yield "of itself as a mirror", [create("A", mirror={"name": "A"})]
    yield "of two", [create("A", **fed_by_b), create("B", **fed_by_a)]
    yield "of two by update", [create("A", subjects=["a"]), create("B", **fed_by_a), update("A", **fed_by_b)]
    yield "of a mirror", [create("A", **fed_by_b), create("B", mirror={"name": "A"})]
    for wanted in ("a", "b"):
        filtered = {"subjects": ["b"], "sources": [{"name": "A", "filter_subject": wanted}]}
        yield f"of two, filtered by {wanted}", [create("A", **fed_by_b), create("B", **filtered)]
    yield "of three", [create("A", **fed_by_b), create("B", sources=[{"name": "C"}]), create("C", **fed_by_a)]
    yield "diamond", [d, create("B", **of_d), create("C", **of_d), create("A", sources=[{"name": "B"}, {"name": "C"}])]
    yield "triangle", [d, create("B", **of_d), create("A", sources=[{"name": "D"}, {"name": "B"}])]


GROUPS: Final[tuple[Callable[[], Iterator[Case]], ...]] = (mirrors, sources, beside, cycles)
