"""The questions of `consumer add`, in order. Source: docs/compatibility.md#questions-of-stream-add-and-consumer-add."""

from __future__ import annotations

import time
from typing import Any

from natsctl.api.subjects import MAX_NAME, is_valid_name
from natsctl.cli.consumer.definition import CONSUMER_FLAGS
from natsctl.cli.flags import FORMS, Config, Flag, Given, read_moment
from natsctl.cli.prompts.ask import Question, prompt, prompt_confirm

FLAGS: dict[str, Flag] = {flag.name: flag for flag in CONSUMER_FLAGS}

ACK_CHOICES = (("explicit", "explicit"), ("all", "all"), ("none", "none"))
REPLAY_CHOICES = (("instant", "instant"), ("original", "original"))
BACKOFF_CHOICES = (("linear", "linear"), ("none", "none"))


def _name(text: str) -> str:
    if not is_valid_name(text):
        raise ValueError(f"a name has 1 to {MAX_NAME} characters, none of them blank or one of . * > \\ /")
    return text


def prompt_consumer_name() -> str:
    """Return the name for a new consumer."""
    help = "The name that the durable consumer will have. Settable as the second argument"
    return str(prompt(Question("Consumer name", help, required=True, read=_name)))


def prompt_consumer(config: Config, given: Given) -> None:
    """Ask for everything that was not given, and put the answers into the configuration and among what was given."""
    if not given.get("--pull") and "--target" not in given:
        _ask("--target", "Delivery target (empty for Pull Consumers)", config, given)
    push = bool(config.get("deliver_subject"))
    if push:
        _ask("--deliver-group", "Delivery Queue Group", config, given)
    _ask("--deliver", "Start policy (all, new, last, subject, 1h, msg sequence)", config, given, "all")
    _ask("--ack", "Acknowledgment policy", config, given, "none" if push else "explicit", ACK_CHOICES)
    _ask("--replay", "Replay policy", config, given, "instant", REPLAY_CHOICES)
    _ask("--filter", "Filter Stream by subjects (blank for all)", config, given)
    acks = config.get("ack_policy") != "none"
    if acks:
        _ask("--max-deliver", "Maximum Allowed Deliveries", config, given, "-1")
        _ask("--max-pending", "Maximum Acknowledgments Pending", config, given, "0")
    if push:
        _ask("--heartbeat", "Idle Heartbeat", config, given, "0s")
        _confirm("--flow-control", "Enable Flow Control, ie --flow-control", config, given)
        _prompt_needed_heartbeat(config)
    _confirm("--headers-only", "Deliver headers only without bodies", config, given)
    if acks and "--backoff" not in given:
        _prompt_backoff(given)


def _ask(
    name: str, text: str, config: Config, given: Given, default: str = "", choices: tuple[tuple[str, str], ...] = ()
) -> None:
    if name in given:
        return
    flag = FLAGS[name]
    flag.place(config, prompt(Question(text, _help(flag), default, flag.kind.read, choices=choices)))


def _confirm(name: str, text: str, config: Config, given: Given) -> None:
    if name not in given and prompt_confirm(text, False, _help(FLAGS[name])):
        FLAGS[name].place(config, True)


def _prompt_needed_heartbeat(config: Config) -> None:
    """Ask again for heartbeats where flow control was wished for: the server takes it with them only."""
    if config.get("flow_control") and not config.get("idle_heartbeat"):
        flag = FLAGS["--heartbeat"]
        question = Question("Idle Heartbeat, which Flow Control needs", _help(flag), "5s", _above_zero)
        flag.place(config, prompt(question))


def _above_zero(text: str) -> int:
    length = int(FLAGS["--heartbeat"].kind.read(text))
    if length <= 0:
        raise ValueError("expected a duration above zero")
    return length


def prompt_pause(default: str) -> int:
    """Return the time until which a consumer is paused, in ns since the epoch."""

    def read(text: str) -> int:
        until_ns = read_moment(text)
        if until_ns <= time.time_ns():
            raise ValueError("that is in the past")
        return until_ns

    help = f"It is {FORMS}. Settable as the third argument"
    return int(prompt(Question("Pause until (time or duration)", help, default, read)))


def _prompt_backoff(given: Given) -> None:
    if not prompt_confirm("Add a Retry Backoff Policy", False, _help(FLAGS["--backoff"])):
        return
    kind = prompt(Question("Backoff policy", _help(FLAGS["--backoff"]), "linear", choices=BACKOFF_CHOICES))
    if kind == "none":
        return
    answers: dict[str, Any] = {"--backoff": kind}
    for name, text, default in (
        ("--backoff-min", "Minimum retry time", "1m"),
        ("--backoff-max", "Maximum retry time", "10m"),
        ("--backoff-steps", "Number of steps to generate in the policy", "20"),
    ):
        answers[name] = prompt(Question(text, _help(FLAGS[name]), default, FLAGS[name].kind.read))
    given.update(answers)


def _help(flag: Flag) -> str:
    return f"{flag.help[0].upper()}{flag.help[1:]}. Settable using {flag.name}"
