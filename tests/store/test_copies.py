"""Copies of messages, appended together: the same as one by one."""

import pytest

from natsctl.store.errors import StorePoisonedError

COPIES = [
    (3, 500, b"a", b"", b"one"),
    (4, 400, b"b", b"", b""),
    (9, 600, b"a", b"NATS/1.0\r\nA: 1\r\n\r\n", b"two"),
    (10, 600, b"c", b"", b"x" * 3000),
    (11, 700, b"a", b"", b"three"),
]


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_copies_are_stored_as_one_by_one(lab, storage):
    store = lab.open()
    together, single = (store.create(f"$G/{name}", b"", storage) for name in "AB")
    for part in (COPIES[:2], COPIES[2:]):
        together.append_copies(part)
        for seq, ts_ns, subject, header, payload in part:
            single.append_at(seq, ts_ns, subject, header, payload)
        assert (together.last_seq, together.bytes, together.last_ts_ns) == (
            single.last_seq,
            single.bytes,
            single.last_ts_ns,
        )
    lab.pump(store)
    assert together.read_from(1) == single.read_from(1) and together.messages == 5
    assert together.deleted() == [5, 6, 7, 8] and together.count_of(b"a") == 3
    with pytest.raises(ValueError, match="not above"):
        together.append_copies([(11, 1, b"a", b"", b"")])
    assert together.messages == 5
    if storage == "file":
        again = lab.open().streams
        assert again["$G/A"].read_from(1) == again["$G/B"].read_from(1) == single.read_from(1)


def test_a_fenced_stream_takes_no_copies(lab):
    store = lab.open()
    stream = store.create("$G/A", b"")
    lab.pump(store)
    stream.fault = "broken"
    with pytest.raises(StorePoisonedError):
        stream.append_copies(COPIES)
    assert stream.last_seq == 0
