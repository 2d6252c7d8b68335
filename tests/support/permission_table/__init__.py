"""Every case of permissions and limits with what the offender sees: the table that tests run and docs show."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.permission_table.case import ANSWER, Case, Step, no_publish

VERBS: Final = (
    "INFO", "STREAM.CREATE.{s}", "STREAM.UPDATE.{s}", "STREAM.DELETE.{s}", "STREAM.INFO.{s}", "STREAM.PURGE.{s}",
    "STREAM.LIST", "STREAM.NAMES", "STREAM.MSG.DELETE.{s}", "STREAM.MSG.GET.{s}", "STREAM.SNAPSHOT.{s}",
    "STREAM.RESTORE.{s}", "CONSUMER.CREATE.{s}", "CONSUMER.DURABLE.CREATE.{s}.C", "CONSUMER.DELETE.{s}.C",
    "CONSUMER.INFO.{s}.C", "CONSUMER.LIST.{s}", "CONSUMER.NAMES.{s}", "CONSUMER.MSG.NEXT.{s}.C",
)  # fmt: skip
"""Subjects behind `$JS.API.` that rules are made of; Source: the specification's list of ACLs."""


def _of_verb(number: int, verb: str) -> Case:
    """Return the case of a user who may ask one thing about one stream, and nothing else."""
    name, stream = f"v{number}", f"V{number}"
    mine, others = f"$JS.API.{verb.format(s=stream)}", f"$JS.API.{verb.format(s='OTHER')}"
    neighbour = "$JS.API." + VERBS[(number + 1) % len(VERBS)].format(s=stream)
    consumer = f'{{"stream_name":"{stream}","config":{{"durable_name":"C","ack_policy":"explicit"}}}}'
    make = (
        _ask(f"$JS.API.STREAM.CREATE.{stream}", f'{{"name":"{stream}","subjects":["{stream}"]}}'),
        _ask(f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.C", consumer),
        f"PUB {stream} 1\r\nx\r\n".encode(),
    )
    refused = [subject for subject in (others, neighbour, "$JS.API.STREAM.TEMPLATE.NAMES") if subject != mine]
    return Case(
        claim=f"a user that may use `{mine}` alone",
        users=f'{{user: {name}, password: x, permissions: {{publish: "{mine}", subscribe: _INBOX.>}}}}\n'
        f"{{user: {name}admin, password: x}}",
        clients={f"{name}admin": {"user": f"{name}admin", "pass": "x"}},
        steps=(
            Step(name, f"SUB _INBOX.{name} answers\r\n".encode()),
            Step(f"{name}admin", b"SUB _INBOX.admin answers\r\n" + make[0], ANSWER),
            Step(f"{name}admin", make[1], ANSWER),
            Step(f"{name}admin", make[2]),
            *(Step(name, f"PUB {each} _INBOX.{name} 0\r\n\r\n".encode(), no_publish(each)) for each in refused),
            Step(name, f"PUB {mine} _INBOX.{name} 0\r\n\r\n".encode(), ANSWER),
        ),
        log=f'Publish Violation - Subject "{refused[-1]}"',
    )


def _ask(subject: str, body: str) -> bytes:
    return f"PUB {subject} _INBOX.admin {len(body)}\r\n{body}\r\n".encode()


def _cases() -> Iterator[tuple[str, tuple[Case, ...]]]:
    text = Path(__file__).with_name("cases.yaml").read_text(encoding="utf-8")
    document: dict[str, list[dict[str, Any]]] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    for title, rows in document.items():
        made = [_of_verb(*each) for each in enumerate(VERBS)] if title.startswith("JetStream") else []
        yield title, (*made, *(Case(**{**row, "steps": tuple(map(_step, row["steps"]))}) for row in rows))


def _step(row: list[str]) -> Step:
    who, *texts = row
    return Step(who, *(text.encode() for text in texts))


TABLE: Final[dict[str, tuple[Case, ...]]] = dict(_cases())
"""Cases by what they are about."""
