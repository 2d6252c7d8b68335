"""The table as a page for people, docs/permissions.md."""

from __future__ import annotations

from typing import Final

from tests.support.permission_table import TABLE
from tests.support.permission_table.case import CLOSED, WAIT, Case

_HEAD: Final = """\
# Permissions, limits and logins: what clients see

`tests/server/test_permissions_reference.py` runs every line on natsctl's server and on nats-server. This page is
generated from the same table: `python -m tests.support.permission_table > docs/permissions.md`.

Clients connect as the users of the configuration, with the password `x`; where there are several, `user:` names the one
that acts. `→` is what the client sends, `←` what it receives up to the answer to a PING; without an arrow it receives
nothing. Messages consist of one `x`, and `<answer>` stands for any answer of JetStream. The log line is an `[ERR]` line
and begins with `host:port - cid:N - "account/user:name" - `, without the user if the login failed.
"""
REPLACING: Final = {
    "$JS.API.INFO": "limits and the level of the API",
    "$JS.API.STREAM.NAMES": "other streams on its subjects, and replacements that were interrupted",
    "$JS.API.STREAM.*.ORDERS": "INFO, UPDATE, SNAPSHOT, DELETE and RESTORE of the stream",
    "$JS.API.CONSUMER.LIST.ORDERS": "the consumers that have to come back",
    "$JS.API.CONSUMER.*.ORDERS.>": "CREATE of consumers that the documents change, and replicas as they were",
    "$JS.API.STREAM.*.natsctl-replaced-ORDERS": "CREATE, INFO, UPDATE and DELETE of the stream that holds the messages",
    "$JS.API.STREAM.MSG.GET.natsctl-replaced-ORDERS": "reading them, after an interruption",
    "natsctl.replaced.>": "storing them",
    "$JS.SNAPSHOT.ACK.ORDERS.>": "flow control of the snapshot",
    "$JS.SNAPSHOT.RESTORE.ORDERS.>": "the data of the restore",
    "_INBOX.>": "asking whether the process still lives that has begun a replacement",
}
"""Subjects that `apply` publishes to where it replaces the stream ORDERS with its messages, and what for."""
_BLOCKS: Final = """
## Reading a stream in blocks

`$JS.API.STREAM.BLOCKS.ORDERS` is a subject of natsctl's server alone: a user that may publish to it reads every message
of the stream ORDERS, as by `$JS.API.STREAM.SNAPSHOT.ORDERS` or a consumer without a filter, and nothing that was
deleted. `$JS.API.STREAM.*.ORDERS` and `$JS.API.STREAM.>` include it: deny it to users that may ask for some subjects of
a stream and not for the others. Spark reads by a consumer where it is denied; the server logs one violation for each
task.
"""
_REPLACING_HEAD: Final = """
## Replacing a stream with its messages

`natsctl apply --allow-replace --keep-messages` makes a stream `natsctl-replaced-ORDERS` beside the stream ORDERS, which
takes `natsctl.replaced.TOKEN.data`; ORDERS itself listens on `natsctl.replaced.TOKEN.quiet` meanwhile, and the process
on an inbox. A user that does this, and can finish it after an interruption, subscribes to `_INBOX.>` and publishes to
these subjects; `tests/cli/desired/test_permissions.py` does it with them and no others. The account needs room for a
second copy of the stream, and for one stream more.

| subject | what for |
| --- | --- |
"""
_COLUMNS: Final = "| case | configuration | what happens | connection | log line |\n| --- | --- | --- | --- | --- |\n"


def document() -> str:
    parts = [_HEAD]
    for title, cases in TABLE.items():
        parts.append(f"\n## {title}\n\n{_COLUMNS}" + "".join(_row(case) for case in cases))
    parts.append(_BLOCKS)
    parts.append(_REPLACING_HEAD + "".join(f"| `{subject}` | {why} |\n" for subject, why in REPLACING.items()))
    return "".join(parts)


def _row(case: Case) -> str:
    users = "<br>".join(_code(line) for line in (case.users or case.config).splitlines() if line.strip())
    happens = "<br>".join(_step(case, *step) for step in case.steps)
    stays = "stays" if case.stays else "closes"
    return f"| {case.claim} | {users} | {happens} | {stays} | {_code(case.log)} |\n"


def _step(case: Case, who: str, says: bytes, hears: bytes) -> str:
    if who == WAIT:
        return f"{says.decode()} ms pass"
    several = len({step.who for step in case.steps}) > 1
    said, heard = _lines(says), _lines(hears.replace(CLOSED, b""))
    text = f"{who}: " if several else ""
    text += f"→ {_code(said)}" if said else "connects"
    return f"{text} ← {_code(heard)}" if heard else text


def _lines(data: bytes) -> str:
    """Return operations as one line; the body of a message is left out."""
    lines, shown = data.decode().split("\r\n"), []
    while lines:
        line = lines.pop(0)
        if (
            line.startswith(("PUB ", "MSG ", "HPUB "))
            and lines
            and lines[0]
            and not lines[0].startswith(("PUB ", "-ERR"))
        ):
            body = lines.pop(0)
            line += "" if body == "x" else f" {body}"
        if line:
            shown.append(line)
    return "; ".join(shown)


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`" if text else ""
