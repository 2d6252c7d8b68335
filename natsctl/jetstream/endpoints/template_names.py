"""The names of the streams that a template creates.

Servers that had templates wrote `_` for each `.` of the subject: ORDERS.eu.new became ORDERS_eu_new. The specification
shows a template CLIENTS on CLIENT.* whose stream is CLIENTS_acme: where the template's name continues the literal head
of its subject, it stands for that head.
"""

from __future__ import annotations


def stream_name(template: str, pattern: str, subject: str) -> str:
    """Return the name of the stream for a `subject` that matches `pattern`, one of the template's subjects."""
    head = _literal_head(pattern)
    if head and template != head and template.startswith(head) and subject.startswith(head + "."):
        subject = template + subject[len(head) :]
    return subject.replace(".", "_").replace("/", "_").replace("\\", "_")


def _literal_head(pattern: str) -> str:
    """Return the tokens before the first wildcard, "" where there is none or no wildcard."""
    head: list[str] = []
    for token in pattern.split("."):
        if token in ("*", ">"):
            return ".".join(head)
        head.append(token)
    return ""
