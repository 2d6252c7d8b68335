"""What may be published."""

from __future__ import annotations

from typing import Final

from tests.support.permission_table.case import Case, Step, message, no_publish, no_reply, publish

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
