"""Documents from Terraform and Kubernetes configurations: `natsctl convert`."""

from __future__ import annotations

import os
from typing import Annotated

from natsctl.cli.desired.export import WriteFlags, write
from natsctl.cli.desired.sources import DocumentFlags
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Json
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import verb
from natsctl.cli.render.text import safe
from natsctl.desired.assets import DocumentSet

_ANSWER = (
    "natsctl.desired.export:PlainDocument|natsctl.desired.export:TypedDocument[]"
    "|natsctl.desired.documents.files:FilesWritten"
)


def terraform(
    session: Session,
    how: WriteFlags,
    paths: Annotated[
        list[str],
        Argument(metavar="PATH", help=".tf and .tf.json files, folders of them, states as JSON"),
    ],
    variables: Annotated[
        list[str] | None,
        Option("--var", metavar="NAME=VALUE", help="the value of a variable"),
    ] = None,
    variable_files: Annotated[
        list[str] | None,
        Option("--var-file", metavar="FILE", help="values of variables, .tfvars"),
    ] = None,
    json: Json = False,
) -> None:
    """Write the streams, consumers and buckets of Terraform's JetStream provider as documents for natsctl apply.

    They have what Terraform would have created, its defaults included; resources that prevent_destroy protects are
    protected. Values that the files do not have and that cannot be computed are reported by file and line; a
    state (`terraform show -json`) has all values.
    """
    from natsctl.desired.terraform import read_terraform

    wanted = read_terraform(paths, os.environ, variables=variables or (), variable_files=variable_files or ())
    _write(session, wanted, how, json)


def documents(
    session: Session,
    named: DocumentFlags,
    how: WriteFlags,
    json: Json = False,
) -> None:
    """Write documents of any form in one form: manifests of the Kubernetes controller, --config files, info -j."""
    from natsctl.desired.differ import as_created

    _write(session, as_created(named.load()), how, json, noted=True)


def _write(session: Session, wanted: DocumentSet, how: WriteFlags, json: bool, *, noted: bool = False) -> None:
    from natsctl.desired.export import Exporter

    for text in () if noted else wanted.notes:
        output.note(f"note: {safe(text)}")
    write(session, Exporter(wanted, how.full), how.to(json))


VERBS = (
    verb(
        "terraform, tf, hcl",
        terraform,
        _ANSWER,
        "natsctl convert terraform orders.tf -o orders.yaml",
        "natsctl convert terraform ./infrastructure --var env=staging",
    ),
    verb(
        "documents, kubernetes, k8s, config",
        documents,
        _ANSWER,
        "natsctl convert documents deploy/*.yml --output streams/",
    ),
)
