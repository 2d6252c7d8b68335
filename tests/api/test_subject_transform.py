"""Subject mappings: every function, every refusal, and a simple model that says the same."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.api.subject_transform import (
    MAX_SUBJECT_BYTES,
    SubjectMapping,
    TransformError,
    check_mapping,
    names_function,
    partition,
)

INVALID = "invalid mapping destination"


@pytest.fixture(autouse=True, params=[False, True], ids=["short", "long"], scope="module")
def as_if_long(request: pytest.FixtureRequest) -> Iterator[None]:
    """Treat every subject as if it had very many tokens."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param:
            patch.setattr("natsctl.api.subject_transform.MANY_TOKENS", 0)
            patch.setattr("natsctl.api.subject_transform.CHUNK", 1)
        yield


def mapped(src: str, dest: str, subject: str) -> str | None:
    found = SubjectMapping.compile(src, dest).apply(subject.encode())
    return None if found is None else found.decode()


MAPPED = [
    ("foo", "bar", "foo", "bar"), ("foo", "bar", "food", None), ("foo.*.*", "bar.$2.$1", "foo.a.b", "bar.b.a"),
    ("foo.*.*", "bar.{{wildcard(2)}}", "foo.a.b", "bar.b"),
    ("foo.*.*", "bar.{{ Wildcard( 1 ) }}", "foo.a.b", "bar.a"), ("foo.*", "bar.$x.$", "foo.a", "bar.$x.$"),
    ("foo.*", "$0.$1", "foo.a", "foo.a"), (">", "bar.>", "foo.a.b", "bar.foo.a.b"), ("", "bar.>", "foo", "bar.foo"),
    (">", ">", "foo.*", "foo.*"), ("foo.>", "bar.>", "foo", None), ("foo.*.>", "$1.>", "foo.a.b.c", "a.b.c"),
    (">", "{{left(0,1)}}.>", "foo.a", "f.foo.a"), ("foo.*", "", "foo.a", "foo.a"), ("foo.*", "", "bar.a", None),
    ("foo.*", "100%.$1", "foo.a", "100%.a"), ("foo.*x", "bar.baz", "foo.anything", "bar.baz"),
    ("*", "bar.{{partition(10,1)}}", "foo", "bar.3"), ("*.*", "{{partition(10,1,2)}}", "foo.bar", "0"),
    ("foo.bar", "{{partition(10)}}", "foo.bar", "6"), ("*", "{{partition(0,1)}}", "foo", "0"),
    ("*", "{{partition(-3,1)}}", "foo", "2851307223"), ("*", "{{split(1,-)}}", "-a--b-", "a.b"),
    ("*", "{{split(1,-)}}", "--a", ".a"), ("*", "{{split(1,)}}", "añ", "a.ñ"),
    ("*", "{{splitfromleft(1,3)}}", "abcdef", "abc.def"), ("*", "{{splitFromRight(1,2)}}", "abcdef", "abcd.ef"),
    ("*", "{{sliceFromLeft(1,2)}}", "abcde", "ab.cd.e"), ("*", "{{sliceFromRight(1,2)}}", "abcde", "a.bc.de"),
    ("*", "{{left(1,2)}}.{{right(1,2)}}", "abcde", "ab.de"),
    ("*", "{{left(1,0)}}.{{right(1,-1)}}.{{splitfromleft(1,9)}}", "abc", "abc.abc.abc"),
    ("*", "{{random(1)}}", "abc", "0"), ("*", "{{x{{left(1,1)}}", "abc", "a"), ("*", "{{left(1,1)}}}}", "abc", "a"),
]  # fmt: skip


@pytest.mark.parametrize(("src", "dest", "subject", "expected"), MAPPED)
def test_a_subject_is_mapped(src: str, dest: str, subject: str, expected: str | None) -> None:
    assert mapped(src, dest, subject) == expected


@pytest.mark.parametrize("subject", ["foo.*", "foo.>", "foo..a", "foo.", ".a", ""])
def test_what_is_no_literal_is_not_mapped(subject: str) -> None:
    assert mapped("foo.>", "bar.>", subject) is None
    assert mapped("foo.*", "bar.$1", subject) is None


@pytest.mark.parametrize(
    ("src", "dest", "kind", "text"),
    [
        ("foo..a", "bar", "source", "invalid subject"),
        ("foo.>.a", "bar", "source", "invalid subject"),
        ("foo", "bar.*", "destination", "invalid subject"),
        ("foo", "bar..a", "destination", "invalid subject"),
        ("foo", "bar.>", "destination", "invalid subject"),
        ("foo.>", "bar", "destination", "invalid subject"),
        ("foo.*", "$2", "destination", f"{INVALID}: wildcard index out of range in $2: [2]"),
        ("foo", "$1", "destination", f"{INVALID}: wildcard index out of range in $1"),
        ("foo", "{{left(1,1)}}", "destination", f"{INVALID}: wildcard index out of range in {{{{left(1,1)}}}}"),
        ("*", "{{nope(1)}}", "destination", f"{INVALID}: unknown function in {{{{nope(1)}}}}"),
        ("*", "{{LEFT(1,1)}}", "destination", f"{INVALID}: unknown function in {{{{LEFT(1,1)}}}}"),
        ("*", "{{left(1)}}", "destination",
         f"{INVALID}: not enough arguments passed to the function in {{{{left(1)}}}}"),
        ("*", "{{wildcard(1,2)}}", "destination",
         f"{INVALID}: too many arguments passed to the function in {{{{wildcard(1,2)}}}}"),
        ("*", "{{split(1, )}}", "destination", ""),
        ("*", "{{partition(2147483648)}}", "destination",
         f"{INVALID}: function argument is invalid or in the wrong format in {{{{partition(2147483648)}}}}"),
        ("*", "{{left(1,1_0)}}", "destination",
         f"{INVALID}: function argument is invalid or in the wrong format in {{{{left(1,1_0)}}}}"),
    ],
)  # fmt: skip
def test_a_mapping_is_refused(src: str, dest: str, kind: str, text: str) -> None:
    if not text:
        assert mapped(src, dest, "ab") == "a.b"
        return
    with pytest.raises(TransformError) as refused:
        SubjectMapping.compile(src, dest)
    assert (refused.value.kind, refused.value.text) == (kind, text)


@pytest.mark.parametrize(
    ("dest", "text"),
    [
        ("bar.>.a", f"{INVALID}: invalid transform in a"),
        ("bar..a", f"{INVALID}: invalid transform"),
        ("bar.a b", f"{INVALID}: invalid transform"),
        ("{{nope(1)}}", f"{INVALID}: unknown function in {{{{nope(1)}}}}"),
        ("bar.$2", f"{INVALID}: wildcard index out of range in $2: [2]"),
    ],
)
def test_a_configuration_may_not_hold_it(dest: str, text: str) -> None:
    with pytest.raises(TransformError) as refused:
        check_mapping("foo.*", dest)
    assert refused.value.text == text


def test_a_number_has_any_length() -> None:
    assert mapped("*", f"{{{{left({'0' * 5000}1,+{'0' * 5000}2)}}}}", "abc") == "ab"
    assert mapped("*", f"${'9' * 5000}", "abc") == f"${'9' * 5000}"


def test_calls_that_never_end_are_looked_for_once() -> None:
    assert not names_function("{{left(" * 100_000 + "}}")


@pytest.mark.parametrize("dest", ["$1.$1", "{{left(1,99999)}}.$1", "{{slicefromleft(1,1)}}.b"])
def test_a_longer_subject_than_a_stream_can_store_is_not_made(dest: str) -> None:
    mapping, room = SubjectMapping.compile("a.*", dest), MAX_SUBJECT_BYTES // 2
    assert len(mapping.apply(b"a." + b"x" * room) or b"") == MAX_SUBJECT_BYTES
    assert mapping.apply(b"a." + b"x" * (room + 1)) == b"" and mapping.apply(b"b.x") is None
    assert SubjectMapping.compile("a", "b" * (MAX_SUBJECT_BYTES + 1)).apply(b"a") == b""


def test_a_strict_mapping_uses_every_wildcard_and_nothing_else() -> None:
    SubjectMapping.compile("foo.*.*", "$2.$1", strict=True)
    only = "the only mapping function allowed for import transforms is {{Wildcard()}}"
    for dest, text in (
        ("$1", f"{INVALID}: not using all of the token wildcard(s) in $1"),
        ("$1.{{left(2,1)}}",
         f"{INVALID}: {only} in {{{{left(2,1)}}}}"),
    ):  # fmt: skip
        with pytest.raises(TransformError) as refused:
            SubjectMapping.compile("foo.*.*", dest, strict=True)
        assert refused.value.text == text


def test_random_draws_evenly_from_what_it_is_given() -> None:
    bits = iter(range(100))
    mapping = SubjectMapping.compile("*", "{{random(4)}}", draw=lambda _: next(bits))
    assert [mapping.apply(b"a") for _ in range(5)] == [b"0", b"1", b"2", b"3", b"0"]
    own = SubjectMapping.compile("*", "{{random(4)}}")
    counts = [0] * 4
    for _ in range(4000):
        counts[int(own.apply(b"a") or b"")] += 1
    assert min(counts) > 800


# The model: one token at a time, as the documentation of each function says


def model(function: str, token: str, size: int, delimiter: str) -> str:
    inside = 0 < size < len(token)
    if function == "split":
        parts = [part for part in token.split(delimiter) if part]
        quirk = "." if parts and token.startswith(2 * delimiter) else ""  # an empty token, as in the reference
        return quirk + ".".join(parts)
    if not inside:
        return token
    match function:
        case "left":
            return "".join(char for at, char in enumerate(token) if at < size)
        case "right":
            return "".join(char for at, char in enumerate(token) if at >= len(token) - size)
        case "splitfromleft":
            return "".join("." * (at == size) + char for at, char in enumerate(token))
        case "splitfromright":
            return "".join("." * (at == len(token) - size) + char for at, char in enumerate(token))
        case "slicefromleft":
            return "".join("." * (at > 0 and at % size == 0) + char for at, char in enumerate(token))
        case "slicefromright":
            turned = enumerate(reversed(token))
            return "".join("." * (at > 0 and at % size == 0) + char for at, char in turned)[::-1]
    raise AssertionError(function)


tokens = st.text("ab-c", min_size=1, max_size=8)
functions = st.sampled_from(
    ["left", "right", "splitfromleft", "splitfromright", "slicefromleft", "slicefromright", "split"]
)


@given(st.lists(tokens, min_size=1, max_size=4), st.data())
def test_every_function_does_what_its_model_does(wildcards: list[str], data: st.DataObject) -> None:
    calls, expected = [], []
    for _ in range(data.draw(st.integers(1, 4))):
        index, size = data.draw(st.integers(1, len(wildcards))), data.draw(st.integers(-1, 9))
        function = data.draw(functions)
        argument = "-" if function == "split" else str(size)
        calls.append(f"{{{{{function}({index},{argument})}}}}")
        expected.append(model(function, wildcards[index - 1], size, "-"))
    src = ".".join(["x", *["*"] * len(wildcards)])
    assert mapped(src, ".".join(calls), ".".join(["x", *wildcards])) == ".".join(expected)


@given(st.lists(st.sampled_from(["a", "bc", "*", ">"]), min_size=1, max_size=4), st.lists(tokens, max_size=5))
def test_a_source_matches_as_a_subscription_does(pattern: list[str], subject: list[str]) -> None:
    if ">" in pattern[:-1]:
        return
    want = all(p in ("*", ">", s) for p, s in zip(pattern, subject, strict=False))
    fits = want and (len(subject) >= len(pattern) if pattern[-1] == ">" else len(subject) == len(pattern))
    dest = "d.>" if pattern[-1] == ">" else "d"
    assert (mapped(".".join(pattern), dest, ".".join(subject)) is not None) is fits


@given(st.binary(max_size=40), st.integers(1, 1000))
def test_a_partition_is_the_fnv_hash_modulo_its_number(key: bytes, count: int) -> None:
    value = 2166136261
    for byte in key:
        value = (value ^ byte) * 16777619 % 2**32
    assert int(partition(key, count)) == value % count
