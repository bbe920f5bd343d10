"""`strandline explain`: every page, and no text of the package that names a file which an installed wheel lacks."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner
from without_java import COMMAND

from hatch_build import pages as pages_of_wheel
from strandline.cli import app
from strandline.commands.explain import pages

ROOT = Path(__file__).parents[2]
_PACKAGE = ROOT / "pipelines" / "strandline"
_FILE_OF_CHECKOUT = re.compile(r"\b(?:docs/[\w./-]+\.md|conf/(?:quality/)?README\.md)")
_TOPIC = re.compile(r"strandline explain ([a-z-]+)")
_TEXTS = ("*.html", "*.j2", "*.json", "*.sql", "*.tmpl", "*.yml")


def texts() -> Iterator[tuple[str, str]]:
    """Strings of the package and its files of text, each with the name of its file."""
    for path in _PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield path.name, node.value
    for pattern in _TEXTS:
        for path in _PACKAGE.rglob(pattern):
            yield path.name, path.read_text(encoding="utf-8")


def shown(*arguments: str) -> str:
    return CliRunner().invoke(app, ["explain", *arguments], catch_exceptions=False).stdout


def test_no_text_names_a_file_that_a_wheel_lacks() -> None:
    named = [(file, found) for file, text in texts() for found in _FILE_OF_CHECKOUT.findall(text)]
    assert [found for found in named if found[0] != "explain.py"] == [], "explain.py says where the pages are"


def test_every_topic_that_a_text_names_is_a_page() -> None:
    named = {topic for _, text in texts() for topic in _TOPIC.findall(text) if topic != "lists"}
    assert len(named) > 10
    assert named - pages().keys() == set()


def test_the_list_has_each_page_with_its_title() -> None:
    lines = shown().splitlines()
    assert len(lines) == len(pages())
    assert "upgrades         Upgrades" in lines


@pytest.mark.parametrize("topic", pages())
def test_a_page_is_shown_whole_and_its_links_are_commands(topic: str) -> None:
    text = shown(topic)
    assert text.startswith("# ")
    assert len(text) > 500
    assert not re.search(r"\]\([a-z-]+\.md", text)


def test_a_misspelt_topic_is_one_line_with_the_nearest() -> None:
    result = CliRunner().invoke(app, ["explain", "catpure"])
    assert "there is no page 'catpure'" in str(result.exception)
    assert "capture" in str(result.exception)
    assert "strandline explain lists them" in str(result.exception)


def test_a_reader_that_ends_early_leaves_no_traceback() -> None:
    """As `strandline explain settings | head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [COMMAND, "explain", "settings"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert done.stderr == ""


def test_a_wheel_has_the_pages_of_a_checkout() -> None:
    assert {name.removesuffix(".md"): ROOT / file for file, name in pages_of_wheel()} == pages()
