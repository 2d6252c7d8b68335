"""Cases of permissions to subscribe."""

from __future__ import annotations

from typing import Final

from tests.support.permission_table.case import Case, Step, error, message, no_subscription, publish

SUBSCRIBING: Final = (
    Case(
        claim="subscribing to what is not in the allow list",
        users='{user: s1, password: x, permissions: {subscribe: ["s1.a", "s1.b.*"]}}',
        steps=(
            Step("s1", b"SUB s1.c 1\r\n", no_subscription("s1.c")),
            Step("s1", b"SUB s1.b.c 2\r\n" + publish("s1.b.c"), message("s1.b.c", 2)),
        ),
        log='Subscription Violation - Subject "s1.c", SID 1',
    ),
    Case(
        claim="subscribing to more than is allowed",
        users='{user: s2, password: x, permissions: {subscribe: ["s2.a", "s2.b.*"]}}',
        steps=(
            Step("s2", b"SUB s2.* 1\r\n", no_subscription("s2.*")),
            Step("s2", b"SUB > 2\r\n", no_subscription(">")),
            Step("s2", b"SUB s2.b.* 3\r\n" + publish("s2.b.c"), message("s2.b.c", 3)),
        ),
        log='Subscription Violation - Subject "s2.*", SID 1',
    ),
    Case(
        claim="subscribing to what is denied, where the rest is allowed",
        users='{user: s3, password: x, permissions: {subscribe: {deny: "s3.no.*"}}}',
        steps=(
            Step("s3", b"SUB s3.no.x 1\r\n", no_subscription("s3.no.x")),
            Step("s3", b"SUB s3.no.* 2\r\n", no_subscription("s3.no.*")),
            Step("s3", b"SUB s3.yes 3\r\n" + publish("s3.yes"), message("s3.yes", 3)),
        ),
        log='Subscription Violation - Subject "s3.no.*", SID 2',
    ),
    Case(
        claim="subscribing to what is both allowed and denied: deny wins",
        users='{user: s4, password: x, permissions: {subscribe: {allow: "s4.>", deny: "s4.no"}}}',
        steps=(Step("s4", b"SUB s4.no 1\r\n", no_subscription("s4.no")),),
        log='Subscription Violation - Subject "s4.no", SID 1',
    ),
    Case(
        claim="subscribing to a wildcard that is wider than what is denied: let in, and what is denied is left out",
        users='{user: s5, password: x, permissions: {subscribe: {deny: "s5.no"}}}',
        steps=(
            Step("s5", b"SUB s5.* 1\r\n"),
            Step("s5", publish("s5.no") + publish("s5.yes"), message("s5.yes", 1)),
        ),
    ),
    Case(
        claim="the same with `>`, several subscriptions and a queue group",
        users='{user: s6, password: x, permissions: {subscribe: {deny: ["s6.no", "s6.*.no"]}}}',
        steps=(
            Step("s6", b"SUB s6.a.> 1\r\nSUB s6.a.b 2\r\nSUB s6.> q 3\r\n"),
            Step("s6", publish("s6.no") + publish("s6.a.no") + publish("s6.b.no")),
            Step("s6", publish("s6.b.b"), message("s6.b.b", 3)),
        ),
    ),
    Case(
        claim="another member of the group takes what one may not be given",
        users='{user: s7, password: x, permissions: {subscribe: {deny: "s7.no"}}}\n{user: s7b, password: x}',
        steps=(
            Step("s7", b"SUB s7.* q 1\r\n"),
            Step("s7b", b"SUB s7.* q 1\r\n"),
            Step("s7b", publish("s7.no") * 3, message("s7.no", 1) * 3),
        ),
    ),
    Case(
        claim="a subscription with an end counts only what was delivered",
        users='{user: s8, password: x, permissions: {subscribe: {deny: "s8.no"}}}',
        steps=(
            Step("s8", b"SUB s8.* 1\r\nUNSUB 1 2\r\n"),
            Step(
                "s8",
                publish("s8.no") + publish("s8.a") + publish("s8.no") + publish("s8.b") + publish("s8.c"),
                message("s8.a", 1) + message("s8.b", 1),
            ),
        ),
    ),
    Case(
        claim="a queue group where only another is allowed",
        users='{user: q1, password: x, permissions: {subscribe: "q1 good"}}',
        steps=(
            Step("q1", b"SUB q1 bad 1\r\n", no_subscription("q1", "bad")),
            Step("q1", b"SUB q1 good 2\r\n" + publish("q1"), message("q1", 2)),
        ),
        log='Subscription Violation - Subject "q1", Queue: "bad", SID 1',
    ),
    Case(
        claim="subscribing plainly where only a queue group is allowed",
        users='{user: q2, password: x, permissions: {subscribe: "q2 good"}}',
        steps=(Step("q2", b"SUB q2 1\r\n", no_subscription("q2")),),
        log='Subscription Violation - Subject "q2", SID 1',
    ),
    Case(
        claim="queue groups that a wildcard names",
        users='{user: q3, password: x, permissions: {subscribe: ["q3 v1.*", "q3.> v2.>"]}}',
        steps=(
            Step("q3", b"SUB q3 v1.a 1\r\nSUB q3.x v2.a.b 2\r\n"),
            Step("q3", b"SUB q3 v2.a 3\r\n", no_subscription("q3", "v2.a")),
        ),
        log='Subscription Violation - Subject "q3", Queue: "v2.a", SID 3',
    ),
    Case(
        claim="a subject that is allowed plainly and for one group: plain, or that group",
        users='{user: q4, password: x, permissions: {subscribe: ["q4", "q4 good"]}}',
        steps=(
            Step("q4", b"SUB q4 1\r\nSUB q4 good 2\r\n"),
            Step("q4", b"SUB q4 bad 3\r\n", no_subscription("q4", "bad")),
        ),
        log='Subscription Violation - Subject "q4", Queue: "bad", SID 3',
    ),
    Case(
        claim="a queue group that is denied",
        users='{user: q5, password: x, permissions: {subscribe: {deny: "q5 bad"}}}',
        steps=(
            Step("q5", b"SUB q5 bad 1\r\n", no_subscription("q5", "bad")),
            Step("q5", b"SUB q5 2\r\nSUB q5 good 3\r\n" + publish("q5"), message("q5", 2) + message("q5", 3)),
        ),
        log='Subscription Violation - Subject "q5", Queue: "bad", SID 1',
    ),
    Case(
        claim="a wildcard in a group that is denied for one of its subjects: that subject is left out",
        users='{user: q6, password: x, permissions: {subscribe: {deny: "q6.no bad"}}}',
        steps=(
            Step("q6", b"SUB q6.* bad 1\r\n"),
            Step("q6", publish("q6.no") + publish("q6.yes"), message("q6.yes", 1)),
        ),
    ),
    Case(
        claim="a queue group of the server's own",
        users="{user: q7, password: x}",
        steps=(Step("q7", b"SUB q7 _sys_ 1\r\n", no_subscription("q7", "_sys_")),),
        log='Subscription Violation - Subject "q7", Queue: "_sys_", SID 1',
    ),
    Case(
        claim="a subject that is none, without an allow list",
        users="{user: s9, password: x, permissions: {subscribe: {deny: s9}}}",
        steps=(Step("s9", b"SUB s9..a 1\r\n", error("Invalid Subject")),),
    ),
    Case(
        claim="a subject that is none, with an allow list",
        users='{user: s10, password: x, permissions: {subscribe: ">"}}',
        steps=(Step("s10", b"SUB s10..a 1\r\n", no_subscription("s10..a")),),
        log='Subscription Violation - Subject "s10..a", SID 1',
    ),
    Case(
        claim="an empty allow list, which is no list",
        users="{user: s11, password: x, permissions: {subscribe: {allow: []}}}",
        steps=(Step("s11", b"SUB s11 1\r\n" + publish("s11"), message("s11", 1)),),
    ),
)
