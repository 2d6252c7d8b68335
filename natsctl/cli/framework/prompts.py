"""Questions at the terminal: on stderr; `?` explains one, enter takes the default, Ctrl-C interrupts the command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from natsctl.api.errors import UsageError
from natsctl.cli.framework import output
from natsctl.cli.render.text import folded, length, safe

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyBindings
    from questionary import Question as Asked


HELP_KEY = "?"
CONFIRM_HINT = "(y/N)"
NO_MATCH = "no match: backspace takes a letter back"
"""Text instead of a list's choices while none of them matches."""
_HELP = object()
"""Answer of a list or a yes/no question when the help key was pressed."""

_LOOK = {
    "qmark": "fg:default bold",
    "question": "bold",
    "answer": "fg:default nobold",
    "instruction": "nobold",
    "validation-toolbar": "reverse",
}
"""Bold instead of colours: these may be invisible on a light or a dark background."""


class Question(NamedTuple):
    """One question: its text, its default, and the parser of its answer.

    `read` returns the value of the text, or raises ValueError with the reason.
    `choices` are pairs of label and value; with them the question is a list to pick from.
    """

    text: str
    help: str = ""
    default: str = ""
    read: Callable[[str], Any] = str
    required: bool = False
    choices: tuple[tuple[str, str], ...] = ()
    at_once: bool = True
    """Whether an answer is checked while it is typed, or only when enter is pressed."""


def prompt(question: Question) -> Any:
    """Return the value of the user's answer. Raises KeyboardInterrupt for Ctrl-C and Ctrl-D."""
    if question.choices:
        return question.read(_choose(question))
    return question.read(_write(question))


def prompt_confirm(text: str, default: bool = False, help: str = "") -> bool:
    """Return whether the user says yes; enter is needed after y, as everywhere."""
    import questionary

    while True:
        asked = questionary.confirm(_folded(safe(text), CONFIRM_HINT), default=default, auto_enter=False, **_terminal())
        answer = _answer(asked, help)
        if answer is not _HELP:
            return bool(answer)


def prompt_typed(text: str, word: str) -> bool:
    """Return whether the user types the word; an empty answer means no, any other is asked again."""

    def read(answer: str) -> str:
        if answer and answer != word:
            raise ValueError(f"{answer} is not {word}; press enter to leave everything as it is")
        return answer

    return bool(prompt(Question(text, read=read, at_once=False)))


def prompt_name(text: str, names: Sequence[str]) -> str:
    return str(prompt(Question(text, choices=tuple((safe(name), name) for name in names))))


def asset_name(text: str) -> str:
    from natsctl.api.subjects import MAX_NAME_BYTES, is_valid_name

    if not is_valid_name(text):
        raise ValueError(f"a name has 1 to {MAX_NAME_BYTES} bytes, none of them blank or one of . * > \\ /")
    return text


def _write(question: Question) -> str:
    import questionary

    hint = f" [{HELP_KEY} for help]" if question.help else ""
    shown = f"{safe(question.text)}{hint}{f' ({question.default})' if question.default else ''}"
    while True:
        asked = questionary.text(
            _folded(shown),
            validate=lambda text: _judge(question, text),
            validate_while_typing=question.at_once,
            **_terminal(),
        )
        _let_reasons_wrap(asked)
        answer = str(_asked(asked)).strip()
        if answer != HELP_KEY or not question.help:
            return answer or question.default
        _explain(question.help)


def _let_reasons_wrap(asked: Asked) -> None:
    """Wrap the line with the reason against an answer: prompt_toolkit cuts it after one row."""
    from prompt_toolkit.filters import to_filter
    from prompt_toolkit.layout import Dimension, FormattedTextControl

    for window in asked.application.layout.find_all_windows():
        if window.height == 1 and isinstance(window.content, FormattedTextControl):
            window.height = Dimension(min=1)
            window.wrap_lines = to_filter(True)
            window.dont_extend_height = to_filter(True)


def _judge(question: Question, text: str) -> bool | str:
    """Return True for a valid answer, else the reason against it."""
    words = text.strip() or question.default
    if words == HELP_KEY and question.help:
        return True
    if question.required and not words:
        return "An answer is required"
    try:
        question.read(words)
    except (ValueError, UsageError) as error:
        return _folded(str(error))
    return True


def _choose(question: Question) -> str:
    import questionary

    options = [questionary.Choice(shown, value) for shown, value in question.choices]
    default = next((option for option in options if option.value == question.default), None)
    hint = f"[Use arrows to move, type to filter{', ? for more help' if question.help else ''}]"
    while True:
        asked = questionary.select(
            _folded(safe(question.text), hint),
            options,
            default=default,
            instruction=hint,
            use_search_filter=True,
            use_jk_keys=False,
            **_terminal(),
        )
        _hold_without_match(asked)
        _show_position(asked)
        answer = _answer(asked, question.help)
        if answer is not _HELP:
            return str(answer)


def _hold_without_match(asked: Asked) -> None:
    """Show that no choice matches, and ignore enter then: questionary would show and accept all choices."""
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.keys import Keys

    controls = asked.application.layout.find_all_controls()
    picked: Any = next(control for control in controls if isinstance(control, _control_class()))

    def is_unmatched() -> bool:
        return _is_unmatched(picked)

    choices = picked.text

    def shown() -> Any:
        found = choices() if callable(choices) else choices
        return [("class:text", f"   {NO_MATCH}")] if is_unmatched() else found

    picked.text = shown
    keys = KeyBindings()
    keys.add(Keys.ControlM, eager=True, filter=Condition(is_unmatched))(lambda event: event.app.output.bell())
    _add_keys(asked, keys)


def _is_unmatched(picked: Any) -> bool:
    typed = (picked.search_filter or "").lower()
    return bool(typed) and not any(typed in str(choice.title).lower() for choice in picked.choices)


def _show_position(asked: Asked) -> None:
    """Show the typed filter, and which choices of a list are in sight, in a line below the question.

    questionary shows the filter at the foot of the screen, and nothing of the choices beyond it.
    """
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.layout import ConditionalContainer, FormattedTextControl, HSplit, Window

    layout = asked.application.layout
    window = next(one for one in layout.find_all_windows() if isinstance(one.content, _control_class()))
    control: Any = window.content

    def line() -> str:
        parts = [f"filter: {control.search_filter}"] if control.search_filter else []
        seen, total = window.render_info, len(control.filtered_choices)
        if _is_unmatched(control):
            parts.append(f"0 of {len(control.choices):,}")
        elif seen is not None and seen.displayed_lines and len(seen.displayed_lines) < total:
            parts.append(f"{seen.first_visible_line() + 1}–{seen.last_visible_line() + 1} of {total}")
        return ", ".join(parts)

    drawn = ""

    def draw_again(app: Any) -> None:
        nonlocal drawn
        if line() != drawn:  # the visible lines are known only after drawing
            drawn = line()
            app.invalidate()

    asked.application.after_render += draw_again
    status = ConditionalContainer(
        Window(FormattedTextControl(lambda: f"  [{line()}]"), height=1),
        filter=Condition(lambda: bool(line()) and not asked.application.is_done),
    )
    split = layout.container
    assert isinstance(split, HSplit)
    split.children.insert(1, status)
    control.get_search_string_tokens = lambda: None


def _control_class() -> Any:
    from questionary.prompts.common import InquirerControl

    return InquirerControl


def _add_keys(asked: Asked, keys: KeyBindings) -> None:
    """Add keys of our own before those of the question."""
    from prompt_toolkit.key_binding import merge_key_bindings

    own = asked.application.key_bindings
    asked.application.key_bindings = merge_key_bindings([own, keys] if own is not None else [keys])


def _answer(asked: Asked, help: str) -> Any:
    """Return the answer to a question that takes single keys, or `_HELP` after the help was shown."""
    if help:
        from prompt_toolkit.key_binding import KeyBindings

        def show_help(event: Any) -> None:
            event.app.exit(result=_HELP)

        keys = KeyBindings()
        keys.add(HELP_KEY, eager=True)(show_help)
        _add_keys(asked, keys)
    answer = _asked(asked)
    if answer is _HELP:
        _explain(help)
    return answer


def _asked(question: Asked) -> Any:
    """Return the answer to a question; raise KeyboardInterrupt for Ctrl-C and Ctrl-D."""
    try:
        return question.unsafe_ask()
    except EOFError:
        raise KeyboardInterrupt from None


def _explain(help: str) -> None:
    output.write_stderr(output.laid_out(f"  {help}", output.stderr_width()))


def _folded(text: str, suffix: str = "") -> str:
    """Return a question's text in lines of the terminal's width; `suffix` must fit on the last one."""
    columns = output.stderr_width()
    if columns is None:
        return text
    if length(text) + length(suffix) + 4 <= columns:
        return text
    lines = folded(text, max(columns - 4, 20))
    if length(lines[-1]) + length(suffix) + 4 > columns:
        lines.append("")
    return "\n  ".join(lines)


def _terminal() -> dict[str, Any]:
    """Return stderr as the terminal for questions.

    It is not asked for the cursor's position, as not every terminal answers.
    """
    from prompt_toolkit.output.vt100 import Vt100_Output
    from questionary import Style

    screen = Vt100_Output.from_pty(sys.stderr)
    screen.enable_cpr = False
    return {"output": screen, "style": Style(list(_LOOK.items()))}
