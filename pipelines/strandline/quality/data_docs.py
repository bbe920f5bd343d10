"""Templates of the Data Docs pages. They show the content of Great Expectations with every text escaped.

The templates of the library escape only some texts, so markup in a document value would run in the browser.
Here Jinja escapes every text. A Content-Security-Policy on each page forbids scripts and other hosts.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResult
from great_expectations.render import RenderedDocumentContent
from great_expectations.render.renderer import ValidationResultsPageRenderer
from great_expectations.render.view import DefaultJinjaPageView
from jinja2 import ChoiceLoader, FileSystemLoader, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

_PARAMETER: Final = re.compile(r"(?<!\$)\$(?:(?P<name>[A-Za-z_][A-Za-z_0-9]*)|\{(?P<braced>[A-Za-z_][A-Za-z_0-9]*)\})")
_TAG: Final = re.compile(r"[a-z][a-z0-9]*")
_ATTRIBUTE: Final = re.compile(r"(?!on)[a-z][a-z-]*")
_ICON: Final = "html_success_icon"
_SCHEMA: Final = "formatted_json"


def site_config(folder: Path) -> dict[str, object]:
    """Return the Great Expectations configuration of a Data Docs site in *folder*."""
    view = {"class_name": Page.__name__, "module_name": __name__}
    return {
        "class_name": "SiteBuilder",
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder)},
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder", "view": view},
        "site_section_builders": {
            "expectations": {"view": view},
            "validations": {"view": view, "renderer": {"class_name": Results.__name__, "module_name": __name__}},
            "profiling": "None",
        },
    }


class Results(ValidationResultsPageRenderer):  # type: ignore[misc]  # why: the library is published without types
    """Renderer of a page with validation results."""

    def render(
        self, validation_results: ExpectationSuiteValidationResult, suite_parameters: Any = None
    ) -> RenderedDocumentContent:
        """Complete the results that the renderer of the library cannot show, then render the page."""
        for result in validation_results.results:
            _fill_missing_percentage(result.result)
        return super().render(validation_results, suite_parameters)


def _fill_missing_percentage(result: dict[str, Any] | None) -> None:
    """Move the count of unexpected values to the observed value if the result has no percentage of rows.

    ``expect_column_distinct_values_to_be_in_set`` counts values, not rows. The library renderer requires a percentage
    for every count. Without it, the page lacks the section (KeyError: 'unexpected_percent').
    """
    if result and result.get("unexpected_count") and not {"unexpected_percent", "element_count"} <= result.keys():
        if result.get("observed_value") is None:
            result["observed_value"] = f"{result['unexpected_count']} unexpected values"
        result["unexpected_count"] = 0


class Page(DefaultJinjaPageView):  # type: ignore[misc]  # why: the library is published without types
    """View of every page, including the index. Every text is escaped unless a project template marks it as markup."""

    def __init__(self, custom_styles_directory: str | None = None, custom_views_directory: str | None = None) -> None:
        super().__init__(custom_styles_directory, custom_views_directory)
        project_templates = FileSystemLoader(Path(__file__).with_name("pages"))
        self.env.loader = ChoiceLoader([project_templates, self.env.loader])
        self.env.autoescape = True

    @pass_context
    def render_content_block(
        self, jinja_context: Context, content_block: Any, index: Any = None, content_block_id: Any = None
    ) -> Any:
        """Render a part of a page: markup made by a template, or plain text that the calling template escapes."""
        if isinstance(content_block, list):
            parts = (
                self.render_content_block(jinja_context, block, index, content_block_id) for block in content_block
            )
            return Markup("\n").join(Markup("<div>{}</div>").format("" if part is None else part) for part in parts)
        if not isinstance(content_block, Mapping) or content_block.get("content_block_type") is None:
            return "" if content_block is None else content_block
        return Markup(super().render_content_block(jinja_context, content_block, index, content_block_id))

    def render_string_template(self, template: Any) -> Any:
        """Render a text with parameters. A parameter with a style gets its own HTML element."""
        if not isinstance(template, Mapping):
            return template
        styling = template.get("styling") or {}
        styles, default = styling.get("params") or {}, styling.get("default")
        parameters = {}
        for name, value in (template.get("params") or {}).items():
            style = styles.get(name, default)
            parameters[name] = escape(_text(name, value)) if style is None else self._element(style, _text(name, value))
        content = _substituted(str(template.get("template") or ""), parameters)
        if "tooltip" in template:
            content += Markup('<span class="tooltip">{}</span>').format(template["tooltip"].get("content", ""))
        return self._element({**styling, "tag": template.get("tag", "span")}, content)

    def _element(self, style: Mapping[str, Any], content: object) -> Markup:
        tag = str(style.get("tag", "span"))
        name = tag if _TAG.fullmatch(tag) else "span"
        return Markup("<{} {}>{}</{}>").format(Markup(name), self.render_styling(style), content, Markup(name))

    def render_styling(self, styling: Mapping[str, Any]) -> Markup:
        """Render the attributes of an element: class, style and others. Event handlers are left out."""
        attributes = {
            str(name): value
            for name, value in (styling.get("attributes") or {}).items()
            if _ATTRIBUTE.fullmatch(str(name))
        }
        attributes["class"] = " ".join(map(str, styling.get("classes") or ())) or None
        attributes["style"] = (
            " ".join(f"{name}:{value};" for name, value in (styling.get("styles") or {}).items()) or None
        )
        return Markup(" ").join(
            Markup('{}="{}"').format(Markup(name), value) for name, value in attributes.items() if value is not None
        )

    def attributes_dict_to_html_string(self, attributes_dict: Mapping[str, Any], prefix: str = "") -> Markup:
        return self.render_styling(
            {"attributes": {f"{prefix}-{name}" if prefix else name: value for name, value in attributes_dict.items()}}
        )

    def render_markdown(self, markdown: Any) -> Any:
        """Return the notes of a suite unchanged. The template escapes them."""
        return markdown


def _text(name: str, value: Any) -> object:
    """Return a parameter as text.

    The library passes two parameters as markup: the icon of a result, and a JSON schema that is already escaped.
    """
    if name == _ICON:
        return Markup('<span class="{}"></span>').format("passed" if "text-success" in str(value) else "failed")
    if name == _SCHEMA:
        return html.unescape(str(value).removeprefix("<pre>").removesuffix("</pre>"))
    return value


def _substituted(template: str, parameters: Mapping[str, Markup]) -> Markup:
    """Return *template* with its parameters inserted and all other text escaped."""
    filled, end = Markup(), 0
    for match in _PARAMETER.finditer(template):
        value = parameters.get(match["name"] or match["braced"])
        if value is not None:
            filled += escape(template[end : match.start()]) + value
            end = match.end()
    return filled + escape(template[end:])
