"""Kinds of documents by id: the contract's types by the names that nats-server gives them, and natsctl's own.

An id that begins with `io.nats.` is a document of the NATS protocols, one that begins with `io.natsctl.` is ours.
"""

from __future__ import annotations

import importlib
import re
from functools import cache
from typing import Any

import msgspec

from natsctl.api.errors import NatsctlError
from natsctl.api.exit_codes import ExitCode
from natsctl.cli.commands import every_command
from natsctl.cli.schema import documents

API = "io.nats.jetstream.api.v1."
OURS = "io.natsctl."
_CONTRACT = ("stream", "consumer", "account", "messages", "requests", "answers", "advisories", "catalogue")
_NAMES = {
    "StreamConfig": API + "stream_configuration",
    "ConsumerConfig": API + "consumer_configuration",
    "StreamTemplateConfig": API + "stream_template_configuration",
    "PubAck": API + "pub_ack_response",
    "PullRequest": API + "consumer_getnext_request",
    "ApiError": API + "error",
}
"""Types whose id does not follow from the tag or the name."""
_ROOMS = ("cli", "client", "spark")
_IDS = {
    "natsctl.desired.documents.files:FilesWritten": OURS + "export.v1.files_written",
    "natsctl.desired.export:PlainDocument": OURS + "export.v1.plain_document",
    "natsctl.desired.export:TypedDocument": OURS + "export.v1.typed_document",
    "natsctl.desired.plan:SavedPlan": OURS + "saved.v1.saved_plan",
    "client.latency:Trips": OURS + "rtt.v1.trips",
    "cli.spark:SparkServer": OURS + "shapes.v1.spark_server",
    "cli.spark:WarmStart": OURS + "shapes.v1.warm_start",
    "spark.files.export:Exported": OURS + "export.v1.exported",
}
"""Ids that do not follow from the module of a type: they stay when a type moves."""
_EVERYWHERE = ("schema.shapes:Failed", "schema.shapes:DryRun", "schema.shapes:Names")
"""Documents that every command may print."""


class UnknownSchemaError(NatsctlError):
    """No kind of document has that id."""

    exit_code = ExitCode.NOT_FOUND


def kinds_of(answer: str) -> list[tuple[str, str]]:
    """Return the ids of what a verb's `answer` names, each with its `[]` or `*`."""
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
    """Return the id of a type by its name in an `answer`."""
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
    """Return the `type` that a document of the contract says of itself, or ""."""
    tag = kind.__struct_config__.tag if hasattr(kind, "__struct_config__") else None
    return tag if isinstance(tag, str) and tag.startswith("io.") else ""


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


@cache
def kinds() -> dict[str, Any]:
    """Return every kind of document by its id."""
    found: dict[str, Any] = {}
    for part in _CONTRACT:
        module = importlib.import_module(f"natsctl.api.{part}")
        own = [one for one in vars(module).values() if getattr(one, "__module__", "") == module.__name__]
        for kind in own:
            if isinstance(kind, msgspec.StructMeta) and (
                _tag(kind) or kind.__name__ in _NAMES or kind.__name__.endswith("Request")
            ):
                found[_id(kind.__name__)] = kind
    answers = [one for _, verb in every_command() for one in verb.answer.split("|") if one]
    for bare in [*(one.rstrip("[]*") for one in answers), *_EVERYWHERE]:
        found[_id(bare)] = _type(bare)
    found[documents.ID] = documents.Documents
    return dict(sorted(found.items()))


@cache
def printed_by() -> dict[str, list[str]]:
    """Return the commands that print a kind of document with -j, by its id; an array of them counts as the kind."""
    found: dict[str, list[str]] = {}
    for path, verb in every_command():
        for id, _ in kinds_of(verb.answer):
            found.setdefault(id, []).append(path)
    return found


def full_id(given: str) -> str:
    """Return the id that was given, or the only one that ends in it.

    Raises UnknownSchemaError with what may have been meant.
    """
    bare = given.removesuffix("[]")
    known = kinds()
    ends = [one for one in known if one == bare or one.endswith(f".{bare}")]
    exact = [one for one in ends if one == bare or one == API + bare]
    if len(exact or ends) == 1:
        return (exact or ends)[0] + given[len(bare) :]
    from natsctl.cli.suggest import closest

    short = {one.rpartition(".")[2]: one for one in known}
    near = ends or [short.get(one, one) for one in closest(bare, [*known, *short])]
    hint = f"did you mean {' or '.join(near)}?" if near else "natsctl schema ls shows them"
    raise UnknownSchemaError(f"no schema has the id {given}", hint=hint)


def schema_of(id: str) -> dict[str, Any]:
    """Return the JSON schema of a kind of document, or of an array of them where the id ends in `[]`."""
    bare = id.removesuffix("[]")
    kind = kinds()[bare]
    if kind is documents.Documents:
        return documents.Documents.schema()
    document = msgspec.json.schema(list[kind] if bare != id else kind)  # type: ignore[valid-type]  # a type by its value
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": id, **document}
