"""Long texts of JSON, made in steps."""

import random
from typing import Any

import pytest

from natsctl.api.codec import COPY_STEP, ENCODED_ITEMS, HOLE, encode, encoding_items, encoding_text, filling
from natsctl.api.subject_index import finish

TEXT = 'a<b>&"\\\n\0é\u2028\U0001f600'


@pytest.mark.parametrize("count", [0, 1, ENCODED_ITEMS - 1, ENCODED_ITEMS, ENCODED_ITEMS + 1, 5_000])
@pytest.mark.parametrize("kind", [list, dict])
def test_the_pieces_of_items_are_their_text(kind: Any, count: int) -> None:
    items = kind((f"{TEXT}{number}", number) for number in range(count))
    assert b"".join(finish(encoding_items(items))) == encode(items)


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 200_000])
@pytest.mark.parametrize("broken", [False, True])
def test_the_pieces_of_a_string_are_its_text(size: int, broken: bool) -> None:
    raw = (TEXT.encode() * (size // 10 + 1))[:size] + (b"\xc3" if broken else b"")
    raw = random.Random(1).randbytes(size) if broken and size % 2 else raw
    assert b"".join(finish(encoding_text(raw))) == encode(raw.decode("utf-8", "replace"))


def test_holes_are_filled_in_their_order_a_megabyte_a_step() -> None:
    lists = [[str(number) * 10 for number in range(count)] for count in (3, 200_000)]
    whole = {"text": TEXT, "first": lists[0], "inner": {"second": lists[1], "last": 1}}
    texts = [finish(encoding_items(items)) for items in lists]
    steps = filling({**whole, "first": HOLE, "inner": {"second": HOLE, "last": 1}}, *texts)
    costs = []
    while True:
        try:
            costs.append(next(steps))
        except StopIteration as end:
            assert end.value == encode(whole)
            break
    assert len(costs) >= len(encode(whole)) // COPY_STEP - 1 and max(costs) <= 2 * min(costs)


def test_as_many_texts_as_holes_are_required() -> None:
    for texts in ([], [[b"1"], [b"2"]]):
        with pytest.raises(ValueError, match="zip"):
            finish(filling({"a": HOLE}, *texts))
