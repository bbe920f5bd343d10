"""Links, commands, settings and snippets in the documentation. Pure, except that it reads the files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^ {4,}(.+)$", re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")
_UNIT = re.compile(r"^Exec\w+=")
_UNSAID = ("…", "|", "[")
"""In a command between backticks: it is a pattern, not a command."""


@dataclass(frozen=True)
class Page:
    """One page of Markdown."""

    file: Path

    @cached_property
    def text(self) -> str:
        return self.file.read_text(encoding="utf-8")

    @property
    def name(self) -> str:
        return self.file.relative_to(ROOT).as_posix()

    def blocks(self, language: str) -> list[str]:
        """Contents of its fenced blocks of *language*."""
        return [body for named, body in _FENCE.findall(self.text) if named == language]

    @cached_property
    def lines_of_code(self) -> list[str]:
        """Lines of fenced and of indented blocks."""
        fenced = [line for _, body in _FENCE.findall(self.text) for line in body.splitlines()]
        return fenced + _INDENTED.findall(_FENCE.sub("", self.text))

    @cached_property
    def inline_code(self) -> list[str]:
        return _INLINE.findall(_FENCE.sub("", self.text))

    def commands(self) -> list[list[str]]:
        """Arguments of every ``strandline`` command of its blocks."""
        return [arguments for line in self.lines_of_code for arguments in strandline_commands(line)]

    def mentioned(self) -> list[list[str]]:
        """The same between backticks, where a command may stand without what it needs."""
        codes = (code for code in self.inline_code if not any(sign in code for sign in _UNSAID))
        return [arguments for code in codes for arguments in strandline_commands(code)]

    def queries(self) -> list[str]:
        """What is given to ``strandline sql``, and queries that stand for themselves."""
        shown = [block for block in self.blocks("sql") if block.startswith("select ")]
        return [arguments[-1] for arguments in self.commands() if arguments[0] == "sql"] + shown

    def anchors(self) -> set[str]:
        """What GitHub makes of its headings."""
        headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", self.text), re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def strandline_commands(line: str) -> Iterator[list[str]]:
    """Arguments of the commands of one line: ``NAME=value .venv/bin/strandline run && strandline gold  # why``."""
    if "strandline" not in line:
        return
    lexer = shlex.shlex(_UNIT.sub("", line.strip()), posix=True, punctuation_chars="&;|")
    lexer.whitespace_split = True
    words = [word for word in lexer if not re.match(r"[A-Z_]+=", word)]
    while words:
        end = next((number for number, word in enumerate(words) if set(word) <= set("&;|")), len(words))
        command, words = words[:end], words[end + 1 :]
        if command and re.fullmatch(r"(.*bin/)?strandline", command[0]):
            yield command[1:]


_GUIDES = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("conf/**/*.md")]

PAGES = [Page(file) for file in sorted(_GUIDES)]
DECISIONS = [Page(file) for file in sorted(ROOT.glob("docs/decisions/*.md"))]
"""They tell what was so when they were written."""
