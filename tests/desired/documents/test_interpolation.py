"""`${NAME}` in documents: values of the environment and of the command line."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.api.yaml_text import InterpolationError, escaped, expanded
from natsctl.desired.assets import AssetKey
from natsctl.desired.documents import load_documents

STREAM = AssetKey("A")


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("${NAME}", "ORDERS"),
        ("${EMPTY}", ""),
        ("a.${NAME}.${NAME}.>", "a.ORDERS.ORDERS.>"),
        ("${NAME:-x}", "ORDERS"),
        ("${NOPE:-x y}", "x y"),
        ("${EMPTY:-x}", "x"),
        ("${NOPE:-}", ""),
        ("${NAME:?give one}", "ORDERS"),
        ("$${NAME}", "${NAME}"),
        ("$$${NAME}", "$${NAME}"),
        ("$JS.API.> $1 $ $$ {{wildcard(1)}}", "$JS.API.> $1 $ $$ {{wildcard(1)}}"),
        ("${TWICE}", "${NAME}"),
    ],
)
def test_references_become_their_values(text: str, becomes: str) -> None:
    assert expanded(text, {"NAME": "ORDERS", "EMPTY": "", "TWICE": "${NAME}"}) == becomes


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${NOPE}", "NOPE is not set: set it, or give --var NOPE=VALUE"),
        ("${NOPE:?which stream?}", "NOPE is not set: which stream?"),
        ("${EMPTY:?which stream?}", "EMPTY is empty: which stream?"),
        ("${}", "expected ${NAME}"),
        ("${1A}", "expected ${NAME}"),
        ("${A B}", "expected ${NAME}"),
        ("${A-b}", "expected ${NAME}"),
        ("${NAME", "expected ${NAME}"),
        ("${NOPE:-${NAME}}", "cannot hold another"),
    ],
)
def test_what_can_not_be_replaced_is_told(text: str, reason: str) -> None:
    with pytest.raises(InterpolationError) as caught:
        expanded(text, {"NAME": "ORDERS", "EMPTY": ""})
    assert reason in str(caught.value)


@given(st.text(alphabet="${}aA:-?", max_size=20))
def test_an_escaped_text_is_itself_again(text: str) -> None:
    assert expanded(escaped(text), {}) == text


def test_a_plain_scalar_takes_the_type_of_its_value(read) -> None:
    text = "name: A\nmax_msgs: ${MAX:-100}\nno_ack: ${QUIET}\nmax_age: ${AGE}h\nmax_bytes: ${NONE:-}\n"
    config = read(text, environ={"QUIET": "true", "AGE": "2"}).wanted[STREAM].config
    assert config == {"name": "A", "max_msgs": 100, "no_ack": True, "max_age": 7200 * 10**9}


@pytest.mark.parametrize(
    "text",
    [
        "name: A\nmax_msgs: ${N}\nno_ack: ${B}\nmax_age: ${D}\ndescription: ${N}\nprotect: ${B}\nsubjects:\n- a.${N}\n",
        "name: A\nmax_msgs: '${N}'\nno_ack: \"${B}\"\nmax_age: '${D}'\ndescription: '${N}'\nprotect: '${B}'\n"
        "subjects: ['a.${N}']\n",
        "{name: A, max_msgs: ${N}, no_ack: ${B}, max_age: ${D}, description: ${N}, protect: ${B}, subjects: [a.${N}]}",
        '{name: A, "max_msgs": "${N}", no_ack: "${X:-true}", max_age: "${D}", description: "${N}", protect: "${B}", '
        'subjects: ["a.${N}"]} # ${never read',
        "streams: [{name: A, max_msgs: ${X:-100}, no_ack: ${B}, max_age: ${X:-1h}, description: '${N}', "
        "protect: ${B}, subjects: [a.${N}]}]",
        '{"name": "A", "max_msgs": "${N}", "no_ack": "${B}", "max_age": "${D}", "description": "${N}", '
        '"protect": "${B}", "subjects": ["a.${N}"]}',
    ],
)
def test_a_reference_has_the_type_that_is_wanted_in_every_style(read, text: str) -> None:
    one = read(text, environ={"N": "100", "B": "true", "D": "1h"}).wanted[STREAM]
    wanted = {"max_msgs": 100, "no_ack": True, "max_age": 3600 * 10**9, "description": "100", "subjects": ["a.100"]}
    assert ({**one.config}, one.protect) == ({"name": "A", **wanted}, True)


def test_what_a_reference_holds_in_braces_and_brackets_is_read_as_it_stands(read, told) -> None:
    text = "{name: A, description: '${X:-a, [b]: #c}', subjects: [${X:-a.>}, $${X}], metadata: {k: ${Y}}}"
    config = read(text, environ={"Y": "a, {b: c}"}).wanted[STREAM].config
    assert config["description"] == "a, [b]: #c"
    assert (config["subjects"], config["metadata"]) == (["a.>", "${X}"], {"k": "a, {b: c}"})
    (fault,) = told("{name: A, max_msgs: ${N}}", environ={"N": "many"})
    assert fault == (1, "$.max_msgs", 'expected a whole number, got "many"')
    assert told("{name: A, max_msgs: ${N}}")[0][2].startswith("N is not set")


def test_json_takes_the_type_that_is_wanted(read, told) -> None:
    text = '{"name": "${NAME}", "max_msgs": "${MAX}", "no_ack": "${QUIET}", "max_age": "${AGE}"}'
    environ = {"NAME": "7", "MAX": "100", "QUIET": "true", "AGE": "1h"}
    config = read(text, "set.json", environ).wanted[AssetKey("7")].config
    assert config == {"name": "7", "max_msgs": 100, "no_ack": True, "max_age": 3600 * 10**9}
    (fault,) = told(text, "set.json", {**environ, "MAX": "many"})
    assert fault[2] == 'expected a whole number, got "many"'


def test_keys_are_never_replaced(told) -> None:
    (fault,) = told("${NAME}: A\nname: X\n", environ={"NAME": "name"})
    assert fault == (1, '$["${NAME}"]', "unknown key, did you mean name?")


def test_a_name_that_is_a_key_is_not_taken_as_it_stands(told) -> None:
    (fault,) = told("streams:\n  ${NAME}:\n    subjects: [a]\n", environ={"NAME": "A"})
    assert fault == (
        2,
        '$.streams["${NAME}"]',
        "a key is not replaced: write a list, with `name: ${NAME}` in its item",
    )


@pytest.mark.parametrize("value", ["${EMPTY}", "'${EMPTY}'"])
def test_an_empty_variable_is_no_null(read, told, value: str) -> None:
    """A limit would be lifted by a variable that somebody forgot to fill; `${NAME:-}` says that it may be empty."""
    (fault,) = told(f"name: A\nmax_msgs: {value}\n", environ={"EMPTY": ""})
    assert fault == (2, "$.max_msgs", "expected a whole number, got nothing")
    assert read(f"name: A\ndescription: {value}\n", environ={"EMPTY": ""}).wanted[STREAM].config == {
        "name": "A",
        "description": "",
    }


def test_a_value_is_no_yaml(read) -> None:
    environ = {"TEXT": "[a, b]\nmax_msgs: 5"}
    assert read("name: A\ndescription: ${TEXT}\n", environ=environ).wanted[STREAM].config == {
        "name": "A",
        "description": "[a, b]\nmax_msgs: 5",
    }


def test_every_missing_value_is_told_once(told) -> None:
    text = "streams:\n- name: ${A}\n  subjects:\n  - ${B}\n  consumers:\n  - name: ${C:?name the consumer}\n"
    assert [(line, path) for line, path, _ in told(text)] == [
        (2, "$.streams[0].name"),
        (4, "$.streams[0].subjects[0]"),
        (6, "$.streams[0].consumers[0].name"),
    ]


def test_variables_come_before_the_environment(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: ${NAME}\n")
    found = load_documents([str(tmp_path / "a.yaml")], {"NAME": "ENV"}, variables={"NAME": "VAR"})
    assert [key.name for key in found.wanted] == ["VAR"]
