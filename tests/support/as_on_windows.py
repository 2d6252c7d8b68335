"""A command of natsctl without what Windows lacks: `python -m tests.support.as_on_windows stream ls`.

Modules, functions, flags and signals that Python does not have there are taken away before the package is imported, and
`sys.platform` says win32 from then on. The loop is still that of this system.
"""

import importlib
import os
import shutil
import signal
import sys

MODULES = ("fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty", "uvloop")
OF_OS = (
    "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "chown", "fchmod", "fork", "getegid", "geteuid",
    "getgid", "getpgid", "getuid", "killpg", "mkfifo", "posix_fallocate", "pread", "preadv", "pwrite",
    "register_at_fork", "sendfile", "setsid", "statvfs", "uname", "WNOHANG",
)  # fmt: skip
SIGNALS = ("SIGALRM", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGTSTP", "SIGUSR1", "SIGUSR2", "SIGWINCH")


def pretend() -> None:
    """Take everything away; libraries, which have their own ways on Windows, have been imported."""
    for name in ("click", "nats", "prompt_toolkit.shortcuts", "questionary", "rich.console", "rich.live", "typer"):
        importlib.import_module(name)
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]  # an import of it fails
    for owner, names in ((os, OF_OS), (signal, SIGNALS)):
        for name in names:
            if hasattr(owner, name):
                delattr(owner, name)
    shutil._use_fd_functions = False  # type: ignore[attr-defined]  # how rmtree works was chosen by what os had
    sys.platform = "win32"


if __name__ == "__main__":
    pretend()
    from natsctl.cli.main import main

    main()
