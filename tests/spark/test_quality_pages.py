"""Quality pages of hostile documents: all text is escaped, and a browser runs no script."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession

from strandline.quality.expectations import Checker
from strandline.quality.gate import known_kinds
from strandline.quality.rules import parse_suites

MARK = "pwned"
RUN = f"document.title='{MARK}';document.body.append('{MARK}!')"
PAYLOADS = (
    f'<img src=x onerror="{RUN}">',
    f"'\"><script>{RUN}</script>",
    f'"/><svg onload="{RUN}"/>',
    f'</code></td></table></title></style><iframe srcdoc="<script>parent.{RUN}</script>">',
    f'<a href="javascript:{RUN}">{MARK}</a><style>@import "//{MARK}.example"</style><form action="//{MARK}.example">',
    f"{{{{ ''.__class__ }}}}{{% raw %}}<b>{MARK}</b>$a ${{unexpected_percent}} $$",
)
# What the templates of the pages consist of.
_TAGS = {
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "nav",
    "footer",
    "details",
    "summary",
    "hr",
    "a",
    "ul",
    "li",
    "h5",
    "h6",
    "p",
}
_TAGS |= {"div", "span", "strong", "i", "code", "pre", "table", "thead", "tbody", "tr", "th", "td"}
_ATTRIBUTES = {"lang", "charset", "name", "content", "http-equiv", "href", "id", "class", "style", "hidden"}
_OWN_LINK = re.compile(r"#section-\d+|(?:\.\./)*(?:index\.html|expectations/.+\.html|validations/.+\.html)", re.DOTALL)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@dataclass
class Elements(HTMLParser):
    """Return the markup of a page that is not from the templates, and its text."""

    foreign: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    policies: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_style = tag == "style"
        if tag == "meta" and dict(attrs).get("http-equiv") == "Content-Security-Policy":
            self.policies.append(dict(attrs)["content"] or "")
        elif dict(attrs).get("http-equiv"):
            self.foreign.append(f"meta {attrs}")
        if tag not in _TAGS:
            self.foreign.append(tag)
        for name, value in attrs:
            own = name in _ATTRIBUTES or name.startswith("data-")
            if (
                not own
                or (name == "href" and not _OWN_LINK.fullmatch(value or ""))
                or (name != "href" and MARK in (value or ""))
            ):
                self.foreign.append(f"{tag} {name}={value}")

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.foreign += [data] if MARK in data or "url(" in data or "@import" in data else []
        else:
            self.text.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False if tag == "style" else self._in_style


@pytest.fixture(scope="module")
def pages(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return all pages of a run with hostile keys, values, columns and suite. Many checks fail or break."""
    first = PAYLOADS[0]
    rows = [(f"{number}{payload}", payload, first, number) for number, payload in enumerate(PAYLOADS)]
    schema = f"_key STRING, a STRING, `{first}` STRING, n INT"
    found = spark.createDataFrame([*rows, ("x", "a", None, 1)], schema).coalesce(1)
    of_a = [
        {"type": "expect_column_values_to_be_in_set", "value_set": ["z", *PAYLOADS[3:4]]},
        {"type": "expect_column_values_to_match_regex", "regex": "^" + re.escape(PAYLOADS[1])},
        {"type": "expect_column_distinct_values_to_be_in_set", "value_set": ["z"]},
        {"type": "expect_column_most_common_value_to_be_in_set", "value_set": ["z"]},
        {"type": "expect_column_values_to_match_json_schema", "json_schema": {"type": first}},
        {"type": "expect_column_values_to_be_of_type", "type_": first},
        {
            "type": "expect_column_values_to_be_in_set",
            "value_set": ["z"],
            "notes": [first, f"[{MARK}](javascript:{RUN})"],
        },
    ]
    others = [
        {"type": "expect_column_values_to_not_be_null", "column": first},
        {"type": "expect_column_values_to_be_unique", "column": f"missing{first}"},
        {"type": "expect_column_min_to_be_between", "column": "n", "min_value": 50},
        {"type": "expect_table_columns_to_match_ordered_list", "column_list": list(PAYLOADS)},
        {"type": "expect_column_pair_values_to_be_equal", "column_A": "a", "column_B": "_key"},
        {"type": "unexpected_rows_expectation", "unexpected_rows_query": "select * from {batch}", "description": first},
    ]
    expectations = [*({"column": "a", **item} for item in of_a), *others]
    name = f"it's <img src=x onerror=document.title='{MARK}'> $a.yml"
    (suite,) = parse_suites({name: yaml.safe_dump({"table": "silver.a", "expectations": expectations})}, known_kinds())
    checker = Checker(tmp_path_factory.mktemp("docs"))
    outcomes = {check.outcome for check in checker.check(suite, found)}
    assert outcomes == {"failed", "error"}
    return sorted(checker.write_docs().parent.rglob("*.html"))


@pytest.mark.long
def test_texts_of_documents_and_suites_are_escaped_in_pages(pages: list[Path]) -> None:
    assert len(pages) == 4, "the index, the suite, and two runs of the suite: the counts, then the rows at fault"
    shown = ""
    for page in pages:
        elements = Elements()
        elements.feed(page.read_text(encoding="utf-8"))
        elements.close()
        assert elements.foreign == []
        assert [policy.split(";")[0] for policy in elements.policies] == ["default-src 'none'"]
        shown += "".join(elements.text)
    assert [payload for payload in PAYLOADS if payload not in shown] == [], (
        "whoever looks into a failure sees the value as it is"
    )


def test_pages_need_no_other_host_and_no_script(pages: list[Path]) -> None:
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert re.findall(r"<(?:script|link|img|iframe|object|embed)\b", text) == []
        assert re.findall(r"\b(?:src|href)=\"(?:https?:)?//", text) == []


@pytest.mark.long
def test_no_section_is_lost_where_a_count_has_no_percentage(pages: list[Path]) -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert re.search(rf"{len(PAYLOADS) + 1} unexpected values(?! found)", text), (
        "the values of expect_column_distinct_values_to_be_in_set"
    )


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH")
def test_a_browser_runs_no_script_of_a_page(pages: list[Path], tmp_path: Path) -> None:
    payload = f"<script>{RUN}</script>" + PAYLOADS[0]
    plain, guarded = tmp_path / "plain.html", tmp_path / "guarded.html"
    plain.write_text(f"<title>fine</title><body>{payload}", encoding="utf-8")
    with_policy = pages[0].read_text(encoding="utf-8")
    guarded.write_text(with_policy.replace("</body>", f"{payload}</body>"), encoding="utf-8")
    assert _runs_it(plain), "this browser would run it"
    assert not _runs_it(guarded), "the policy of the page forbids it, even where an escape is missing"
    assert [page.name for page in pages if _runs_it(page)] == []


def _runs_it(page: Path) -> bool:
    """Return True if the script of a payload has run."""
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--virtual-time-budget=2000",
    ]
    shown = subprocess.run(
        [str(CHROMIUM), *options, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    assert "</html>" in shown
    return f"<title>{MARK}</title>" in shown or bool(re.search(rf"{MARK}!\s*</body>", shown))
