"""What a module printed, before Ansible reads it."""

import json

import pytest

from plugins.plugin_utils.running import with_escaped_warnings

SAID = {"warnings": ["a\x1b[2J", {"msg": "b\u202e"}], "deprecations": [{"msg": "c\x9b"}], "kept": "d\x1b"}


@pytest.mark.parametrize("before", ["", "noise\n", "noise {\n  "])
@pytest.mark.parametrize("after", ["", "\nrest }"])
def test_only_warnings_are_escaped_whatever_is_printed_around_the_answer(before: str, after: str) -> None:
    """ansible-core 2.21 shows the warnings of a module before an action can change them."""
    printed = with_escaped_warnings(f"{before}{json.dumps(SAID)}{after}")
    assert printed.startswith(before)
    assert printed.endswith(after)
    assert json.loads(printed[len(before) : len(printed) - len(after)]) == {
        "warnings": [r"a\x1b[2J", {"msg": r"b\u202e"}],
        "deprecations": [{"msg": r"c\x9b"}],
        "kept": "d\x1b",
    }


@pytest.mark.parametrize("printed", ["", "no answer", '{"warnings": [', "{" + "[" * 100_000, '{"a" 3}'])
def test_what_is_no_answer_stays_as_it_is(printed: str) -> None:
    assert with_escaped_warnings(printed) == printed
