"""The one way in which an endpoint says no."""

from __future__ import annotations


class BadRequestError(ValueError):
    """Options that an endpoint can not answer; the text is nats-server's, sent with status 400."""
