"""Good data, damaged as no honest program would: by their structure where they are JSON, else by bytes."""

import hashlib
import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from hypothesis import strategies as st

_NUMBER = re.compile(rb"(?<![\w.])[0-9.]+")
_MARK = "the odd value comes here"
_MARK_IN_JSON = b'"%s"' % _MARK.encode()
# What stands in place of a value: JSON as text, or what looks like it.
ODD = [
    *rb"""null true -1 0 1.5 00 +1 1e308 1e999 -1e999 NaN Infinity -Infinity 9007199254740993
    9223372036854775808 -9223372036854775809 "" "7" "\ud800" "\u0000\u001b[2J\u202e" "a\nb" "../../x" "{{x}}"
    [] {} [[]] [null,true,-1,"x",{}] {"":null} {"a":1,"a":[]} [1,2 "x""".split(),
    *(
        b"",
        b'"\xff"',
        "\u2028\U0001f600\u0430".encode(),
        b"9" * 400,
        b"9" * 4300,
        b"9" * 5000,
        b'"%s"' % (b"x" * 100_000),
    ),
    *(b"[" * 50_000, b"[" * 900 + b"]" * 900, b'{"a":' * 300 + b"1" + b"}" * 300),
    *(b'"%s"' % (b"x" * 10_000_000), b"[%s0]" % (b"0," * 100_000)),
]


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """The same with one to three damages of a kind."""
    damage = draw(st.sampled_from([_json, _json, _bytes]))
    for _ in range(draw(st.integers(1, 3))):
        content = damage(draw, content)
    return content


def _json(draw: st.DrawFn, content: bytes) -> bytes:
    """Replace, remove, rename or double a part of a JSON document, or of one of many in lines."""
    lines = content.split(b"\n") if content.count(b"\n{") else [content]
    places = [place for place, line in enumerate(lines) if line.startswith((b"{", b"["))]
    if not places:
        return _bytes(draw, content)
    place = draw(st.sampled_from(places))
    try:
        root = {"": json.loads(lines[place])}
        lines[place] = _damaged_json(draw, root)
    except (ValueError, OverflowError, RecursionError):
        return content
    return b"\n".join(lines)


def _damaged_json(draw: st.DrawFn, root: dict[str, Any]) -> bytes:
    parts = list(_parts(root))
    holder, key = draw(st.sampled_from(parts))
    how = draw(st.sampled_from(["odd", "odd", "odd", "other", "gone", "renamed", "changed", "twice"]))
    odd = draw(st.sampled_from(ODD))
    if how == "other":
        other, of = draw(st.sampled_from(parts))
        holder[key] = json.loads(json.dumps(other[of]))
    elif how == "changed":
        holder[key] = draw(st.sampled_from(_close(holder[key])))
    elif how == "gone":
        del holder[key]
    elif how == "renamed" and isinstance(holder, dict):
        holder[draw(st.sampled_from(["", "ps0", "worker0", "\x1b", "v", "__class__"]))] = holder.pop(key)
    else:
        if how == "twice" and isinstance(holder, dict):
            odd = b"%s, %s: %s" % (json.dumps(holder[key]).encode(), json.dumps(key).encode(), odd)
        holder[key] = _MARK
    return b"".join(json.dumps(value).encode() for value in root.values()).replace(_MARK_IN_JSON, odd, 1)


def _parts(document: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401
    """Every part of a document: what holds it, and its key or place there."""
    unseen = [document]
    while unseen:
        holder = unseen.pop()
        keys = holder if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in keys:
            yield holder, key
            unseen.append(holder[key])


def _close(value: Any) -> list[Any]:  # noqa: ANN401
    """Other values of the same kind."""
    if isinstance(value, int | float):
        return [value + 1, value - 1, -value, value * 1000, value + 1e-9, 1e18, 5e-324, 2**53]
    return [value[:-1], value * 50] if isinstance(value, str | list) else [{}, [value]]


def _bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """Replace a number, or any part: by nothing, by itself many times or in another encoding, by anything."""
    begin = draw(st.integers(0, len(content)))
    end = draw(st.sampled_from([begin, begin + 1, begin + 500, len(content)]))
    if numbers := [found.span() for found in islice(_NUMBER.finditer(content), 200)]:
        begin, end = draw(st.sampled_from([*numbers, *[(begin, end)] * len(numbers)]))
    part = content[begin:end]
    encoding = draw(st.sampled_from(["utf-16", "utf-32", "utf-8-sig", "cp037"]))
    encoded = part[:100_000].decode("utf-8", "replace").encode(encoding, "replace")
    like = [b"", part * 2, part[:500] * 1000, encoded, b"\n".join(reversed(part.split(b"\n")))]
    return content[:begin] + draw(st.sampled_from([*like, draw(st.binary(max_size=8)), *ODD])) + content[end:]


def with_fitting_hashes(content: bytes) -> bytes:
    """Let each plan in a document have the hash that its content should have, whatever that is."""
    try:
        document = json.loads(content)
        for plan in [document] if "hash" in document else [told["deployed"] for told in document.values()]:
            of = {"cluster_name": plan["cluster_name"], "tasks": plan["tasks"]}
            canonical = json.dumps(of, sort_keys=True, separators=(",", ":"))
            plan["hash"] = hashlib.sha256(canonical.encode()).hexdigest()[:12]
        return json.dumps(document).encode()
    except (ValueError, RecursionError, TypeError, AttributeError, KeyError):
        return content
