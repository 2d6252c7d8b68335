"""The flags of every check; their names without dashes are the names of thresholds in metadata, too."""

from __future__ import annotations

from typing import Any

from natsctl.cli.flags import DURATION, PAIRS, SIZE, SWITCH, TEXT, WHOLE, Flag, Kind, choice


def _percent(text: str) -> float:
    try:
        return float(text.removesuffix("%"))
    except ValueError:
        raise ValueError(f"expected a percentage, not {text!r}") from None


PERCENT = Kind("PERCENT", _percent)
FORMATS = ("nagios", "json", "prometheus", "text")
OUT = (
    Flag("--format", choice(*FORMATS), "format", "format of the result", default="nagios"),
    Flag("--outfile", TEXT, "outfile", "write it to this file instead of stdout"),
    Flag("--namespace", TEXT, "namespace", "prefix of Prometheus metrics", default="nats_server_check"),
)


def rows(kind: Kind, *names: tuple[str, str], default: str = "") -> tuple[Flag, ...]:
    """A flag for each name and help."""
    return tuple(Flag(f"--{name}", kind, name, help, default=default) for name, help in names)


def pairs(kind: Kind, *names: tuple[str, str]) -> tuple[Flag, ...]:
    """The flags `NAME-warn` and `NAME-critical` for each name, `warn` and `critical` at `what`."""
    return tuple(
        flag
        for name, what in names
        for flag in (
            Flag(f"--{name}-warn", kind, f"{name}-warn", f"warn at {what}"),
            Flag(f"--{name}-critical", kind, f"{name}-critical", f"critical at {what}"),
        )
    )


CONNECTION = pairs(
    DURATION,
    ("connect", "this long to connect [500ms, 1s]"),
    ("rtt", "this long for a PING [500ms, 1s]"),
    ("req", "this long for a message to itself [500ms, 1s]"),
)
STREAM = (
    *rows(WHOLE, ("lag-critical", "critical when the mirror or a source is this many messages behind")),
    *rows(DURATION, ("seen-critical", "critical when the mirror or a source was not seen for this long")),
    *rows(WHOLE, ("min-sources", "least sources"), ("max-sources", "most sources")),
    *rows(
        WHOLE, ("peer-expect", "expected number of peers"), ("peer-lag-critical", "critical when a peer lags this much")
    ),
    *rows(DURATION, ("peer-seen-critical", "critical when a peer was not seen for this long")),
    *pairs(
        WHOLE, ("msgs", "this few messages"), ("subjects", "this many subjects; this few if critical is the smaller")
    ),
)
CONSUMER = (
    *rows(
        WHOLE,
        ("outstanding-ack-critical", "critical at this many messages waiting for acknowledgement"),
        ("waiting-critical", "critical at this many waiting pulls"),
        ("unprocessed-critical", "critical at this many messages not yet delivered"),
        ("redelivery-critical", "critical at this many redelivered messages"),
    ),
    *rows(
        DURATION,
        ("last-delivery-critical", "critical when nothing was delivered for this long"),
        ("last-ack-critical", "critical when nothing was acknowledged for this long"),
    ),
    *rows(SWITCH, ("pinned", "every priority group must have a pinned client")),
)
MESSAGE = (
    *rows(TEXT, ("subject", "the newest message on this subject [of the stream]")),
    *pairs(DURATION, ("age", "this age")),
    *rows(TEXT, ("content", "the body must match this regular expression")),
    *rows(SWITCH, ("body-timestamp", "the body is the Unix time that counts")),
)
META = (
    *rows(WHOLE, ("lag-critical", "critical when a server is this many operations behind")),
    *rows(DURATION, ("seen-critical", "critical when a server was not seen for this long")),
)
REQUEST = (
    *rows(TEXT, ("payload", "body of the request")),
    *rows(PAIRS, ("headers", "headers of the request")),
    *rows(TEXT, ("match-payload", "the answer's body must match this regular expression")),
    *rows(PAIRS, ("match-headers", "the answer's header must match this regular expression")),
    *pairs(DURATION, ("response", "this long for an answer")),
)
JETSTREAM = (
    *pairs(PERCENT, ("mem", "this use of memory, in percent of the limit [75, 90]")),
    *pairs(PERCENT, ("store", "this use of disk, in percent of the limit [75, 90]")),
    *pairs(PERCENT, ("streams", "this many streams, in percent of the limit")),
    *pairs(PERCENT, ("consumers", "this many consumers, in percent of the limit")),
    *rows(SWITCH, ("replicas", "check the replicas of every stream"), default="on"),
    *rows(DURATION, ("replica-seen-critical", "critical when a replica was not seen for this long"), default="5s"),
    *rows(WHOLE, ("replica-lag-critical", "critical when a replica is this many operations behind"), default="200"),
)
SERVER = (
    *rows(TEXT, ("name", "the server, by name or id; else the one connected to")),
    *pairs(PERCENT, ("cpu", "this CPU use in percent")),
    *pairs(SIZE, ("mem", "this use of memory")),
    *pairs(WHOLE, ("conn", "this many connections; this few if critical is the smaller")),
    *pairs(WHOLE, ("subs", "this many subscriptions; this few if critical is the smaller")),
    *pairs(DURATION, ("uptime", "an uptime this short")),
    *rows(SWITCH, ("auth-required", "clients must have to log in"), ("tls-required", "clients must have to use TLS")),
    *rows(SWITCH, ("js-required", "JetStream must be on")),
    *rows(DURATION, ("tls-cert-warn", "warn when a certificate expires within this time")),
    Flag(
        "--tls-cert-crit",
        DURATION,
        "tls-cert-crit",
        "critical when a certificate expires within this time",
        aliases=("--tls-cert-critical",),
    ),
)
KV = (
    *pairs(WHOLE, ("values", "this many values; this few if critical is the smaller")),
    *rows(TEXT, ("key", "this key must have a value")),
)
CREDENTIAL = (
    *pairs(DURATION, ("validity", "this long before it expires")),
    *rows(SWITCH, ("require-expiry", "it must have an expiry"), default="on"),
)
DEFAULTS: dict[str, dict[str, Any]] = {
    "connections": {
        f"{name}-{level}": value
        for name in ("connect", "rtt", "req")
        for level, value in (("warn", 500_000_000), ("critical", 1_000_000_000))
    },
    "jetstream": {
        **{
            f"{name}-{level}": value
            for name in ("mem", "store")
            for level, value in (("warn", 75.0), ("critical", 90.0))
        },
        "replica-seen-critical": 5_000_000_000,
        "replica-lag-critical": 200,
    },
}
"""Thresholds that hold where none was given."""
