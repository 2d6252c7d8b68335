"""`natsctl schema`: the documents of the JetStream API and of natsctl itself, as JSON schemas; no server is asked."""

from typing import TYPE_CHECKING

from natsctl.cli.verbs import Verb, lazy_modules

if TYPE_CHECKING:
    from natsctl.cli.schema import show, validate
else:
    show, validate = lazy_modules("natsctl.cli.schema", "show validate")

_STREAM = "io.nats.jetstream.api.v1.stream_configuration"

VERBS: tuple[Verb, ...] = (
    Verb(
        "ls, list, search, find",
        show.ls,
        answer="cli.schema.shapes:Described[]",
        examples=("natsctl schema ls stream", "natsctl schema ls --commands"),
    ),
    Verb(
        "info, show, view",
        show.info,
        answer="cli.schema.shapes:Schema",
        examples=("natsctl schema info stream_configuration --yaml", "natsctl schema info documents"),
    ),
    Verb(
        "validate, check",
        validate.validate,
        answer="cli.schema.shapes:Verdict",
        examples=("natsctl schema validate stream_configuration orders.json",),
    ),
    Verb(
        "request, req",
        validate.request,
        answer="cli.schema.shapes:Verdict",
        examples=("natsctl schema request '$JS.API.INFO'",),
    ),
)
