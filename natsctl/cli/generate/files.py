"""Every file that is made of the code, by its path in the repository."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from natsctl.cli.completion.scripts import SCRIPTS
from natsctl.cli.generate import natscli, spark_options
from natsctl.cli.generate.pages import pages
from natsctl.cli.generate.tree import completion_of
from natsctl.cli.nouns import NOUNS

ROOT = Path(__file__).parents[3]
"""The repository, where natsctl runs from a checkout."""


def made() -> Iterator[tuple[Path, str]]:
    """The files with the text that they should have."""
    for shell, script in SCRIPTS.items():
        yield ROOT / "completions" / f"natsctl.{shell}", script
    for noun in NOUNS:
        table = json.dumps(completion_of(noun), ensure_ascii=False, indent=1)
        yield ROOT / "natsctl" / "cli" / "completion" / "commands" / f"{noun.name}.json", table + "\n"
    yield ROOT / "docs" / "natscli.md", natscli.page(ROOT)
    if (spark := ROOT / "docs" / "spark.md").exists():
        yield spark, spark_options.page(spark)
    for name, page in pages():
        yield ROOT / "docs" / "commands" / name, page
