"""Values as words and documents as text: whatever stands there is read back as it was."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from natsctl.api.documents import expanded, read_yaml
from natsctl.api.errors import UsageError
from natsctl.api.model import shape_of
from natsctl.api.stream import StreamConfig
from natsctl.api.units import parse_duration, parse_size
from natsctl.desired.documents.asset_documents import known_of, merged, unknown_of
from natsctl.desired.documents.files import (
    file_names,
    is_folder,
    json_text,
    other_documents,
    stream_of,
    write_files,
    yaml_text,
)
from natsctl.desired.export import duration_words, size_words, worded

texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.one_of(texts, st.integers(-(2**63), 2**64 - 1), st.booleans(), st.none(), st.lists(texts, max_size=3))
ODD = ["on", "off", "y", "N", "null", "~", "1e3", "0x10", "0o17", "1_000", ".5", ".inf", "12:30:45", "2024-01-01", "="]
ODD += list("-?[{&*!|>%@`#")


def read(text: str) -> list[Any]:
    faults: list[Any] = []
    found = [value for _, value in read_yaml(text, lambda *fault: faults.append(fault), None)]
    assert faults == []
    return found


@given(st.dictionaries(texts.filter(lambda key: key != "<<"), values, min_size=1, max_size=4), st.booleans())
@example({word: word for word in ODD}, False)
@example(
    {"a": "lines\n  more\n\n", "b": "\n", "c": "x\r\ny", "d": " x ", "e": "\tx\ny", "f": "é\u2028x", "g": "a: b #c"},
    True,
)
def test_yaml_is_read_as_what_was_written(item: dict[str, Any], ascii_only: bool) -> None:
    document = {"owner": "me", "streams": [item, item]}
    text = yaml_text([document, document], ["two\nlines"], ascii_only=ascii_only)
    assert read(text) == [document, document]
    assert list(yaml.safe_load_all(text)) == [document, document]
    assert text.startswith("# two lines\n")
    assert not ascii_only or text.isascii()


@pytest.mark.parametrize("word", ["1y", "10GiB", "ORDERS.*", "$JS.hub.API", "1h30m", "50%", "a-b"])
def test_words_without_another_meaning_have_no_quotes(word: str) -> None:
    assert yaml_text([{"a": word}]) == f"a: {word}\n"


@pytest.mark.parametrize("word", ["on", "N", "1e3", "0x10", "0o17", "null", "12:30", "2024-01-01", "~", "1_000", ".5"])
def test_words_with_another_meaning_to_some_reader_have_quotes(word: str) -> None:
    assert yaml_text([{"a": word}]) == f"a: '{word}'\n"


def test_texts_of_several_lines_stand_as_such() -> None:
    assert yaml_text([{"description": "one\n  two\n"}]) == "description: |\n  one\n    two\n"


def test_json_is_one_document_or_an_array() -> None:
    assert (json_text({"a": "ä"}), json_text([])) == ('{\n  "a": "ä"\n}\n', "[]\n")


@given(st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**20).map(lambda n: n * 1_000_000_000)))
def test_durations_and_sizes_are_words_that_read_back(number: int) -> None:
    for text, read_back in ((duration_words(number), parse_duration), (size_words(number), parse_size)):
        assert text == "" or read_back(text) == number


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1, "1s"), (90, "1m30s"), (60, "1m"), (3600, "1h"), (5400, "1h30m"), (172800, "2d"), (0.1, "100ms"), (0, "")],
)
def test_durations_are_said_in_few_words(seconds: float, words: str) -> None:
    assert duration_words(int(seconds * 1_000_000_000)) == words


@given(st.one_of(texts, st.text("${}A:-", max_size=12)))
def test_interpolation_gives_texts_back(text: str) -> None:
    assert expanded(worded(text, None), {"A": "set"}) == text


def test_only_durations_and_sizes_become_words() -> None:
    config = {
        "max_age": 60_000_000_000,
        "max_bytes": 1024,
        "max_msgs": 1024,
        "metadata": {"max_age": "60"},
        "max_msg_size": -1,
    }
    said = worded(config, shape_of(StreamConfig))
    assert said == {**config, "max_age": "1m", "max_bytes": "1KiB"}


def test_fields_that_are_not_known_are_told_apart_and_put_back() -> None:
    shape = shape_of(StreamConfig)
    config = {"name": "S", "mirror": {"name": "M", "x": 1}, "sources": [{"name": "A", "y": 2}], "new": {"z": None}}
    extra = unknown_of(config, shape)
    assert extra == {"mirror": {"x": 1}, "sources": [{"name": "A", "y": 2}], "new": {"z": None}}
    assert merged(known_of(config, shape), extra) == {**config, "new": {}}


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters=".*>/\\ \0"), min_size=1), unique=True)
)
@example(["ORDERS", "orders", "Orders", "con", "COM1", "ö" * 85, "ö" * 84 + "ä", "%41", "A", "~"])
def test_file_names_are_safe_and_different_on_every_file_system(streams: list[str]) -> None:
    names = file_names(sorted(streams), ".yaml")
    assert len({name.lower() for name in names.values()}) == len(streams)
    for stream, name in names.items():
        assert len(name) < 255
        assert set(name.removesuffix(".yaml")) <= set(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_%~"
        )
        assert stream_of(Path(name)) == stream or "~" in name
        assert name.lower() not in ("con.yaml", "com1.yaml", "nul.yaml")


def test_files_are_checked_before_the_first_one_is_written(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("mine")
    files = {tmp_path / "a.yaml": "a", tmp_path / "b.yaml": "b"}
    with pytest.raises(UsageError, match=r"b\.yaml"):
        write_files(files, force=False)
    assert [path.name for path in tmp_path.glob("*.yaml")] == ["b.yaml"]
    done = write_files(files, force=True)
    assert [Path(path).name for path in done.written] == ["a.yaml", "b.yaml"]
    assert write_files(files, force=False).unchanged == [str(path) for path in files]
    (tmp_path / "old.json").write_text("{}")
    assert other_documents(tmp_path, files) == [tmp_path / "old.json"]


def test_a_path_without_the_suffix_of_a_document_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "there.yaml").mkdir()
    assert [is_folder(path) for path in ("a.yaml", "a.json", "a", "a.d/", str(tmp_path / "there.yaml"))] == [
        False,
        False,
        True,
        True,
        True,
    ]
