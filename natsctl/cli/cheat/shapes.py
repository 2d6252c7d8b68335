"""What `natsctl cheat -j` prints."""

from __future__ import annotations

from natsctl.api.model import Model


class Line(Model, kw_only=True):
    """One command line and what it does; one that ends in `&` runs beside those that follow."""

    about: str
    command: str


class Topic(Model, kw_only=True):
    """The lines about one thing, in an order in which they can be run."""

    name: str
    title: str
    lines: list[Line]
