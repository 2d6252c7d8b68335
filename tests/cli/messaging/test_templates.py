"""Templates as Go executes them: rows recorded from text/template of Go 1.26 with the functions of the nats tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.errors import UsageError
from natsctl.cli.messaging import go_template
from natsctl.cli.messaging.go_template import expand
from natsctl.cli.messaging.go_values import TemplateError
from natsctl.cli.messaging.message_templates import command_of

RECORDED = [json.loads(line) for line in Path(__file__).with_name("templates.jsonl").read_text().splitlines()]
"""Each a template and what Go makes of it, null where it refuses it."""


def _random(shortest: Any, longest: Any) -> str:
    if type(shortest) is not int or type(longest) is not int or shortest < 0 or longest < 0:
        raise TemplateError("expected unsigned integers")
    return "r" * shortest + "s" * longest


FUNCTIONS = {"Count": lambda: 7, "Cnt": lambda: 7, "Request": lambda: "re q", "ID": lambda: "id", "Random": _random}
DATA = {"Cnt": 7, "Count": 7, "Request": "re q", "ID": lambda: "id"}


def _expanded(text: str) -> str | None:
    try:
        return expand(text, FUNCTIONS, DATA)
    except TemplateError:
        return None


def test_templates_are_executed_as_by_go() -> None:
    assert len(RECORDED) > 300
    differing = [(text, expected, _expanded(text)) for text, expected in RECORDED if _expanded(text) != expected]
    assert differing == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{{define "x"}}{{end}}', "define"),
        ('{{template "x"}}', "template"),
        ('{{block "x" .}}{{end}}', "block"),
        ("{{range 3}}{{break}}{{end}}", "break"),
        ('{{js "a"}}', "js"),
        ("{{call Count}}", "call"),
        ("{{.}}", "data as a whole"),
        ('{{printf "%d" "x"}}', "%d"),
        ('{{printf "%s"}}', "no value"),
        ('{{printf "" 1}}', "more values"),
    ],
)
def test_what_go_has_and_we_have_not_is_named(text: str, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        expand(text, FUNCTIONS, DATA)


def test_output_and_depth_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(go_template, "MAX_OUTPUT", 1000)
    assert len(expand("{{range 300}}x{{end}}", {})) == 300
    for text in ("{{range 9000000000}}{{end}}", "{{range 300}}xxxx{{end}}", f"{{{{{'(' * 200}1{')' * 200}}}}}"):
        with pytest.raises(TemplateError):
            expand(text, {})


def test_nothing_of_a_request_becomes_a_word_of_a_command() -> None:
    body = b"a b; 'c\x00 {{Count}}"
    for place in ("{{.Request}}", "{{ Request }}", '{{printf "%s" Request}}', "{{Request | print}}"):
        words = command_of(f"run -x {place} {{{{1}}}}", "w.$(id)", body, 3)
        assert words == ["run", "-x", "a b; 'c {{Count}}", "$(id)"]
    assert command_of("n {{Count}} '{{Nope}}'", "s", b"x", 3) == ["n", "{{Count}}", "{{Nope}}"]
    assert command_of("n {{Count}} {{9}} {{if eq .Request `x`}}yes{{end}}", "s", b"x", 3) == ["n", "3", "9", "yes"]
