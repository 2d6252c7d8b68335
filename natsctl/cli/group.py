"""Commands with aliases: `@app.command("info, nfo, i")` answers to each of the words, and help shows them together."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from natsctl.api.errors import UsageError
from natsctl.cli.suggest import did_you_mean


class AliasGroup(TyperGroup):
    """A Typer group whose command names may list aliases after commas."""

    def find(self, word: str) -> Any:
        """The command of that name or alias, or None."""
        return self.commands.get(word) or self._by_word().get(word)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name or alias; a word that is neither ends with what may have been meant."""
        found = self.find(cmd_name)
        if found is None:
            raise UsageError(
                f"unknown command {cmd_name!r}",
                hint=did_you_mean(cmd_name, self._by_word()) or f"see {ctx.command_path} --help",
            )
        return found

    def _by_word(self) -> dict[str, Any]:
        return {word.strip(): command for names, command in self.commands.items() for word in names.split(",")}
