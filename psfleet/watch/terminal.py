"""Keeps texts from hosts from steering the reader's terminal, in whatever message they appear."""

import re
from collections.abc import Mapping
from typing import Any

from ansible.plugins.callback import CallbackBase
from ansible.utils.display import Display

# Control characters, also those of eight bits, except newline and tab; and characters that change the
# direction of text.
_STEERING = re.compile("(?!\r\n)[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class _Coloured(str):
    """A text with Ansible's colours, which was escaped before they were added."""

    __slots__ = ()


def escaped(text: str) -> str:
    r"""Return the text with characters that steer a terminal written out, such as "\x1b"."""
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def escape_all_messages() -> None:
    """Make Ansible escape all that it shows and logs: results, labels of loops, differences, errors.

    All of it passes through one function. Texts only for the screen are exempt: Ansible's recap, which names
    hosts of the inventory, and psfleet's drawings, which are escaped elsewhere.
    """
    display, difference_of = Display.display, CallbackBase._get_diff
    if display.__module__ == __name__:
        return

    def display_escaped(self: Display, msg: str, *others: Any, **options: Any) -> None:  # noqa: ANN401
        safe = options.get("screen_only") or isinstance(msg, _Coloured)
        display(self, msg if safe else escaped(msg), *others, **options)

    def escaped_difference_of(self: CallbackBase, found: Any) -> str:  # noqa: ANN401
        differences = [
            {name: _escaped_value(self, value) for name, value in difference.items()}
            for difference in (found if isinstance(found, list) else [found])
        ]
        return _Coloured(difference_of(self, differences))

    Display.display, CallbackBase._get_diff = display_escaped, escaped_difference_of


def _escaped_value(callback: CallbackBase, value: object) -> object:
    text = callback._serialize_diff(value) if isinstance(value, Mapping) else value
    return escaped(text) if isinstance(text, str) else text
