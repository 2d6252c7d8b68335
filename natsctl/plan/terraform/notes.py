"""What of a configuration has no counterpart in documents, and what to do instead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from natsctl.plan.terraform.module import SCHEMAS, Module
from natsctl.plan.terraform.syntax import Block

_ADVICE: Final = {
    "provider": "the server and the login are given by --server, --creds or a context (natsctl context add)",
    "terraform": "documents need no backend: what an account has is read from the server",
    "output": "natsctl stream info and consumer info show what there is, with -j for programs",
    "module": "convert the folder of the module by itself, with its variables as --var",
    "data": "what it would ask for is not known here",
    "import": "what exists is adopted by natsctl apply",
    "moved": "what exists is known by its name",
    "removed": "natsctl apply --prune removes what is no longer in the documents",
    "check": "natsctl plan and diff tell what differs",
}
_READ: Final = frozenset(("resource", "variable", "locals"))


def passed_over(module: Module) -> list[str]:
    """Return a note for every block that is skipped, in the order of the files."""
    return [f"{block.place.file}:{block.place.line}: {text}" for block in module.blocks for text in _told(block)]


def _told(block: Block) -> Iterator[str]:
    name = " ".join((block.type, *block.labels))
    if block.type == "resource" and block.labels:
        yield from _resource(block)
    elif block.type in _ADVICE:
        yield f"{name} is passed over: {_ADVICE[block.type]}"
    elif block.type not in _READ:
        yield f"{name} is passed over: it is not known here"


def _resource(block: Block) -> Iterator[str]:
    name, kind = ".".join(block.labels), block.labels[0]
    if kind == "jetstream_kv_entry":
        yield f"{name} is passed over: documents hold no keys, put it with natsctl kv put BUCKET KEY VALUE"
    elif kind not in SCHEMAS:
        known = "documents do not hold it" if kind.startswith("jetstream_") else "it is no resource of JetStream"
        yield f"{name} is passed over: {known}"
    ignored = any(one.name == "ignore_changes" for inner in block.blocks for one in inner.attributes)
    if ignored and kind in SCHEMAS:
        yield f"{name}: ignore_changes is passed over: a document is the whole configuration"
