"""`natsctl explain`: why a consumer, stream, subject or message behaves as it does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from natsctl.api.errors import ExitCode, NatsctlError
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import ConsumerName, Json, StreamName
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.resolve import pick_consumer, pick_stream, suggesting
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import verb
from natsctl.cli.render.page import Page
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from natsctl.client.explain.explanation import Explanation
    from natsctl.client.manager import Manager

Check = Annotated[bool, Option("--check", help="end with status 1 if a cause was found")]


def consumer(
    session: Session,
    stream: StreamName = None,
    consumer: ConsumerName = None,
    check: Check = False,
    json: Json = False,
) -> int:
    """Explain why a consumer delivers nothing, too little, or the same message again.

    Nothing is changed on the server: messages are read without a consumer.
    """
    from natsctl.client.explain.consumer import explain_consumer

    name = pick_stream(session, stream, all_streams=True)
    chosen = pick_consumer(session, name, consumer)
    return _explain(session, lambda manager: explain_consumer(manager, name, chosen), check, json, name)


def stream(session: Session, stream: StreamName = None, check: Check = False, json: Json = False) -> int:
    """Explain why a stream refuses messages, misses them or loses them."""
    from natsctl.client.explain.stream import explain_stream

    name = pick_stream(session, stream, all_streams=True)
    return _explain(session, lambda manager: explain_stream(manager, name), check, json)


def subject(
    session: Session,
    subject: Annotated[str, Argument(metavar="SUBJECT", help="a subject, such as orders.new, or a pattern")],
    check: Check = False,
    json: Json = False,
) -> int:
    """Explain where messages on a subject go: streams, consumers, copies and subscribers.

    Who is subscribed is shown to users of the system account only.
    """
    from natsctl.client.explain.subject import explain_subject

    return _explain(session, lambda manager: explain_subject(manager, subject), check, json)


def message(
    session: Session,
    stream: StreamName,
    seq: Annotated[int, Argument(metavar="SEQ", help="the message's sequence number", min=1)],
    check: Check = False,
    json: Json = False,
) -> int:
    """Explain the state of a message for each consumer, when it expires, or why it is missing."""
    from natsctl.client.explain.message import explain_message

    name = pick_stream(session, stream, all_streams=True)
    return _explain(session, lambda manager: explain_message(manager, name, seq), check, json, name)


def _explain(
    session: Session, work: Callable[[Manager], Awaitable[Explanation]], check: bool, json: bool, stream: str = ""
) -> int:
    with suggesting(session, stream):
        explanation = session.run(work)
    output.emit_json(msgspec.to_builtins(explanation)) if json else output.show_page(explanation_page(explanation))
    return NatsctlError.exit_code if check and explanation.causes else ExitCode.DONE


def explanation_page(explanation: Explanation) -> Page:
    page = Page(f"{safe(explanation.about)}: {safe(explanation.verdict)}")
    for number, cause in enumerate(explanation.causes):
        section = page.section("" if number == 0 else f"Also: {safe(cause.text)}")
        section.many("Evidence", [safe(text) for text in cause.evidence])
        section.maybe("Next", safe(cause.next))
    for title, texts in (
        ("State", explanation.state),
        ("Consumers", _views(explanation)),
        ("Checked and fine", explanation.fine),
        ("Not visible from outside", explanation.unknown),
    ):
        section = page.section(title)
        for text in texts:
            section.line(safe(text))
    return page


def _views(explanation: Any) -> list[str]:
    views = getattr(explanation, "consumers", ())
    return [f"{view.consumer}: {view.state}, {view.evidence}" for view in views]


VERBS = (
    verb(
        "consumer, con, c",
        consumer,
        "client.explain.explanation:Explanation",
        "natsctl explain consumer ORDERS NEW",
        "natsctl explain consumer ORDERS NEW --check -j",
    ),
    verb("stream, str, s", stream, "client.explain.explanation:Explanation", "natsctl explain stream ORDERS"),
    verb("subject, sub", subject, "client.explain.subject:SubjectExplanation", "natsctl explain subject ORDERS.new"),
    verb("message, msg, m", message, "client.explain.message:MessageExplanation", "natsctl explain message ORDERS 17"),
)
