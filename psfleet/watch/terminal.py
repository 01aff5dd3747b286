"""Keeps texts from hosts from steering the reader's terminal: such texts are shown and logged escaped."""

import re
from typing import Any

from ansible.utils.display import Display

# Control characters, also those of eight bits, except newline and tab; and characters that change the
# direction of text.
_STEERING = re.compile("(?!\r\n)[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class Coloured(str):
    """A text that was escaped, and then got Ansible's colours."""

    __slots__ = ()


def escaped(text: str) -> str:
    r"""Return the text with characters that steer a terminal written as escapes, such as "\x1b"."""
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def escaped_texts(value: Any) -> Any:  # noqa: ANN401 - the kind of the value is returned
    """Return a copy of a JSON value in which all texts are escaped (`escaped`), names of fields included."""
    if isinstance(value, dict):
        return {escaped_texts(name): escaped_texts(part) for name, part in value.items()}
    if isinstance(value, list):
        return [escaped_texts(part) for part in value]
    return escaped(value) if isinstance(value, str) else value


class EscapingDisplay(Display):
    """Ansible's display, but it escapes what it shows and logs.

    Two kinds of texts are only for the screen and not escaped here: Ansible's recap, which names hosts of the
    inventory, and psfleet's drawings, which were escaped before.
    """

    def display(self, msg: str, *others: Any, **options: Any) -> None:  # noqa: ANN401
        """Show a text, escaped; errors, warnings and headings of Ansible's display come here, too.

        A text of the class Coloured, and one with `screen_only`, is shown unchanged: it was escaped before.
        """
        safe = options.get("screen_only") or isinstance(msg, Coloured)
        super().display(msg if safe else escaped(msg), *others, **options)

    def warning(self, msg: str, *others: Any, **options: Any) -> None:  # noqa: ANN401
        """Show a warning, escaped. The user's callback shows the warnings of actions, later."""
        super().warning(escaped(msg), *others, **options)


def escaping_display() -> EscapingDisplay:
    """Return the display for psfleet's own texts; it shares the state of Ansible's, such as its verbosity."""
    display = EscapingDisplay.__new__(EscapingDisplay)
    display.__dict__ = Display().__dict__
    return display
