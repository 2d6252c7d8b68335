"""The one table of exit codes. It imports nothing heavy, for the sake of commands that only fail."""

import enum


class ExitCode(enum.IntEnum):
    """Exit status of every command."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNREACHABLE = 5
    NOT_AUTHORISED = 6
    NOTHING_RECEIVED = 7
    DRIFT = 10
    INTERRUPTED = 130
