"""The part of Go's templates that the project's files use."""

from __future__ import annotations

import json
import re

import pytest

from strandline.project.go_template import render
from strandline.project.scaffold import BUNDLE, Project

_VALUES = {"name": "shop", "compute": "classic", "catalog": ""}


# Expected texts are those of Go's own text/template.
@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("a {{.name}} b", "a shop b"),
        ("a {{ .name }}\n", "a shop\n"),
        ('"{{"{{"}}secrets/a{{"}}"}}"', '"{{secrets/a}}"'),
        ('${{"{{"}} github.ref {{"}}"}}-x', "${{ github.ref }}-x"),
        ('a\n{{- if eq .compute "classic"}}\nb\n{{- else}}\nc\n{{- end}}\nd', "a\nb\nd"),
        ('a\n{{- if eq .compute "serverless"}}\nb\n{{- else}}\nc\n{{- end}}\nd', "a\nc\nd"),
        ('a{{if ne .catalog ""}}b{{if eq .name "shop"}}c{{else}}d{{end}}{{else}}e{{end}}f', "aef"),
        ('a{{if eq .catalog ""}}b{{if eq .name "x"}}c{{else}}{{.name}}{{end}}{{end}}f', "abshopf"),
        ("a {{- .name -}} b", "ashopb"),
        ("{ a } {{.name}} }", "{ a } shop }"),
    ],
)
def test_each_action_of_the_template_language_is_rendered(template: str, text: str) -> None:
    assert render(template, _VALUES) == text


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{.nme}}", "no value 'nme'"),
        ("{{range .name}}", "unknown action 'range .name'"),
        ('{{if eq .name "x"}}a', "a condition has no end"),
        ("a{{end}}", "unknown action 'end'"),
    ],
)
def test_an_invalid_go_template_is_refused(template: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        render(template, _VALUES)


def test_databricks_asks_for_every_value_of_the_template() -> None:
    schema = json.loads((BUNDLE / "databricks_template_schema.json").read_text(encoding="utf-8"))
    assert set(schema["properties"]) == set(vars(Project()))
    assert sorted(each["order"] for each in schema["properties"].values()) == list(range(1, 10))
    for name, each in schema["properties"].items():
        assert each["type"] == "string"
        assert each["description"]
        assert name == "catalog" or each["default"] == getattr(Project(), name)
        if "pattern" in each:
            assert re.fullmatch(each["pattern"], each["default"])
