"""The walk through the code in docs/architecture.md leads to files and functions that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_REFERENCE = re.compile(r"`(pipelines/[\w/]+\.py)(?:::(\w+)(?:\.(\w+))?)?`")
_FOLDER = re.compile(r"`(pipelines/[\w/]+)`")


def names_in(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    return {node.name: node for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def test_every_file_and_function_that_the_page_names_exists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    references = _REFERENCE.findall(page)
    assert len(references) > 30
    for path, name, method in references:
        assert (ROOT / path).is_file(), path
        found = names_in(ast.parse((ROOT / path).read_text(encoding="utf-8")).body)
        assert not name or name in found, f"{path}::{name}"
        if method:
            holder = found[name]
            assert isinstance(holder, ast.ClassDef), name
            assert method in names_in(holder.body), f"{path}::{name}.{method}"
    assert all((ROOT / folder).is_dir() for folder in _FOLDER.findall(page))
