"""The command's own parser, asked without executing anything."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import typer

from strandline.cli import app


def parsed(arguments: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """The verb's path and the values of the global options. Raises the parser's own exceptions."""
    command = _command()
    context = command.make_context("strandline", list(arguments))
    options, path = dict(context.params), []
    while hasattr(command, "resolve_command"):
        # why private: Click fills it on every version; the public name for the same list warns
        words = [*context._protected_args, *context.args]
        if not words and command.invoke_without_command:
            break
        name, command, rest = command.resolve_command(context, words)
        path.append(name)
        context = command.make_context(name, rest, parent=context)
    return path, options


@cache
def _command() -> Any:
    return typer.main.get_command(app)
