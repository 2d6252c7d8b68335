"""`natsctl schema`: JSON schemas of the JetStream API's documents and of natsctl's own, and checks of documents.

An id that begins with `io.nats.` is a document of the NATS protocols, one that begins with `io.natsctl.` is ours.
"""

from __future__ import annotations

import importlib
import inspect
import json as json_text
import os
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, get_origin

import msgspec
from msgspec import field

from natsctl.api.errors import ExitCode, NotFoundError, UnreachableError, UsageError, closest
from natsctl.api.model import Model
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Json
from natsctl.cli.framework.flags import Names as NamesFlag
from natsctl.cli.framework.nouns import every_command
from natsctl.cli.framework.parameters import Argument, ExitError, Option, as_usage_error
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import Verb, verb
from natsctl.cli.render.tables import Table, render_table
from natsctl.cli.render.text import body_text, safe
from natsctl.client.message import NO_RESPONDERS, DryRunError, Planned

Names = list[str]
"""Names, as `-n -j` and commands without details print them."""


class Described(Model, kw_only=True):
    """A kind of document, and the commands that print it with -j."""

    id: str
    description: str
    commands: list[str]


class Schema(Model, kw_only=True):
    """A JSON schema (draft 2020-12)."""

    schema: str = field(name="$schema")
    id: str = field(name="$id")


class Verdict(Model, kw_only=True):
    """Result of a validation: whether a document matches a schema, else the path and the reason."""

    id: str
    valid: bool
    path: str
    reason: str
    unknown: list[str]


class FailureDetail(Model, kw_only=True):
    """Failure of a command; unknown values are null."""

    code: int | None
    err_code: int | None
    description: str
    subject: str | None
    hint: str | None


class Failed(Model, kw_only=True):
    """The one line that a command with -j writes to stderr when it fails."""

    error: FailureDetail


class Unsent(Model, kw_only=True):
    """A message that would have been sent: `body` if it is JSON, else `data` (base64)."""

    subject: str
    headers: dict[str, list[str]] | None = None
    body: Any = None
    data: str | None = None


class DryRun(Model, kw_only=True):
    """Answer of a command with --dry-run and -j, instead of its usual one."""

    dry_run: bool
    requests: list[Unsent]
    effect: dict[str, Any]


DOCUMENTS_ID: Final = "io.natsctl.plan.v1.documents"


class Documents:
    """A document of desired streams, consumers and buckets, as validate, plan and apply read it."""

    @staticmethod
    def schema() -> dict[str, Any]:
        from natsctl.desired.documents.json_schema import document_schema

        return document_schema(DOCUMENTS_ID)

    @staticmethod
    def judge(document: Any) -> Verdict:
        from natsctl.desired.documents import read_text_documents

        _, faults = read_text_documents(json_text.dumps(document), "the document", os.environ)
        if not faults:
            return Verdict(id=DOCUMENTS_ID, valid=True, path="", reason="", unknown=[])
        return Verdict(id=DOCUMENTS_ID, valid=False, path=faults[0].place.path, reason=faults[0].reason, unknown=[])


API = "io.nats.jetstream.api.v1."
OURS = "io.natsctl."
_CONTRACT = ("stream", "consumer", "account", "requests", "answers", "advisories", "catalogue")
_NAMES = {
    "StreamConfig": API + "stream_configuration",
    "ConsumerConfig": API + "consumer_configuration",
    "StreamTemplateConfig": API + "stream_template_configuration",
    "PubAck": API + "pub_ack_response",
    "PullRequest": API + "consumer_getnext_request",
    "ApiError": API + "error",
}
"""Types with an id that does not follow from the tag or the name."""
_ROOMS = ("cli", "client", "spark")
_IDS = {
    "natsctl.desired.documents.files:FilesWritten": OURS + "export.v1.files_written",
    "natsctl.desired.export:PlainDocument": OURS + "export.v1.plain_document",
    "natsctl.desired.export:TypedDocument": OURS + "export.v1.typed_document",
    "natsctl.desired.plan:SavedPlan": OURS + "saved.v1.saved_plan",
    "client.latency:Trips": OURS + "rtt.v1.trips",
    "cli.spark:SparkServer": OURS + "shapes.v1.spark_server",
    "cli.spark:WarmStart": OURS + "shapes.v1.warm_start",
    "spark.files.file_export:Exported": OURS + "export.v1.exported",
    "spark.stream_report:DeepReport": OURS + "report.v1.deep_report",
}
"""Ids that do not follow from the module of a type: they stay when a type moves."""
_EVERYWHERE = ("schema:Failed", "schema:DryRun", "schema:Names")
"""Documents that every command may print."""


def kinds_of(answer: str) -> list[tuple[str, str]]:
    return [(_id(bare := one.rstrip("[]*")), one[len(bare) :]) for one in answer.split("|") if one]


def _type(bare: str) -> Any:
    """Return the type that a verb's `answer` names; raises LookupError for one that does not exist."""
    module, colon, name = bare.rpartition(":")
    if colon:
        first = module.partition(".")[0]
        package = "" if first == "natsctl" else "natsctl." if first in _ROOMS else "natsctl.cli."
        return getattr(importlib.import_module(package + module), name)
    for part in _CONTRACT:
        # An enumeration may have the name of a document.
        found = getattr(importlib.import_module(f"natsctl.api.{part}"), bare, None)
        if isinstance(found, msgspec.StructMeta):
            return found
    raise LookupError(f"no type is called {bare}")


def _id(bare: str) -> str:
    module, colon, name = bare.rpartition(":")
    if not colon:
        tag = _tag(_type(bare))
        return tag or _NAMES.get(name) or API + _snake(name)
    if bare in _IDS:
        return _IDS[bare]
    below = [one for one in module.split(".") if one not in _ROOMS]
    nouns = below[:-1] or below
    return OURS + ".".join([*nouns, "v1", _snake(name)])


def _tag(kind: Any) -> str:
    """Return the `type` in documents of a type of the contract, or ""."""
    tag = kind.__struct_config__.tag if hasattr(kind, "__struct_config__") else None
    return tag if isinstance(tag, str) and tag.startswith("io.") else ""


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


@cache
def kinds() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in _CONTRACT:
        module = importlib.import_module(f"natsctl.api.{part}")
        own = [one for one in vars(module).values() if getattr(one, "__module__", "") == module.__name__]
        for kind in own:
            if isinstance(kind, msgspec.StructMeta) and (
                _tag(kind) or kind.__name__ in _NAMES or kind.__name__.endswith("Request")
            ):
                found[_id(kind.__name__)] = kind
    answers = [one for _, command in every_command() for one in command.answer.split("|") if one]
    for bare in [*(answer.rstrip("[]*") for answer in answers), *_EVERYWHERE]:
        found[_id(bare)] = _type(bare)
    found[DOCUMENTS_ID] = Documents
    return dict(sorted(found.items()))


@cache
def printed_by() -> dict[str, list[str]]:
    """Return the commands that print a kind of document with -j, by its id; an array of them counts as the kind."""
    found: dict[str, list[str]] = {}
    for path, command in every_command():
        for id, _ in kinds_of(command.answer):
            found.setdefault(id, []).append(path)
    return found


def full_id(given: str) -> str:
    bare = given.removesuffix("[]")
    known = kinds()
    ends = [one for one in known if one == bare or one.endswith(f".{bare}")]
    exact = [end for end in ends if end == bare or end == API + bare]
    if len(exact or ends) == 1:
        return (exact or ends)[0] + given[len(bare) :]
    short = {one.rpartition(".")[2]: one for one in known}
    near = ends or [short.get(one, one) for one in closest(bare, [*known, *short])]
    hint = f"did you mean {' or '.join(near)}?" if near else "natsctl schema ls shows them"
    raise NotFoundError(f"no schema has the id {given}", hint=hint)


def schema_of(id: str) -> dict[str, Any]:
    """Return the JSON schema of a kind of document, or of an array of them where the id ends in `[]`."""
    bare = id.removesuffix("[]")
    kind = kinds()[bare]
    if kind is Documents:
        return Documents.schema()
    document = msgspec.json.schema(list[kind] if bare != id else kind)  # type: ignore[valid-type]  # a type by its value
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": id, **document}


_FAULT = re.compile(r"(?P<reason>.*?)(?: - at `(?P<path>.*)`)?", re.DOTALL)


def judge(document: Any, id: str) -> Verdict:
    bare = id.removesuffix("[]")
    kind: Any = kinds()[bare]
    if kind is Documents:
        return Documents.judge(document)
    try:
        msgspec.convert(document, list[kind] if bare != id else kind)
    except msgspec.ValidationError as failure:
        match = _FAULT.fullmatch(str(failure))
        reason, path = (match["reason"], match["path"] or "$") if match else (str(failure), "$")
        return Verdict(id=id, valid=False, path=path, reason=reason.replace("`", ""), unknown=[])
    items = document if bare != id else [document]
    unknown = [path for item in items for path in _unknown(item, msgspec.inspect.type_info(kind), "$")]
    return Verdict(id=id, valid=True, path="", reason="", unknown=unknown)


def _unknown(value: Any, kind: Any, path: str) -> Iterator[str]:
    if isinstance(kind, msgspec.inspect.Metadata):
        kind = kind.type
    if isinstance(kind, msgspec.inspect.UnionType):
        structured = [
            one for one in kind.types if isinstance(one, msgspec.inspect.StructType | msgspec.inspect.ListType)
        ]
        kind = structured[0] if len(structured) == 1 else kind
    if isinstance(kind, msgspec.inspect.StructType) and isinstance(value, dict):
        fields = {field.encode_name: field.type for field in kind.fields}
        for key, below in value.items():
            if key in fields:
                yield from _unknown(below, fields[key], f"{path}.{key}")
            elif key != kind.tag_field:
                yield f"{path}.{key}"
    elif isinstance(kind, msgspec.inspect.ListType) and isinstance(value, list):
        for index, below in enumerate(value):
            yield from _unknown(below, kind.item_type, f"{path}[{index}]")
    elif isinstance(kind, msgspec.inspect.DictType) and isinstance(value, dict):
        for key, below in value.items():
            yield from _unknown(below, kind.value_type, f"{path}.{key}")


def render_kinds(found: Sequence[Described], *, commands: bool) -> Table:
    rows = [(one.id, ", ".join(one.commands) if commands else one.description) for one in found]
    return render_table("Schemas", ("ID", "Printed By" if commands else "Description"), rows)


_PLAIN: Final = {list: "An array; see the schema for its items.", dict: "An object; see the schema for its keys."}


def ls(
    match: Annotated[str, Argument(metavar="MATCH", help="regular expression that the ids must match")] = "",
    commands: Annotated[
        bool, Option("--commands", help="only the output of -j, with the commands that print it")
    ] = False,
    names: NamesFlag = False,
    json: Json = False,
) -> None:
    """List the kinds of documents that have a schema."""
    try:
        pattern = re.compile(match, re.IGNORECASE)
    except re.error as failure:
        raise UsageError(f"{match!r} is not a regular expression: {failure}") from failure
    printed = printed_by()
    found = [
        Described(id=id, description=_first_line(kind), commands=printed.get(id, []))
        for id, kind in kinds().items()
        if pattern.search(id) and (not commands or id in printed)
    ]
    ids = [one.id for one in found] if names else None
    output.show_list(found, lambda: render_kinds(found, commands=commands), "No schema matches", json=json, names=ids)


def _first_line(kind: Any) -> str:
    """Return the first line of a kind's docstring; arrays and maps have fixed texts instead of Python's."""
    plain = _PLAIN.get(get_origin(kind) or kind)
    return plain or inspect.cleandoc(kind.__doc__ or "").split("\n")[0]


def info(
    id: Annotated[str, Argument(metavar="ID", help="the id, or its end such as stream_configuration")],
    yaml: Annotated[bool, Option("--yaml", help="as YAML")] = False,
    json: Json = False,
) -> None:
    """Show the JSON schema of a kind of document; with `[]` after the id, the schema of an array."""
    schema = schema_of(full_id(id))
    if not yaml or json:
        output.emit_json(schema)
        return
    import yaml as writer

    output.emit(writer.safe_dump(schema, sort_keys=False, allow_unicode=True).rstrip("\n"))


MAX_BYTES = 64 * 1024 * 1024
"""Limit of what `validate` reads: the longest answer of a server is below it."""


def validate(
    id: Annotated[str, Argument(metavar="ID", help="the id, or its end such as stream_configuration")],
    file: Annotated[str, Argument(metavar="FILE", help="the JSON document; - for stdin")],
    strict: Annotated[bool, Option("--strict", help="unknown keys are errors")] = False,
    json: Json = False,
) -> None:
    """Check a JSON document against a schema; ends with 1 with the path and the reason if it does not match."""
    verdict = judge(_parsed(_read(file), file), full_id(id))
    _show_verdict(verdict, file, strict=strict, json=json)


def request(
    session: Session,
    subject: Annotated[str, Argument(metavar="SUBJECT", help="the subject to ask")],
    body: Annotated[str, Argument(metavar="BODY", help="the body of the request")] = "{}",
    schema: Annotated[str, Option("--schema", metavar="ID", help="schema of the answer [from its type]")] = "",
    show: Annotated[bool, Option("--show", help="also show the answer")] = False,
    json: Json = False,
) -> None:
    """Send a request and check the answer against the schema of its `type`, or of --schema."""
    if session.dry_run:
        raise DryRunError(Planned(subject, body.encode()))
    message = session.run(lambda manager: manager.connection.request(subject, body.encode()))
    if message.status == NO_RESPONDERS:
        raise UnreachableError(f"no responders on {subject}")
    answer = _parsed(message.body, f"the answer on {subject}")
    said = str(answer.get("type", "")) if isinstance(answer, dict) else ""
    if not schema and said not in kinds():
        raise UsageError(f"the answer on {subject} does not name its type", hint="give --schema ID")
    if show:
        output.note(body_text(message.body))
    _show_verdict(judge(answer, full_id(schema or said)), f"the answer on {subject}", strict=False, json=json)


def _show_verdict(verdict: Verdict, what: str, *, strict: bool, json: bool) -> None:
    if strict and verdict.valid and verdict.unknown:
        verdict.valid, verdict.path, verdict.reason = False, verdict.unknown[0], "unknown key"
    if json:
        output.emit_json(verdict)
    elif verdict.valid:
        output.emit(f"{safe(what)} is a valid {verdict.id}")
    else:
        output.emit(safe(f"{what}: {verdict.path}: {verdict.reason}"))
    if verdict.unknown and not json:
        output.note(f"warning: unknown keys: {', '.join(safe(path) for path in verdict.unknown)}")
    if not verdict.valid:
        raise ExitError(ExitCode.FAILED)


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read(MAX_BYTES)
    with as_usage_error(file), Path(file).open("rb") as opened:
        return opened.read(MAX_BYTES)


def _parsed(raw: bytes, what: str) -> Any:
    with as_usage_error(f"{what}: not JSON"):
        return json_text.loads(raw)


_STREAM = "io.nats.jetstream.api.v1.stream_configuration"

VERBS: tuple[Verb, ...] = (
    verb(
        "ls, list, search, find",
        ls,
        "cli.schema:Described[]",
        "natsctl schema ls stream",
        "natsctl schema ls --commands",
    ),
    verb(
        "info, show, view",
        info,
        "cli.schema:Schema",
        "natsctl schema info stream_configuration --yaml",
        "natsctl schema info documents",
    ),
    verb("validate, check", validate, "cli.schema:Verdict", "natsctl schema validate stream_configuration orders.json"),
    verb("request, req", request, "cli.schema:Verdict", "natsctl schema request '$JS.API.INFO'"),
)
