"""The colours of the browser on dark and on light terminals."""

from __future__ import annotations

from typing import Final

from textual.theme import Theme

COLOURS: Final = {
    "dark": Theme(
        "natsctl-dark",
        primary="#4ea1f3",
        secondary="#34c6a0",
        accent="#34c6a0",
        warning="#e5b454",
        error="#ef6b73",
        success="#6cc070",
        foreground="#d8dee9",
        background="#12161d",
        surface="#12161d",
        panel="#1c232e",
        dark=True,
    ),
    "light": Theme(
        "natsctl-light",
        primary="#1f6fc4",
        secondary="#0f7f68",
        accent="#0f7f68",
        warning="#8a5a00",
        error="#b3261e",
        success="#2e7d32",
        foreground="#1f2328",
        background="#fbfbfa",
        surface="#fbfbfa",
        panel="#e9ecef",
        dark=False,
    ),
}
