"""Access to JetStream verb by verb: a user who may ask one thing about one stream may ask nothing else."""

from __future__ import annotations

from typing import Final

from tests.support.permission_table.case import ANSWER, Case, Step, no_publish

VERBS: Final = (
    "INFO", "STREAM.CREATE.{s}", "STREAM.UPDATE.{s}", "STREAM.DELETE.{s}", "STREAM.INFO.{s}", "STREAM.PURGE.{s}",
    "STREAM.LIST", "STREAM.NAMES", "STREAM.MSG.DELETE.{s}", "STREAM.MSG.GET.{s}", "STREAM.SNAPSHOT.{s}",
    "STREAM.RESTORE.{s}", "CONSUMER.CREATE.{s}", "CONSUMER.DURABLE.CREATE.{s}.C", "CONSUMER.DELETE.{s}.C",
    "CONSUMER.INFO.{s}.C", "CONSUMER.LIST.{s}", "CONSUMER.NAMES.{s}", "CONSUMER.MSG.NEXT.{s}.C",
)  # fmt: skip
"""Subjects behind `$JS.API.` that rules are made of; Source: the specification's list of ACLs."""


def _verb_case(number: int, verb: str) -> Case:
    name, stream = f"v{number}", f"V{number}"
    mine, others = f"$JS.API.{verb.format(s=stream)}", f"$JS.API.{verb.format(s='OTHER')}"
    neighbour = "$JS.API." + VERBS[(number + 1) % len(VERBS)].format(s=stream)
    make = (
        _ask(f"$JS.API.STREAM.CREATE.{stream}", f'{{"name":"{stream}","subjects":["{stream}"]}}'),
        _ask(f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.C", _consumer(stream)),
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
            *(
                Step(name, f"PUB {subject} _INBOX.{name} 0\r\n\r\n".encode(), no_publish(subject))
                for subject in refused
            ),
            Step(name, f"PUB {mine} _INBOX.{name} 0\r\n\r\n".encode(), ANSWER),
        ),
        log=f'Publish Violation - Subject "{refused[-1]}"',
    )


def _ask(subject: str, body: str) -> bytes:
    return f"PUB {subject} _INBOX.admin {len(body)}\r\n{body}\r\n".encode()


def _consumer(stream: str) -> str:
    return f'{{"stream_name":"{stream}","config":{{"durable_name":"C","ack_policy":"explicit"}}}}'


JETSTREAM_VERBS: Final = (
    *(_verb_case(number, verb) for number, verb in enumerate(VERBS)),
    Case(
        claim="a worker that may ask for the next message of one consumer and acknowledge it",
        users="{user: w1, password: x, permissions: {publish: "
        '["$JS.API.CONSUMER.MSG.NEXT.W.C", "$JS.ACK.W.C.>"], subscribe: _INBOX.>}}\n{user: w1admin, password: x}',
        steps=(
            Step("w1", b"SUB _INBOX.w1 answers\r\n"),
            Step(
                "w1",
                b"PUB $JS.API.CONSUMER.MSG.NEXT.W.D _INBOX.w1 0\r\n\r\n",
                no_publish("$JS.API.CONSUMER.MSG.NEXT.W.D"),
            ),
            Step("w1", b"PUB $JS.ACK.W.D.1.1.1.1.0 4\r\n+ACK\r\n", no_publish("$JS.ACK.W.D.1.1.1.1.0")),
            Step("w1", b"PUB $JS.ACK.W.C.1.1.1.1.0 4\r\n+ACK\r\n"),
        ),
        log='Publish Violation - Subject "$JS.ACK.W.D.1.1.1.1.0"',
    ),
    Case(
        claim="acknowledging what was received, with leave for answers alone (`allow_responses`)",
        users="{user: w2, password: x, permissions: {subscribe: [w2.>, _INBOX.>], allow_responses: true}}\n"
        "{user: w2admin, password: x}",
        steps=(
            Step(
                "w2", b"SUB w2.in 1\r\nPUB $JS.ACK.W2.C.1.1.1.1.0 4\r\n+ACK\r\n", no_publish("$JS.ACK.W2.C.1.1.1.1.0")
            ),
        ),
        log='Publish Violation - Subject "$JS.ACK.W2.C.1.1.1.1.0"',
    ),
)
