"""Reads a page as a browser would: elements, their texts, and their references."""

from html.parser import HTMLParser
from pathlib import Path

from psfleet.evidence.reading import read_run
from psfleet.evidence.settings import EvidenceSettings
from psfleet.evidence.verdict import judge_run
from psfleet.report.page import write_report

_VOID = {"meta", "br", "img", "link", "hr", "input"}
_REFERRING = {"href", "src", "action", "srcset", "data", "poster", "xlink:href", "background", "formaction"}


class Page(HTMLParser):
    """What a page holds. Raises AssertionError where its elements are not closed in order."""

    def __init__(self, text: str) -> None:
        """Read the whole page."""
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open an element."""
        self._note(tag, attrs)
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element of a picture that has nothing in it."""
        self._note(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        """Close the element that was opened last."""
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        """Note a text and the element that it is in."""
        if data.strip():
            self.texts.append((self._open[-1] if self._open else "", data))

    @property
    def text(self) -> str:
        """All that people read, in one line."""
        return " ".join(" ".join(data for tag, data in self.texts if tag != "style").split())

    @property
    def ids(self) -> list[str]:
        """The ids of all elements."""
        return [value for _, name, value in self.attributes if name == "id"]

    @property
    def references(self) -> list[str]:
        """Whatever an element refers to."""
        return [value for _, name, value in self.attributes if name in _REFERRING]

    @property
    def handlers(self) -> list[str]:
        """Attributes that a browser would run."""
        return [name for _, name, _ in self.attributes if name.startswith("on")]

    def _note(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]


def report(folder: Path) -> Page:
    """Judge a run's folder, draw its report, and read it."""
    run = read_run(folder)
    write_report(run, judge_run(run, EvidenceSettings()))
    return page_of(folder)


def page_of(folder: Path) -> Page:
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def png_size(path: Path) -> tuple[int, int]:
    """Width and height in pixels by the header; raises AssertionError where it is no PNG."""
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n" and content[12:16] == b"IHDR" and b"IEND" in content[-12:]
    return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")
