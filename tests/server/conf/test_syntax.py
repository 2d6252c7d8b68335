from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.server.conf.syntax import Block, ConfError, Item, load_file, load_text, scalar


def plain(value: object) -> object:
    """Return a block without places."""
    if isinstance(value, Item):
        return plain(value.value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def read(text: str, **environment: str) -> object:
    return plain(load_text(text, environment))


@pytest.mark.parametrize(
    "pair", ["port: 4222", "port = 4222", "port 4222", "port:4222", '"port": 4222', "{port: 4222}"]
)
def test_every_way_to_write_a_pair(pair: str) -> None:
    assert read(pair) == {"port": 4222}


def test_blocks_with_and_without_a_colon_nest() -> None:
    text = "jetstream { store_dir: /a/b, limits: { x = 1 } }\naccounts: {A: {users: [{user: u, pass: p}]}}"
    assert read(text) == {
        "jetstream": {"store_dir": "/a/b", "limits": {"x": 1}},
        "accounts": {"A": {"users": [{"user": "u", "pass": "p"}]}},
    }


@pytest.mark.parametrize("array", ["[a, b, 3]", "[a b 3]", "[\n a # one\n b // two\n 3\n]", "[a,b,3,]"])
def test_arrays_are_parted_by_commas_blanks_and_line_ends(array: str) -> None:
    assert read(f"k: {array}") == {"k": ["a", "b", 3]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("64MB", 64 << 20), ("64M", 64_000_000), ("1Ki", 1024), ("1k", 1000), ("2GiB", 2 << 30), ("-1", -1),
        ("1.5", 1.5), ("true", True), ("YES", True), ("off", False), ("127.0.0.1:-1", "127.0.0.1:-1"),
        ("nats://h:1", "nats://h:1"), ("10s", "10s"), ("$2a$11$abc", "$2a$11$abc"), ("foo.*.>", "foo.*.>"),
    ],
)  # fmt: skip
def test_bare_words_mean_what_they_look_like(text: str, value: object) -> None:
    assert scalar(text) == value
    assert read(f"k: {text}") == {"k": value}


def test_strings_quoted_twice_have_escapes_and_those_quoted_once_have_none() -> None:
    assert read(r"""a: "x\ty\x41\"" """ + "\nb: 'x\\ty # no comment'") == {"a": 'x\tyA"', "b": "x\\ty # no comment"}


def test_a_text_in_parentheses_ends_with_a_line_of_its_own() -> None:
    assert read("k (\nline (one)\nline two\n)\nn: 1") == {"k": "line (one)\nline two", "n": 1}


def test_variables_come_from_around_and_then_from_the_environment() -> None:
    assert read("X: 7\na { b: $X, c: $Y }", Y="4222") == {"X": 7, "a": {"b": 7, "c": 4222}}
    with pytest.raises(ConfError, match="variable reference for 'Z' can not be found"):
        read("a: $Z")


def test_an_included_file_is_part_of_the_block(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "main.conf").write_text("P: 5\nauthorization { include ./sub/users.conf }\n")
    (tmp_path / "sub" / "users.conf").write_text("timeout: $P\n")
    assert plain(load_file(tmp_path / "main.conf", {})) == {"P": 5, "authorization": {"timeout": 5}}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: 1\nb: {\nc: 1\n", "nats.conf:2: the block that opens here is never closed"),
        ("a: [1, 2", "nats.conf:1: the array that opens here is never closed"),
        ('\n\na: "x', "nats.conf:3: the string that opens here is never closed"),
        ("a:\nb: 1", "nats.conf:1: 'a' has no value"),
        ("a: 1\n}", "nats.conf:2: expected a key, not '}'"),
        (r'a: "\q"', r"nats.conf:1: unknown escape \q"),
        ("include 'none.conf'", "nats.conf:1: cannot include none.conf"),
        ("a " + "{ a " * 100, "too many blocks within blocks"),
        ("a: " + "[" * 100, "too many blocks within blocks"),
    ],
)
def test_what_can_not_be_read_is_told_with_file_and_line(text: str, complaint: str) -> None:
    with pytest.raises(ConfError) as caught:
        read(text)
    assert complaint in str(caught.value)


@given(st.text(alphabet="ab1:={}[]()\"'\\#/$, \n", max_size=60))
def test_any_text_is_read_or_refused_with_its_place(text: str) -> None:
    try:
        block: Block = load_text(text, {})
    except ConfError as error:
        assert str(error).startswith(("nats.conf:", "$"))
    else:
        assert isinstance(block, dict)
