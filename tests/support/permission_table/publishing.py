"""Cases of publishing and of answering: which subjects a client may publish to."""

from __future__ import annotations

from typing import Final

from tests.support.permission_table.case import WAIT, Case, Step, message, no_publish, no_reply, publish

PUBLISHING: Final = (
    Case(
        claim="publishing what is not in the allow list",
        users='{user: p1, password: x, permissions: {publish: ["p1.a", "p1.b.*"]}}',
        steps=(
            Step("p1", publish("p1.c"), no_publish("p1.c")),
            Step(
                "p1", b"SUB p1.> 1\r\n" + publish("p1.a") + publish("p1.b.c"), message("p1.a", 1) + message("p1.b.c", 1)
            ),
        ),
        log='Publish Violation - Subject "p1.c"',
    ),
    Case(
        claim="publishing what is denied, where the rest is allowed",
        users='{user: p2, password: x, permissions: {publish: {deny: "p2.no.>"}}}',
        steps=(
            Step("p2", publish("p2.no.x"), no_publish("p2.no.x")),
            Step("p2", b"SUB p2.> 1\r\n" + publish("p2.yes"), message("p2.yes", 1)),
        ),
        log='Publish Violation - Subject "p2.no.x"',
    ),
    Case(
        claim="publishing what is both allowed and denied: deny wins",
        users='{user: p3, password: x, permissions: {publish: {allow: "p3.>", deny: "p3.no"}}}',
        steps=(Step("p3", publish("p3.no"), no_publish("p3.no")),),
        log='Publish Violation - Subject "p3.no"',
    ),
    Case(
        claim="publishing on a wildcard that an allowed pattern covers, as plain text",
        users='{user: p4, password: x, permissions: {publish: "p4.*"}}',
        steps=(
            Step("p4", b"SUB p4.> 1\r\n" + publish("p4.*"), message("p4.*", 1)),
            Step("p4", publish("p4.>"), message("p4.>", 1)),
            Step("p4", publish("p4.>.x"), no_publish("p4.>.x")),
        ),
        log='Publish Violation - Subject "p4.>.x"',
    ),
    Case(
        claim="publishing on a subject with an empty token, which no allowed pattern matches",
        users='{user: p5, password: x, permissions: {publish: ">"}}',
        steps=(Step("p5", publish("p5..x"), no_publish("p5..x")),),
        log='Publish Violation - Subject "p5..x"',
    ),
    Case(
        claim="a quote and a backslash in the refused subject",
        users="{user: p6, password: x, permissions: {publish: p6}}",
        steps=(Step("p6", publish('p6."a\\b"'), no_publish('p6.\\"a\\\\b\\"')),),
        log='Publish Violation - Subject "p6.\\"a\\\\b\\""',
    ),
    Case(
        claim="a refused message in verbose mode: an error instead of +OK",
        users="{user: p7, password: x, permissions: {publish: p7}}",
        clients={"p7": {"user": "p7", "pass": "x", "verbose": True}},
        steps=(Step("p7", publish("p7.no") + publish("p7"), b"+OK\r\n" + no_publish("p7.no") + b"+OK\r\n"),),
        log='Publish Violation - Subject "p7.no"',
    ),
    Case(
        claim="a request to a subject that is denied",
        users="{user: p8, password: x, permissions: {publish: {deny: p8}}}",
        steps=(Step("p8", b"SUB inbox.p8 1\r\n" + publish("p8", "inbox.p8"), no_publish("p8")),),
        log='Publish Violation - Subject "p8"',
    ),
    Case(
        claim="publishing on a subject of the server's own",
        users="{user: p9, password: x}",
        steps=(
            Step("p9", publish("_GR_.x.y"), no_publish("_GR_.x.y")),
            Step("p9", publish("$GR.x.y"), no_publish("$GR.x.y")),
            Step("p9", publish("$NRG.x"), no_publish("$NRG.x")),
        ),
        log='Publish Violation - Subject "$NRG.x"',
    ),
    Case(
        claim="asking for answers on a subject of the server's own",
        users="{user: p10, password: x}",
        steps=(
            Step("p10", publish("p10", "_R_.x"), no_reply("_R_.x")),
            Step("p10", publish("p10", "$JS.ACK.x"), no_reply("$JS.ACK.x")),
            Step("p10", publish("p10", "_GR_.x"), no_reply("_GR_.x")),
        ),
        log='Publish Violation - Reply "$JS.ACK.x"',
    ),
    Case(
        claim="permissions for those who have none of their own (`default_permissions`)",
        config="authorization { default_permissions: {publish: d.>}\n"
        " users: [{user: d1, password: x}, {user: d2, password: x, permissions: {publish: d2}}] }",
        steps=(
            Step("d1", publish("d2"), no_publish("d2")),
            Step("d2", b"SUB d2 1\r\n" + publish("d2"), message("d2", 1)),
        ),
        log='Publish Violation - Subject "d2"',
    ),
    Case(
        claim="an empty allow list, which is no list",
        users="{user: p11, password: x, permissions: {publish: {allow: []}}}",
        steps=(Step("p11", b"SUB p11 1\r\n" + publish("p11"), message("p11", 1)),),
    ),
    Case(
        claim="publishing on a subject that the account maps: permissions are for where the mapping leads",
        config='accounts { M { mappings: {"m.*": "to.{{wildcard(1)}}"}, users: [\n'
        ' {user: mapped1, password: x, permissions: {publish: {allow: "m.>"}}},\n'
        ' {user: mapped2, password: x, permissions: {publish: {deny: "to.no"}}} ] } }',
        steps=(
            Step("mapped1", b"SUB other 1\r\n"),  # nats-server takes up mappings after CONNECT has been read
            Step("mapped1", publish("m.a"), no_publish("to.a")),
            Step("mapped2", b"SUB to.* 1\r\n"),
            Step("mapped2", publish("m.a"), message("to.a", 1)),
            Step("mapped2", publish("m.no"), no_publish("to.no")),
        ),
        log='Publish Violation - Subject "to.no"',
    ),
    Case(
        claim="asking JetStream by the name of its domain for what is denied without the name",
        config="jetstream { domain: dom }\naccounts { J { jetstream: enabled, users: [\n"
        ' {user: domain1, password: x, permissions: {publish: {deny: "$JS.API.STREAM.DELETE.*"}}},\n'
        ' {user: domain2, password: x, permissions: {publish: {allow: "$JS.dom.API.>"}}} ] } }',
        steps=(
            Step("domain1", publish("$JS.dom.API.STREAM.DELETE.S"), no_publish("$JS.API.STREAM.DELETE.S")),
            Step("domain2", publish("$JS.dom.API.INFO"), no_publish("$JS.API.INFO")),
        ),
        log='Publish Violation - Subject "$JS.API.STREAM.DELETE.S"',
    ),
)


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
