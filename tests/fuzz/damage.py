"""Good data, damaged as no honest program would: by their structure where they are JSON, else by bytes."""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

DEEP = 50_000
_NUMBER = re.compile(rb"(?<![\w.])[0-9.]+")
# What stands in place of a value: JSON as text, or what looks like it.
ODD = [
    *(
        b"null",
        b"true",
        b"-1",
        b"0",
        b"1.5",
        b"1e308",
        b"1e999",
        b"-1e999",
        b"NaN",
        b"Infinity",
        b"-Infinity",
    ),
    *(
        b"9007199254740993",
        b"9223372036854775808",
        b"-9223372036854775809",
        b"9" * 400,
        b"9" * 5000,
        b"00",
        b"+1",
    ),
    *(
        b'""',
        b'"7"',
        b'"\\ud800"',
        b'"\\u0000\\u001b[2J\\u202e"',
        b'"a\\nb"',
        b'"../../x"',
        b'"{{ x }}"',
        b'"\xff"',
    ),
    *(
        b"[]",
        b"{}",
        b"[[]]",
        b'[null, true, -1, "x", {}]',
        b'{"": null}',
        b'{"a": 1, "a": []}',
        b"[1, 2",
        b'"x',
    ),
    *(b'"%s"' % (b"x" * 100_000), b"[" * DEEP, b"[" * 900 + b"]" * 900, b'{"a":' * 300 + b"1" + b"}" * 300),
    *(b'"%s"' % (b"x" * 10_000_000), b"[%s0]" % (b"0," * 100_000), "\u2028\U0001f600\u0430".encode(), b""),
]
Damage = Callable[[st.DrawFn, bytes], bytes]


@st.composite
def damaged(draw: st.DrawFn, samples: Sequence[bytes]) -> bytes:
    """One of the samples with one to three damages."""
    content = draw(st.sampled_from(samples))
    for damage in draw(st.lists(st.sampled_from([_of_json] * 6 + _OF_BYTES), min_size=1, max_size=3)):
        content = damage(draw, content)
    return content


def _of_json(draw: st.DrawFn, content: bytes) -> bytes:
    """Replace, remove, move, rename or double a part of a JSON document, or of one of many in lines."""
    lines = content.split(b"\n") if content.count(b"\n{") else [content]
    place = draw(st.integers(0, len(lines) - 1))
    try:
        document = json.loads(lines[place])
    except (ValueError, RecursionError):
        return content
    parts = list(_parts(document))
    if not parts:
        return b"\n".join([*lines[:place], draw(st.sampled_from(ODD)), *lines[place + 1 :]])
    holder, key = draw(st.sampled_from(parts))
    how = draw(st.sampled_from(["odd", "odd", "odd", "other", "gone", "renamed", "changed", "twice"]))
    raw = b""
    if how in {"odd", "twice"}:
        raw = draw(st.sampled_from(ODD))
        holder[key] = _MARK
    elif how == "other":  # shared with its place, as no JSON is: the text has it twice
        other, of = draw(st.sampled_from(parts))
        holder[key] = json.loads(json.dumps(other[of]))
    elif how == "changed":
        holder[key] = draw(_like(holder[key]))
    elif how == "renamed" and isinstance(holder, dict):
        holder[draw(st.sampled_from(["", "ps0", "worker0", "\x1b", "v", "__class__"]))] = holder.pop(key)
    else:
        del holder[key]
    lines[place] = json.dumps(document).encode().replace(b'"%s"' % _MARK.encode(), raw, 1)
    if how == "twice" and isinstance(holder, dict):
        lines[place] = lines[place].replace(b"{", b'{"%s": %s, ' % (str(key).encode(), raw), 1)
    return b"\n".join(lines)


_MARK = "the odd value comes here"


def _parts(document: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401
    """Every part of a document: what holds it, and its key or place there."""
    unseen = [document]
    while unseen:
        holder = unseen.pop()
        keys = holder if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in keys:
            yield holder, key
            unseen.append(holder[key])


def _like(value: object) -> st.SearchStrategy[object]:
    """Another value of the same kind, often a close one."""
    if isinstance(value, bool):
        return st.just(not value)
    if isinstance(value, int):
        return st.sampled_from([value + 1, value - 1, -value, value * 1000, 2**53, 2**63 - 1]) | st.integers()
    if isinstance(value, float):
        return st.sampled_from([-value, value * 1e6, value + 1e-9, 1e18, 5e-324]) | st.floats(allow_nan=False)
    if isinstance(value, str):
        return st.text(max_size=9) | st.sampled_from([value * 50, value[:-1], value.upper()])
    return st.sampled_from([[], {}, [value], {"a": value}])


def _cut(draw: st.DrawFn, content: bytes) -> bytes:
    return content[: draw(st.integers(0, len(content)))]


def _changed(draw: st.DrawFn, content: bytes) -> bytes:
    if not content:
        return b"\0"
    place, byte = draw(st.integers(0, len(content) - 1)), draw(st.integers(0, 255))
    return content[:place] + bytes([byte]) + content[place + 1 :]


def _with_more(draw: st.DrawFn, content: bytes) -> bytes:
    place = draw(st.integers(0, len(content)))
    return content[:place] + draw(st.sampled_from(ODD) | st.binary(max_size=8)) + content[place:]


def _with_another_number(draw: st.DrawFn, content: bytes) -> bytes:
    numbers = [found.span() for found in itertools.islice(_NUMBER.finditer(content), 200)]
    begin, end = draw(st.sampled_from(numbers)) if numbers else (0, 0)
    return content[:begin] + draw(st.sampled_from(ODD)) + content[end:]


def _with_lines_in_another_order(draw: st.DrawFn, content: bytes) -> bytes:
    lines = content.split(b"\n")
    one, other = (draw(st.integers(0, len(lines) - 1)) for _ in "ab")
    lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def _with_a_part_many_times(draw: st.DrawFn, content: bytes) -> bytes:
    begin, length = draw(st.integers(0, len(content))), draw(st.integers(1, 500))
    part = content[begin : begin + length]
    return content[:begin] + part * draw(st.sampled_from([2, 3, 1000])) + content[begin:]


def _in_another_encoding(draw: st.DrawFn, content: bytes) -> bytes:
    name = draw(st.sampled_from(["utf-16", "utf-32", "utf-8-sig", "cp037"]))
    return content[:100_000].decode("utf-8", "replace").encode(name, "replace")


_OF_BYTES: list[Damage] = [
    _cut,
    _changed,
    _with_more,
    _with_another_number,
    _with_another_number,
    _with_lines_in_another_order,
    _with_a_part_many_times,
    _in_another_encoding,
]
