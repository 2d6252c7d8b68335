"""Each native function over columns does what its specification in Python does, on any arguments."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from natsctl.native import lib
from natsctl.store.filters import MANY_PATTERNS, Filters

pytestmark = pytest.mark.skipif(lib is None, reason="the native module is not built, or NATSCTL_PURE is set")

tokens = st.sampled_from([b"a", b"b", b"ab", b"", b"*", b">", b"*a", b"\n", b"\0", b"\xff"])
subjects = st.lists(tokens, min_size=1, max_size=5).map(b".".join)
patterns = subjects.map(lambda subject: subject + b".>") | subjects.map(lambda subject: b"*." + subject) | subjects


@given(st.lists(subjects, max_size=20), st.lists(patterns, max_size=MANY_PATTERNS), st.integers(0, 20))
@example([b"a.b", b"a.", b"a..b", b".", b"", b"a"], [b"a.>", b"*"], 0)
@example([b"a.b", b"a.", b"a..b", b".b", b"b"], [b"a.*", b">.b", b"*.b"], 1)
def test_numbers_of_subjects(names: list[bytes], filters: list[bytes], start: int) -> None:
    wanted = Filters(filters)
    if wanted.wildcards:
        start = min(start, len(names))
        assert wanted.numbers_of(names, start, len(names)) == wanted._numbers_of(names, start, len(names))


def test_wrong_arguments_are_errors() -> None:
    assert lib is not None
    for words in (((b"a",), 0, 1, (b"*",)), ([b"a"], -1, 1, (b"*",)), ([b"a"], 0, 2, (b"*",))):
        with pytest.raises(ValueError, match="names"):
            lib.matching(*words)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        lib.matching(["a"], 0, 1, (b"*",))  # type: ignore[list-item]
    with pytest.raises(TypeError):
        lib.matching([b"a"], 0, 1, ("*",))  # type: ignore[arg-type]
