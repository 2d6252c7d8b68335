"""Templates: the functions that the nats tool documents, texts that are not templates, and what only Go has."""

import time

import pytest

from natsctl.api.errors import UsageError
from natsctl.cli.messaging.message_templates import TemplateError, command_of, expand, message_functions

FUNCTIONS = {**message_functions(7, 0), "Request": lambda: "re q"}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("plain }} { x", "plain }} { x"),
        ("{{Count}} {{ .Count }} {{Cnt}}}}", "7 7 7}}"),
        ("{{.Request}}{{Request}}", "re qre q"),
        ("{{ Random 0 0 }}|{{\nUnix}}", "|0"),
        ('{"a": {"b": {}}}', '{"a": {"b": {}}}'),
    ],
)
def test_functions_are_replaced_by_their_results(text: str, expanded: str) -> None:
    assert expand(text, FUNCTIONS) == expanded


@pytest.mark.parametrize(
    "text",
    ["{{", "{{ .Count }", "{{{Count}}}", "{{}}", "{{Nope}}", "{{Random(1, 2)}}", "{{Random 2}}", "{{Count 1}}",
     "{{Random -1 2}}", "{{-3}}", "{{Random 1 99999999999}}", '{"a": {{"b": 1}}}', "{{Count.x}}", "{{count}}"],
)  # fmt: skip
def test_other_texts_are_not_templates(text: str) -> None:
    with pytest.raises(TemplateError):
        expand(text, FUNCTIONS)


@pytest.mark.parametrize(
    "text",
    ["{{if eq Count 7}}x{{end}}", '{{printf "%03d" Count}}', "{{Request | len}}", "{{- Count}}", "{{Count -}}",
     "{{$x := 1}}", "{{/* x */}}", '{{define "x"}}{{end}}', "{{range 3}}{{end}}"],
)  # fmt: skip
def test_other_features_of_go_are_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="not supported in templates"):
        expand(text, FUNCTIONS)


def test_functions_know_the_time_and_draw_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        functions = message_functions(7, 1767366245_000250001)
        filled = expand("{{ Time }} {{TimeStamp}} {{Unix}} {{UnixNano}}", functions)
        assert filled == "3:04PM 2026-01-02T15:04:05Z 1767366245 1767366245000250001"
        monkeypatch.setenv("TZ", "XXX-05:30")
        time.tzset()
        functions = message_functions(7, 1767366245_000250001)
        assert expand("{{TimeStamp}}", functions) == "2026-01-02T20:34:05+05:30"
    finally:
        monkeypatch.undo()
        time.tzset()
    assert len(expand("{{ID}}{{.ID}}", functions)) == 44
    assert 3 <= len(expand("{{Random 5 3}}", functions)) <= 5
    assert len(expand("{{Random 4 4}}", functions)) == 4


def test_nothing_of_a_request_becomes_an_argument_of_a_command() -> None:
    body = b"a b; 'c\x00 {{Count}}"
    for action in ("{{.Request}}", "{{ Request }}"):
        arguments = command_of(f"run -x {action} {{{{1}}}}", "w.$(id)", body, 3)
        assert arguments == ["run", "-x", "a b; 'c {{Count}}", "$(id)"]
    assert command_of("n {{Count}} '{{Nope}}'", "s", b"x", 3) == ["n", "{{Count}}", "{{Nope}}"]
    assert command_of("n {{Count}} {{0}}", "s", b"x", 3) == ["n", "3", "s"]
