"""`convert terraform` and `convert documents`: any accepted form, written in natsctl's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.cli import output
from natsctl.cli.desired import sources, writing
from natsctl.cli.flags import flagged
from natsctl.cli.options import Json, session_of

if TYPE_CHECKING:
    from natsctl.plan.wanted import DocumentSet


@flagged()
def terraform(
    ctx: typer.Context,
    how: writing.Writing,
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH", help=".tf files, folders of them, states as JSON", show_default=False),
    ],
    variables: Annotated[
        list[str] | None,
        typer.Option("--var", metavar="NAME=VALUE", help="the value of a variable", show_default=False),
    ] = None,
    variable_files: Annotated[
        list[str] | None,
        typer.Option("--var-file", metavar="FILE", help="values of variables, .tfvars", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Write the streams, consumers and buckets of Terraform's JetStream provider as documents for natsctl apply.

    They have what Terraform would have created, its defaults included; resources that prevent_destroy protects are
    protected. What is not written out in the files and cannot be worked out is told by file and line; a state
    (`terraform show -json`) has the values of everything.
    """
    import os

    from natsctl.plan.terraform import read_terraform

    wanted = read_terraform(paths, os.environ, variables=variables or (), variable_files=variable_files or ())
    _write(ctx, wanted, how, json)


@flagged()
def documents(
    ctx: typer.Context,
    named: sources.Named,
    how: writing.Writing,
    json: Json = False,
) -> None:
    """Write documents of any form in one form: manifests of the Kubernetes controller, --config files, info -j."""
    from natsctl.plan.planner.mentioned import as_created

    _write(ctx, as_created(named.load()), how, json, noted=True)


def _write(ctx: typer.Context, wanted: DocumentSet, how: writing.Writing, json: bool, *, noted: bool = False) -> None:
    from natsctl.cli.render.text import safe
    from natsctl.plan.export.export import Exporter

    for text in () if noted else wanted.notes:
        output.note(f"note: {safe(text)}")
    writing.write(session_of(ctx), Exporter(wanted, how.full), how.to(json))
