import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.server.conf.config import apply, read_config
from natsctl.server.conf.syntax import ConfError, ConfItem, load_file, load_text
from natsctl.server.options import ServerOptions
from tests.support.fuzz import conf


def plain(value: object) -> object:
    if isinstance(value, ConfItem):
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


@pytest.mark.parametrize("array", ["[a, b, 3]", "[\n a # one\n b // two\n 3\n]", "[a,b,3,]", "[a,\n\nb,\n3 ]"])
def test_arrays_are_parted_by_commas_and_line_ends(array: str) -> None:
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
    assert read(f"k: {text}") == {"k": value}


def test_strings_quoted_twice_have_escapes_and_those_quoted_once_have_none() -> None:
    assert read(r"""a: "x\ty\x41\"" """ + "\nb: 'x\\ty # no comment'") == {"a": 'x\tyA"', "b": "x\\ty # no comment"}


def test_a_text_in_parentheses_ends_with_a_line_of_its_own() -> None:
    assert read("k (\nline (one)\nline two\n)\nn: 1") == {"k": "\nline (one)\nline two\n", "n": 1}


def test_variables_come_from_around_and_then_from_the_environment() -> None:
    assert read("X: 7\na { b: $X, c: $Y }", Y="4222") == {"X": 7, "a": {"b": 7, "c": 4222}}
    with pytest.raises(ConfError, match="variable reference for 'Z' can not be found"):
        read("a: $Z")


def test_an_included_file_is_part_of_the_block(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "main.conf").write_text("include ./sub/users.conf\nauthorization { t: $P }\n")
    (tmp_path / "sub" / "users.conf").write_text("P: 5\ntimeout: $P\n")
    assert plain(load_file(tmp_path / "main.conf", {})) == {"P": 5, "timeout": 5, "authorization": {"t": 5}}


def test_a_brace_too_many_at_the_end_is_let_be() -> None:
    assert read("a: 1\n}\n") == {"a": 1}


def test_variables_of_the_environment_end_in_a_circle_as_an_error() -> None:
    with pytest.raises(ConfError, match="variable reference cycle for 'A'"):
        read("a: $A", A="$B", B="$A")


def test_a_file_that_is_no_text_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "x.conf").write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(ConfError, match=r"x\.conf:2: Parse error: the file is not UTF-8 text"):
        load_file(tmp_path / "x.conf", {})


def test_a_pipe_is_refused_at_once_wherever_a_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)  # or a reader that is at fault would wait for ever
    try:
        os.write(writer, b"port: 1\n")
        with pytest.raises(OSError, match="a pipe is no file"):
            load_file(tmp_path / "pipe", {})
        (tmp_path / "nats.conf").write_text("include pipe")
        with pytest.raises(ConfError, match="a pipe is no file"):
            load_file(tmp_path / "nats.conf", {})
    finally:
        os.close(writer)


def test_a_pipe_of_the_shell_is_read_once() -> None:
    reader, writer = os.pipe()
    try:
        os.write(writer, b"port: 4222\n")
        os.close(writer)
        path = Path(f"/dev/fd/{reader}")
        assert plain(load_file(path, {})) == {"port": 4222}
        with pytest.raises(OSError, match="a pipe is no file to be read again"):
            load_file(path, {})
    finally:
        os.close(reader)


KEYS = (
    "port", "jetstream", "accounts", "authorization", "websocket", "leafnodes", "tls", "ping_interval", "server_tags",
    "server_metadata", "cluster", "operator", "resolver", "mappings", "lame_duck_duration",
)  # fmt: skip
INNER_KEYS = ("a", "users", "user", "enabled", "limits", "url", "remotes")
GOOD = sorted(conf.CORPUS.glob("*.conf"))


def array(items: list[str]) -> str:
    return "[" + "\n".join(items) + "\n]"


def block(pairs: dict[str, str]) -> str:
    return "{" + "\n".join(f"{key}: {value}" for key, value in pairs.items()) + "\n}"


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_the_corpus_is_made_of_good_files(path: Path) -> None:
    read_config(path, ServerOptions(), {})


@given(st.integers(min_value=0))
def test_a_spoilt_file_is_read_or_refused_with_its_place(number: int) -> None:
    chance = random.Random(number)
    conf.check(conf.make(chance), chance)


@given(
    st.sampled_from(KEYS),
    st.recursive(
        st.sampled_from(["1", "-1", "true", "x", '""', '"a b"', "1.5", "2026-01-31T00:00:00Z", "10s", "64MB"]),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3).map(array),
            st.dictionaries(st.sampled_from(INNER_KEYS), inner, max_size=3).map(block),
        ),
        max_leaves=6,
    ),
)  # fmt: skip
def test_any_value_of_any_key_is_taken_or_refused_with_its_place(key: str, value: str) -> None:
    try:
        apply(load_text(f"{key}: {value}\n", {}), ServerOptions())
    except ConfError as error:
        assert str(error).startswith("nats.conf:")
