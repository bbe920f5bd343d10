from __future__ import annotations

from pathlib import Path

import pytest

from strandline.demo.files import GOLD
from strandline.errors import ConfigurationError
from strandline.gold.graph import parse
from strandline.gold.sql_files import load_graph
from strandline.gold.statement import parse_statement
from strandline.model.tables import TableName, safe_name


def _tables(sql: str) -> list[str]:
    statement, problems = parse_statement(sql)
    assert statement is not None
    assert problems == []
    return [str(table) for table in statement.tables()]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select 1", []),
        ("select * from silver.flights", ["silver.flights"]),
        ("SELECT * FROM Silver.`Flights` f JOIN `gold`.x USING (a)", ["silver.flights", "gold.x"]),
        ("-- from silver.no\nselect 'from silver.no' /* silver.no */ from bronze.mongo", ["bronze.mongo"]),
        ("with flights as (select * from silver.flights) select * from flights", ["silver.flights"]),
        ("with a as (select 1), b as (select * from a) select * from b join a", []),
        ("with recursive a as (select 1 as n union all select n + 1 from a) select * from a", []),
        ("with a as (select 1) select * from (with b as (select * from a) select * from b) t", []),
        ("with a as (select 1) select * from A", []),
        (
            "select 1 where exists (select 1 from silver.a where b in (select c from silver.b))",
            ["silver.a", "silver.b"],
        ),
        ("select (select max(x) from gold.y) from silver.a union all select * from silver.a", ["gold.y", "silver.a"]),
        ("select * from silver.a lateral view explode(events) e as event", ["silver.a"]),
        ("select * from silver.a, lateral (select explode(a.events)) e", ["silver.a"]),
        ("select * from range(10) r cross join silver.a", ["silver.a"]),
        ("select * from silver.flights version as of 3", ["silver.flights"]),
        ("from silver.a select b", ["silver.a"]),
        ("(select * from silver.a);\n-- the end", ["silver.a"]),
        ("select * from silver /* here */ . /* and */ flights", ["silver.flights"]),
        ("select * from control.quality", ["control.quality"]),
        ("select silver.`order-lines.v2`.a from silver.`order-lines.v2`", [f"silver.{safe_name('order-lines.v2')}"]),
        ("select * from silver.`Größe`", [f"silver.{safe_name('Größe')}"]),
    ],
)
def test_references_are_read_from_the_sql(sql: str, expected: list[str]) -> None:
    assert _tables(sql) == expected


@pytest.mark.parametrize(
    ("sql", "line", "text"),
    [
        ("", 1, "no query in it"),
        ("-- nothing\n/* at all */", 1, "no query in it"),
        ("select 1;\nselect 2", 2, "more than one statement"),
        ("drop table silver.flights", 1, "DROP is not a query"),
        ("insert into silver.a select 1", 1, "INSERT is not a query"),
        ("with a as (select 1) insert into silver.a select * from a", 1, "WITH is not a query"),
        ("show tables", 1, "SHOW is not a query"),
        ("select 'abc", 1, "not closed"),
        ("select *\nfrom where", 2, "Expected table name"),
        ("select " + "(" * 3000 + "1" + ")" * 3000, 1, "nested too deeply"),
        ("select *\nfrom flights", 2, "flights has no layer, write silver.flights"),
        ("select * from `silver.flights`", 1, "has no layer"),
        ("select * from cat.silver.flights", 1, "too many parts"),
        ("select * from a.b.c.d", 1, "too many parts"),
        ("select * from parquet.`/etc/passwd`", 1, "there is no layer parquet"),
        ("select *\n\nfrom slver.flights", 3, "there is no layer slver (did you mean silver?)"),
        ("select * from identifier('silver.' || 'flights')", 1, "hides which table it is"),
        ("with b as (select * from a), a as (select 1) select * from b", 1, "a has no layer"),
        ("with a as (select * from a) select * from a", 1, "a has no layer"),
        ("select * from (with a as (select 1) select * from a) t join a", 1, "a has no layer"),
    ],
)
def test_sql_other_than_one_query_over_layers_is_refused_with_its_line(sql: str, line: int, text: str) -> None:
    _, problems = parse_statement(sql)
    assert [problem.line for problem in problems] == [line]
    assert text in problems[0].text
    assert "\n" not in problems[0].text


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select * from silver.flights", "select * from <silver.flights> AS `flights`"),
        ("select f.a from silver.flights f", "select f.a from <silver.flights> f"),
        (
            "select silver.flights.a, Silver.Flights.delay.departure from silver.flights",
            "select flights.a, Flights.delay.departure from <silver.flights> AS `flights`",
        ),
        ("select silver.flights.* from silver.flights", "select flights.* from <silver.flights> AS `flights`"),
        ("select silver.a.b from gold.x silver", "select silver.a.b from <gold.x> silver"),
        (
            "select 'it''s silver.flights' -- silver.flights\nfrom silver.flights a",
            "select 'it''s silver.flights' -- silver.flights\nfrom <silver.flights> a",
        ),
        ("-- größe 😀\r\nselect '😀' from silver /*😀*/ . flights a -- 😀", "select '😀' from <silver.flights> a"),
        ("select * from silver.flights version as of 3", "select * from <silver.flights> version as of 3"),
        ("select * from silver.flights;;  -- end", "select * from <silver.flights> AS `flights`"),
        (
            "with flights as (select * from silver.flights) select * from flights",
            "with flights as (select * from <silver.flights> AS `flights`) select * from flights",
        ),
    ],
)
def test_rewriting_touches_nothing_but_the_names(sql: str, expected: str) -> None:
    statement, _ = parse_statement(sql)
    assert statement is not None
    assert statement.rewrite(lambda table: f"<{table}>") == expected


def test_order_puts_everything_after_what_it_reads_and_is_otherwise_by_name() -> None:
    graph = parse(
        {
            "z.sql": "select * from silver.a",
            "a.sql": "select * from gold.z join gold.m",
            "m.sql": "select * from gold.z where exists (select 1 from bronze.mongo)",
            "b.sql": "select 1",
        }
    )
    assert [node.name for node in graph.order()] == ["b", "z", "m", "a"]
    assert [node.name for node in graph.order(["gold.m"])] == ["z", "m"]
    with pytest.raises(ConfigurationError, match=r"no gold\.zz \(did you mean z\?\)"):
        graph.order(["zz"])


def test_a_chain_of_a_thousand_files_is_ordered() -> None:
    files = {f"n{number:04}.sql": f"select * from gold.n{number + 1:04}" for number in range(1000)} | {
        "n1000.sql": "select 1"
    }
    assert [node.name for node in parse(files).order()][:2] == ["n1000", "n0999"]


def test_header_is_carried_and_goes_on_in_indented_lines() -> None:
    node = parse(
        {
            "a.sql": "-- Materialized: table\n-- description: how: many\n--   and why\n"
            "-- prose, not more\nselect 1 -- description: no"
        }
    ).nodes["a"]
    assert (node.materialized, node.header.description, node.table) == (
        "table",
        "how: many and why",
        TableName("gold", "a"),
    )
    assert parse({"a.sql": "select 1"}).nodes["a"].materialized == "view"


@pytest.mark.parametrize(
    ("files", "messages"),
    [
        ({"a.sql": "select *\nfrom gold.a"}, ["a.sql:2: cycle gold.a → gold.a"]),
        (
            {
                "a.sql": "select * from gold.b",
                "b.sql": "select 1\nfrom gold.c",
                "c.sql": "select * from gold.a",
                "d.sql": "select * from gold.a",
            },
            ["a.sql:1: cycle gold.a → gold.b → gold.c → gold.a"],
        ),
        (
            {
                "a.sql": "select * from gold.b",
                "b.sql": "select * from gold.a",
                "c.sql": "select * from gold.d",
                "d.sql": "select * from gold.c",
            },
            ["a.sql:1: cycle gold.a → gold.b → gold.a", "c.sql:1: cycle gold.c → gold.d → gold.c"],
        ),
        (
            {"a.sql": "select *\nfrom gold.nothing", "nothing_at_all.sql": "select 1"},
            ["a.sql:2: there is no gold.nothing (did you mean nothing_at_all?)"],
        ),
        ({"a.sql": "select * from gold.b", "b.sql": "drop table x"}, ["b.sql:1: DROP is not a query"]),
        ({"x/a.sql": "select 1", "y/a.sql": "select 1"}, ["y/a.sql:1: gold.a is defined by x/a.sql, too"]),
        ({"A-b.sql": "select 1"}, ["A-b.sql:1: 'A-b' cannot name a table"]),
        (
            {"a.sql": "-- materialised: view\nselect 1"},
            ["a.sql:1: unknown header materialised (did you mean materialized?)"],
        ),
        ({"a.sql": "\n-- materialized: tabel\nselect 1"}, ["a.sql:2: materialized: tabel (did you mean table?)"]),
        ({"a.sql": "\n-- materialized: incremental\nselect 1"}, ["a.sql:2: incremental needs keys"]),
        ({"a.sql": "-- keys: x\nselect 1 as x"}, ["a.sql:1: keys are for materialized: incremental, this is a view"]),
        (
            {"a.sql": "-- materialized: incremental\n-- keys: x\nselect x\nfrom gold.b", "b.sql": "select 1 as x"},
            ["a.sql:4: gold.b is a view, so it does not tell which rows changed"],
        ),
        (
            {
                "a.sql": "-- materialized: incremental\n-- keys: x\nselect b.x\nfrom silver.b join gold.c on b.x = c.x",
                "c.sql": "select * from gold.d",
                "d.sql": "select * from silver.b",
            },
            ["a.sql:4: silver.b is read through a view, too"],
        ),
        ({"a.sql": "-- description: a\n-- description: b\nselect 1"}, ["a.sql:2: description is given twice"]),
        (
            {"a.sql": "select * from x", "b.sql": "select 'x", "c.sql": "select * from gold.q"},
            ["a.sql:1: x has no layer", "b.sql:1: not SQL", "c.sql:1: there is no gold.q"],
        ),
    ],
)
def test_every_problem_is_named_at_once_with_file_and_line(files: dict[str, str], messages: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(files)
    assert all(message in caught.value.message for message in messages), caught.value.message
    assert len(caught.value.message.split("; ")) == len(messages)
    assert "\n" not in str(caught.value)


def test_the_demos_files_are_a_graph_and_no_folder_is_an_empty_one() -> None:
    assert load_graph(None).order() == []
    graph = load_graph(GOLD)
    assert {"on_time_performance", "delay_by_weather", "fleet_age"} == set(graph.nodes)
    assert all(node.header.description for node in graph.nodes.values())


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be read: No such file or directory → correct gold\.sql_dir"):
        load_graph(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("sql", "keys", "expected"),
    [
        ("select carrier, count(*) n from silver.a group by carrier", ["carrier"], ["carrier"]),
        (
            "select date_trunc('day', f.at.departure) as day"
            " from silver.a f left join silver.b on b.x = f.x group by 1",
            ["day"],
            ["DATE_TRUNC('DAY', at.departure)"],
        ),
        ("select silver.a.x, to_date(y) as d, sum(z) from silver.a group by all", ["x", "d"], ["x", "TO_DATE(y)"]),
        ("with w as (select x as y from silver.a) select w.y as k, 1 from w left join silver.b on true", ["k"], ["x"]),
        ("select s.k from (select distinct b.`o``dd` as k from silver.a as b) s", ["k"], ["`o``dd`"]),
        ("select x, rank() over (partition by x, y order by z) from silver.a", ["x"], ["x"]),
        ("select COALESCE(A, 'X') x, max(b) from silver.a group by coalesce(a, 'X')", ["x"], ["COALESCE(A, 'X')"]),
    ],
)
def test_the_keys_of_an_incremental_table_are_followed_to_their_table(
    sql: str, keys: list[str], expected: list[str]
) -> None:
    node = parse({"n.sql": f"-- materialized: incremental\n-- keys: {', '.join(keys)}\n{sql}"}).nodes["n"]
    assert node.key_lineage is not None
    assert (node.key_lineage.table, list(node.key_lineage.keys)) == (TableName("silver", "a"), expected)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("select x\nfrom silver.a\nlimit 3", "n.sql:5: LIMIT looks at rows of all keys"),
        ("(select x from silver.a) limit 3", "n.sql:3: LIMIT looks at rows of all keys"),
        ("select s.x from ((select x from silver.a) order by x limit 3) s", "n.sql:3: LIMIT looks at rows of all keys"),
        ("select x from silver.a where d < date 'today'", "n.sql:3: date 'today' changes by itself"),
        ("select x, uniform(0, 9) from silver.a", "n.sql:3: uniform() changes by itself"),
        (
            "select x, net(y)\nfrom silver.a",
            "n.sql:3: net() is none of Spark's own functions, so it may change by itself",
        ),
        (
            "select coalesce(a, 'X') as x, rank() over (partition by coalesce(a, 'x') order by b) from silver.a",
            "n.sql:3: a window must PARTITION BY every key",
        ),
        ("select x, rank() over (order by y) from silver.a", "n.sql:3: a window must PARTITION BY every key"),
        ("select x, y, count(*) from silver.a\ngroup by y", "n.sql:4: GROUP BY must hold every key, x is missing"),
        ("select y as x, count(*) from silver.a group by cube(y)", "make rows without a key"),
        ("select x from silver.a union all select x from silver.b", "n.sql:3: UNION and its like"),
        ("select a.x from silver.a\nfull join silver.b on a.x = b.x", "n.sql:4: FULL JOIN"),
        (
            "select x from ((select x from silver.a) a\nfull join silver.b on a.x = b.x) s",
            "n.sql:3: a join in parentheses cannot be followed",
        ),
        ("select x from (select y as x, z from silver.a) s(z, x)", "n.sql:3: columns renamed by s(z, x)"),
        ("select x from silver.a as s(z, x)", "n.sql:3: columns renamed by s(z, x)"),
        ("with s(z, x) as (select y as x, z from silver.a) select x from s", "n.sql:3: columns renamed by s(z, x)"),
        ("select b.x from silver.a join silver.b on a.x = b.x", "n.sql:3: key b.x: write a.b.x"),
        ("select x from silver.a join silver.b on a.x = b.x", "n.sql:3: key x: write a.x"),
        ("select x from silver.a where y in (select y from silver.a)", "n.sql:3: silver.a is read 2 times"),
        ("with w as (select x from silver.a)\nselect w.x from w join w v on v.x = w.x", "n.sql:4: w is read 2 times"),
        ("select x, now() from silver.a", "n.sql:3: now() changes by itself"),
        ("select x from silver.a version as of 3", "is read at a fixed version"),
        ("select max(x) as x from silver.a", "n.sql:3: MAX(x) cannot be a key"),
        ("select 1 as x from silver.a", "it is the same in every row"),
        ("select upper(x) as x from (select x from silver.a) s", "must be taken as it is from s"),
        ("select y from silver.a", "n.sql:2: keys: the result has no column x (there is: y)"),
        ("select 1 as x", "there is no FROM"),
    ],
)
def test_sql_that_cannot_be_incremental_is_refused_with_its_line(sql: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse({"n.sql": f"-- materialized: incremental\n-- keys: x\n{sql}"})
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("select now(), current_date, rand() from silver.a", ("now()", "current_date()", "rand()")),
        ("select unix_timestamp() from silver.a", ("unix_timestamp()",)),
        ("select unix_timestamp(x), 'now()', `current_date`, now from silver.a", ()),
        ("select * from gold.below", ("uuid()",)),
        ("select getdate(), sysdate(), current_timezone()", ("getdate()", "sysdate()", "current_timezone()")),
        ("select input_file_name(), version() from silver.a", ("input_file_name()", "version()")),
        ("select `now`(), crm.lower(x), my_udf(x)", ("now()", "crm.lower()", "my_udf()")),
        ("select current_user, a.current_user, x as current_date from silver.a", ("current_user()",)),
        ("select * from read_files('x')", ("read_files()",)),
        ("select * from silver.a tablesample (10 percent)", ("TABLESAMPLE",)),
        ("select timestamp'12:30', date 'today UTC', date '2024-03-01'", ("timestamp '12:30'", "date 'today UTC'")),
        (
            "with w(p, q) as (select 1, 2) select /*+ broadcast(s) */ cast(p as decimal(9, 2)), h3_toparent(q, 3),"
            " percentile_cont(0.5) within group (order by q) over w2, try_cast(p as int), transform(z, e -> (e + 1)),"
            " timestampdiff(day, p, q), count(*) filter (where p in (1, 2)), left(p, 1), if(p = 1, date(q), r.t)"
            " from silver.w s(p, q) lateral view explode(o) e as z group by cube (p)"
            " having (p > 1) window w2 as (order by p)",
            (),
        ),
    ],
)
def test_volatile_functions_are_found(sql: str, names: tuple[str, ...]) -> None:
    graph = parse({"n.sql": sql, "below.sql": "select uuid()"})
    assert graph.volatile(graph.nodes["n"].statement) == names
