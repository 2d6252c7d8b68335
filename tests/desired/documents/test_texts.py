"""YAML and JSON with lines: what is wrong in a text is told where it is, and hostile ones are held by limits."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from natsctl.api import documents
from natsctl.api import locations as limits
from natsctl.api.documents import plain_value, read_json, read_yaml, values_of
from natsctl.api.errors import UsageError
from natsctl.api.locations import DocumentNode
from natsctl.desired.assets import DocumentError
from natsctl.desired.documents import load_documents, read_documents
from tests.support import tiers


def never(line: int, path: object, reason: str) -> None:
    raise AssertionError((line, path, reason))


def parsed(text: str) -> list[object]:
    return [value for _, value in read_yaml(text, never, None)]


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@tiers.examples(50)
@given(VALUES)
def test_json_says_what_the_standard_reader_says(value: object) -> None:
    for text in (json.dumps(value, indent="\t"), json.dumps(value, ensure_ascii=False)):
        assert [read for _, read in read_json(f"{text}\n {text}", never, None)] == [value, value]


@tiers.examples(50)
@given(VALUES)
def test_yaml_says_what_was_written(value: object) -> None:
    assert parsed(yaml.safe_dump(value)) == [value]


def test_plain_words_mean_what_yaml_says() -> None:
    text = "[~, null, true, No, on, 12, -0x1F, 0b11, 010, 1_000, 1.5, 1.0e+3, .5, .inf]"
    assert parsed(text) == [[None, None, True, False, True, 12, -31, 3, 8, 1000, 1.5, 1000.0, 0.5, float("inf")]]
    words = ["1:30", "2026-01-31", "12s", "0.9.1", "0o17", "1e3", "5E10", "089", "0x", "+", "-", "."]
    assert parsed(f"[{', '.join(words)}, '12']") == [[*words, "12"]]


@given(st.from_regex(r"[-+.0-9_xobeEinfaN:]{1,8}", fullmatch=True))
@example("0x_")
def test_plain_words_mean_what_the_standard_reader_says(word: str) -> None:
    try:
        expected = yaml.safe_load(f"[{word}]")[0] if ":" not in word else word
    except ValueError:  # it takes 0x_ for a number, and then finds no digit
        expected = word
    assert repr(plain_value(word)) == repr(expected)


def test_every_value_knows_its_line() -> None:
    ((_, root),) = read_yaml("a: 1\nb:\n  - x\n  - c: {d: 1,\n      e: 2}\n", never, None)
    node = DocumentNode("f", root)
    assert node.at("b", 1, "c", "e").place == ("f", 5, "$.b[1].c.e")
    assert node.at("b", 0).place.line == 3
    ((_, root),) = read_json('{"a": 1,\n "b": [1,\n {"c": 2}]}', never, None)
    assert DocumentNode("f", root).at("b", 1, "c").place == ("f", 3, "$.b[1].c")


def test_an_alias_bomb_is_cut_off(told) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    ((line, _, reason),) = [one for one in told("\n".join(lines)) if "values" in one[2]]
    assert reason.startswith("more than 2,000,000 values")
    assert line == 7


def test_files_that_are_no_text_or_too_long_are_told(told, monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(b"name: A\nmax_age: \xff\n") == [(2, "$", "not UTF-8 text (byte 17)")]
    monkeypatch.setattr("natsctl.desired.documents.files.MAX_FILE_BYTES", 1024)
    assert told("#" * 2000) == [(0, "$", "larger than 0 MiB")]
    assert limits.MAX_FILE_BYTES >= 2**20


FRAGMENTS = st.sampled_from(
    """streams: consumers: kind:_Stream -_ name:_A __ [ ] { } ${X} ${X:-1} $${ &a *a <<:_ subjects:_[a.>] config: " : ,
    !!str ---\n max_age:_1y \t include: apiVersion:_jetstream.nats.io/v1beta2 spec: bucket:_B mirror:_ sources:_ null .
    """.replace("\t", " \\t ").split()
).map(lambda word: word.replace("_", " ").replace("\\t", "\t")) | st.sampled_from(["\n", "\n  ", "\n- "])


@given(st.lists(FRAGMENTS | st.text(max_size=5), max_size=25).map("".join), st.sampled_from([".yaml", ".json", ""]))
def test_any_text_is_read_or_told(tmp_path_factory: pytest.TempPathFactory, text: str, suffix: str) -> None:
    folder = tmp_path_factory.getbasetemp() / "any"  # a text may include what is beside it, folders whole
    folder.mkdir(exist_ok=True)
    path = folder / f"any{suffix}"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    try:
        load_documents([str(path)], {"X": text})
    except (UsageError, DocumentError) as failure:
        assert str(failure)


NAMES = st.sampled_from(
    """name durable_name stream bucket kind spec config stream_info metadata subjects mirror sources storage max_age
    placement republish consumers streams protect create_only history ttl compression filter_subjects apiVersion
    consumer_limits num_replicas opt_start_time priority_groups external items description owner""".split()  # noqa: SIM905
)
WORDS = st.sampled_from(
    ["A", "B", "Stream", "Consumer", "KeyValue", "ObjectStore", "List", "1h", "10GiB", "file", "jetstream.nats.io/v1"]
)
DOCUMENTS = st.recursive(
    SCALARS | WORDS | st.just("a.>"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=6),
    max_leaves=20,
)


@tiers.examples(60)
@given(DOCUMENTS)
def test_any_document_is_read_or_told(tmp_path_factory: pytest.TempPathFactory, document: object) -> None:
    path = tmp_path_factory.getbasetemp() / "document.json"
    path.write_text(json.dumps(document))
    documents, faults = read_documents([str(path)], {})
    for fault in faults:
        assert fault.place.line >= 1
        assert fault.reason
    assert all(one.place.line >= 1 for one in documents.wanted.values())


def test_stdin_is_a_file_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("name: A\nstorage: disk\n")
    with (tmp_path / "in").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        _, (fault,) = read_documents(["-"], {})
    assert str(fault) == 'stdin:2: $.storage: expected one of file, memory, got "disk"'


def test_whoever_wants_values_only_gets_plain_ones_and_the_first_fault() -> None:
    assert values_of("a: ${X}\n---\n[1, 2]\n", "two") == [{"a": "${X}"}, [1, 2]]
    assert values_of('{"a": 1}', "one.json") == values_of("{a: 1}", "one.yaml") == [{"a": 1}]
    for text, name, reason in [
        ("a: 1\na: 2\n", "x.yaml", "x.yaml:2: a stands here twice, first on line 1"),
        ('{"a": 1,\n}', "x.json", "x.json:2: not JSON: expecting property name enclosed in double quotes, got }"),
        ("a: [\n", "x.json", "x.json:2: not YAML: did not find expected node content while parsing a flow node"),
    ]:
        with pytest.raises(UsageError) as caught:
            values_of(text, name)
        assert str(caught.value) == reason


@pytest.mark.parametrize("name", ["set.yaml", "set.json"])
def test_a_text_with_too_many_values_is_cut_off(told, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_VALUES", 100)
    text = json.dumps({f"k{number}": number for number in range(200)}, indent=0)
    ((line, _, reason),) = told(text, name)
    assert reason == "more than 100 values"
    assert 100 <= line <= 102


def test_mistakes_without_end_are_told_to_an_end(told) -> None:
    assert len(told("name: A\n" + "".join(f"k{number}: 1\n" for number in range(2000)))) == 1000


def test_yaml_is_read_without_libyaml_too(told, read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert [key.name for key in read("streams: [&a {name: A}, {<<: *a, name: B}]\n---\nname: C\n").wanted] == [
        "A",
        "B",
        "C",
    ]
    assert told("name: A\nname: B\n") == [(2, "$.name", "name stands here twice, first on line 1")]
    for text, line, reason in [
        ("a: 1\n\tb: 2\n", 2, "a tab"),
        ("name: \x07\n", 1, "not YAML"),
        ("a: [\n", 2, "not YAML"),
    ]:
        ((at, _, why),) = told(text)
        assert (at, reason in why) == (line, True), why
