"""`python -m natsctl.cli.generate`: write every file that is made of the code, and say which have changed."""

from __future__ import annotations

import sys

from natsctl.cli.generate.files import ROOT, made


def main() -> int:
    """Write what differs; success."""
    for path, text in made():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
