"""The table as a page for people, docs/permissions.md."""

from pathlib import Path
from typing import Final

from tests.support.permission_table import TABLE
from tests.support.permission_table.case import CLOSED, WAIT, Case

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
_COLUMNS: Final = "| case | configuration | what happens | connection | log line |\n| --- | --- | --- | --- | --- |\n"


def document() -> str:
    before, after = Path(__file__).with_suffix(".md").read_text(encoding="utf-8").split("<!-- table -->\n")
    tables = [f"\n## {title}\n\n{_COLUMNS}" + "".join(map(_row, cases)) for title, cases in TABLE.items()]
    return "".join([before, *tables, after, *(f"| `{subject}` | {why} |\n" for subject, why in REPLACING.items())])


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
