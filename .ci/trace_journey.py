"""Run `natsctl str add NAME --config FILE` and print the files that the configuration goes through, as a JSON list.

Arguments: the server's URL, FILE, and NAME, by which the configuration is recognised. A function is on its road if it
gets the configuration and hands it on: it returns it, or passes it to another such function, to a library or to the
socket. Checks, imports, and the opening of the connection are not. The list ends with the request.
"""

import json
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

URL, FILE, NAME = sys.argv[1:]


def holds(value: Any, depth: int = 6) -> bool:
    """Return whether the value has the configuration in it."""
    if isinstance(value, str | bytes):
        return (NAME if isinstance(value, str) else NAME.encode()) in value
    kind = type(value)
    parts: Any = ()
    if not depth:
        return False
    if isinstance(value, list | tuple):
        parts = value
    elif isinstance(value, dict):
        parts = [*value, *value.values()]
    elif isinstance(getattr(kind, "__struct_fields__", None), tuple):
        parts = [getattr(value, name, None) for name in kind.__struct_fields__]
    elif kind.__name__ == "coroutine" and value.cr_frame is not None:
        parts = list(value.cr_frame.f_locals.values())
    elif kind.__name__ == "function":
        parts = [cell.cell_contents for cell in value.__closure__ or () if cell != type(cell)()]
    return any(holds(part, depth - 1) for part in parts)


def is_ours(frame: FrameType) -> bool:
    return "/natsctl/" in frame.f_code.co_filename


def callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


class Road:
    """The functions that get the configuration, in order, and which of them hand it on."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.calls: dict[FrameType, int] = {}
        self.handing_on: set[int] = set()
        self.end = 0

    def trace(self, frame: FrameType, event: str, arg: Any) -> None:
        sys.setprofile(None)
        try:
            self._look(frame, event, arg)
        finally:
            sys.setprofile(self.trace)

    def _look(self, frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if event == "c_call" and getattr(arg, "__name__", "") in ("send", "sendall", "sendmsg"):
            self.end = len(self.files)
            self._hand_on(frame)
        elif event == "return" and frame in self.calls and holds(arg):
            self._hand_on(frame)
        elif event == "call" and code.co_flags & 1 and frame not in self.calls:
            names = [*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4)]]
            if not any(holds(frame.f_locals.get(name)) for name in [*names, *code.co_freevars]):
                return
            if is_ours(frame):
                if code.co_name != "<lambda>" and not self._is_import(frame):
                    self.calls[frame] = len(self.files)
                    self.files.append(code.co_filename.rpartition("/natsctl/")[2])
            elif "/site-packages/" in code.co_filename and frame.f_back is not None and is_ours(frame.f_back):
                self._hand_on(frame)

    def _is_import(self, frame: FrameType) -> bool:
        return any(caller.f_code.co_name == "<module>" and is_ours(caller) for caller in callers(frame))

    def _hand_on(self, frame: FrameType) -> None:
        self.handing_on.update(self.calls[caller] for caller in callers(frame) if caller in self.calls)


def main() -> None:
    from natsctl.cli.main import main as natsctl

    sys.argv = ["natsctl", "-s", URL, "str", "add", NAME, "--config", FILE, "-j"]
    road = Road()
    sys.setprofile(road.trace)
    try:
        natsctl()
    except SystemExit as end:
        assert not end.code, end.code
    finally:
        sys.setprofile(None)
    print(json.dumps([road.files[call] for call in sorted(road.handing_on) if call < road.end]), file=sys.stderr)


if __name__ == "__main__":
    main()
