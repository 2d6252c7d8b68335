"""`natsctl convert`: what was written for other tools, as documents of natsctl."""

from natsctl.cli.verbs import Verb

_ANSWER = "plan.export.export:PlainDocument|plan.export.export:TypedDocument[]|plan.export.folder:FilesWritten"

VERBS = (
    Verb(
        "terraform, tf, hcl",
        "desired.convert.forms:terraform",
        answer=_ANSWER,
        examples=(
            "natsctl convert terraform orders.tf -o orders.yaml",
            "natsctl convert terraform ./infrastructure --var env=staging",
        ),
    ),
    Verb(
        "documents, kubernetes, k8s, config",
        "desired.convert.forms:documents",
        answer=_ANSWER,
        examples=("natsctl convert documents deploy/*.yml --output streams/",),
    ),
)
