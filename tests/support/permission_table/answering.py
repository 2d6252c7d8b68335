"""What may be answered."""

from __future__ import annotations

from typing import Final

from tests.support.permission_table.case import WAIT, Case, Step, message, no_publish, publish

ANSWERING: Final = (
    Case(
        claim="answering once what was received (`allow_responses: true`), and no more",
        users="{user: r1, password: x, permissions: {subscribe: r1, allow_responses: true}}\n{user: a1, password: x}",
        steps=(
            Step("r1", b"SUB r1 1\r\n"),
            Step("a1", b"SUB re.a1 1\r\n" + publish("r1", "re.a1")),
            Step("r1", publish("re.a1"), message("r1", 1, "re.a1")),
            Step("r1", publish("re.a1"), no_publish("re.a1")),
            Step("a1", b"", message("re.a1", 1)),
        ),
        log='Publish Violation - Subject "re.a1"',
    ),
    Case(
        claim="publishing what is no answer, with leave for answers alone",
        users="{user: r2, password: x, permissions: {allow_responses: true}}",
        steps=(Step("r2", publish("r2"), no_publish("r2")),),
        log='Publish Violation - Subject "r2"',
    ),
    Case(
        claim="more answers than `max`",
        users="{user: r3, password: x, permissions: {allow_responses: {max: 2}}}\n{user: a3, password: x}",
        steps=(
            Step("r3", b"SUB r3 1\r\n"),
            Step("a3", b"SUB re.a3 1\r\n" + publish("r3", "re.a3")),
            Step("r3", publish("re.a3") * 2, message("r3", 1, "re.a3")),
            Step("r3", publish("re.a3"), no_publish("re.a3")),
            Step("a3", b"", message("re.a3", 1) * 2),
        ),
        log='Publish Violation - Subject "re.a3"',
    ),
    Case(
        claim="any number of answers (`max: -1`)",
        users="{user: r4, password: x, permissions: {allow_responses: {max: -1}}}\n{user: a4, password: x}",
        steps=(
            Step("r4", b"SUB r4 1\r\n"),
            Step("a4", publish("r4", "re.a4")),
            Step("r4", publish("re.a4") * 5, message("r4", 1, "re.a4")),
        ),
    ),
    Case(
        claim="an answer that comes too late (`expires`)",
        users='{user: r5, password: x, permissions: {allow_responses: {max: 9, expires: "2s"}}}\n'
        "{user: a5, password: x}",
        steps=(
            Step("r5", b"SUB r5 1\r\n"),
            Step("a5", publish("r5", "re.a5")),
            Step("r5", publish("re.a5"), message("r5", 1, "re.a5")),
            Step(WAIT, b"2300"),
            Step("r5", publish("re.a5"), no_publish("re.a5")),
        ),
        log='Publish Violation - Subject "re.a5"',
    ),
    Case(
        claim="each request may be answered for itself",
        users="{user: r6, password: x, permissions: {allow_responses: true}}\n{user: a6, password: x}",
        steps=(
            Step("r6", b"SUB r6 1\r\n"),
            Step("a6", publish("r6", "re.a6.1") + publish("r6", "re.a6.2")),
            Step(
                "r6",
                publish("re.a6.1") + publish("re.a6.2"),
                message("r6", 1, "re.a6.1") + message("r6", 1, "re.a6.2"),
            ),
            Step("r6", publish("re.a6.2"), no_publish("re.a6.2")),
        ),
        log='Publish Violation - Subject "re.a6.2"',
    ),
    Case(
        claim="an answer on a subject that is denied, but was asked for",
        users="{user: r7, password: x, permissions: {publish: {allow: r7.ok, deny: re.>}, allow_responses: true}}\n"
        "{user: a7, password: x}",
        steps=(
            Step("r7", b"SUB r7 1\r\n" + publish("re.a7"), no_publish("re.a7")),
            Step("a7", publish("r7", "re.a7")),
            Step("r7", publish("re.a7") + publish("r7.ok"), message("r7", 1, "re.a7")),
        ),
        log='Publish Violation - Subject "re.a7"',
    ),
    Case(
        claim="answers of a member of a queue group",
        users="{user: r8, password: x, permissions: {allow_responses: true}}\n{user: a8, password: x}",
        steps=(
            Step("r8", b"SUB r8 q 1\r\n"),
            Step("a8", b"SUB re.a8 1\r\n" + publish("r8", "re.a8")),
            Step("r8", publish("re.a8"), message("r8", 1, "re.a8")),
            Step("r8", publish("re.a8"), no_publish("re.a8")),
        ),
        log='Publish Violation - Subject "re.a8"',
    ),
    Case(
        claim="the same reply received twice uses up one answer",
        users="{user: r9, password: x, permissions: {allow_responses: {max: 2}}}\n{user: a9, password: x}",
        steps=(
            Step("r9", b"SUB r9 1\r\n"),
            Step("a9", publish("r9", "re.a9") * 2),
            Step("r9", publish("re.a9"), message("r9", 1, "re.a9") * 2),
            Step("r9", publish("re.a9"), no_publish("re.a9")),
        ),
        log='Publish Violation - Subject "re.a9"',
    ),
)
