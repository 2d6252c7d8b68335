"""`stream backup` and `stream restore`."""

from __future__ import annotations
import typer

def backup(ctx: typer.Context) -> None: "b"
def restore(ctx: typer.Context) -> None: "r"
