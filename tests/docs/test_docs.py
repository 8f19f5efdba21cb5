"""The documentation matches the declarations of the code, and its links have targets."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import causeway as cw
from causeway.core.vocabulary import REVERTED, REVERTED_SCHEMA, VALUE_SCHEMA, ValueHolder, ValueReason
from causeway.dataframes.lake_tables import MOVEMENT_COLUMNS
from causeway.programs.scalar_runner import SCALAR_SCHEMA
from causeway.protocols.contract import HEADERS_SCHEMA
from causeway.protocols.ibc.state import STATE_TABLES
from causeway.protocols.ic.state import STATE_TABLES as IC_TABLES
from causeway.protocols.shared.events import LEDGER_LOGS
from causeway.protocols.shared.messages import OUTBOUND_SCHEMA
from causeway.storage.table_schemas import TOPOLOGY_SCHEMAS, stamped_schema
from tests.audit.test_roots import RECORDED

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LAKE = (ROOT / "docs" / "reference" / "lake.md").read_text()
LOGS = {"outbound": OUTBOUND_SCHEMA, **LEDGER_LOGS, REVERTED: REVERTED_SCHEMA, "headers": HEADERS_SCHEMA}
LOGS["value"] = VALUE_SCHEMA
LOG_TABLES = {name: stamped_schema(schema) for name, schema in LOGS.items()}
STATE = {name: table.schema for name, table in IC_TABLES.items()}
DECLARED = {**TOPOLOGY_SCHEMAS, **LOG_TABLES, **STATE, "program_<class>": SCALAR_SCHEMA}


def documented(table: str) -> list[tuple[str, str, str]]:
    """Return the rows (column, type, meaning) of the first list of columns in a table's section."""
    section = LAKE.split(f"\n### `{table}`\n", 1)[1].split("\n#", 1)[0]
    listed = section.split("| column | type | meaning |\n|---|---|---|\n", 1)[1]
    rows = []
    for line in listed.splitlines():
        match = re.fullmatch(r"\| `([^`]+)` \| ([^|]+) \| (.+) \|", line)
        if match is None:
            break
        rows.append((match[1], match[2], match[3]))
    return rows


def type_name(kind: pa.DataType) -> str:
    return type_name(kind.value_type) if pa.types.is_dictionary(kind) else str(kind)


@pytest.mark.parametrize("table", DECLARED)
def test_lake_page_lists_every_column(table: str) -> None:
    found = [(name, kind) for name, kind, _ in documented(table)]
    assert found == [(field.name, type_name(field.type)) for field in DECLARED[table]]


ZONES = (ROOT / "docs" / "reference" / "lake-ibc.md").read_text()


@pytest.mark.parametrize("table", STATE_TABLES)
def test_zones_page_lists_every_column(table: str) -> None:
    section = ZONES.split(f"\n## `{table}`\n", 1)[1].split("\n#", 1)[0]
    listed = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| .+ \|$", section, re.M)
    assert listed == [(field.name, type_name(field.type)) for field in STATE_TABLES[table].schema]


def test_zones_page_has_no_other_tables() -> None:
    assert re.findall(r"^## `(.+)`$", ZONES, re.M) == list(STATE_TABLES)


def test_lake_page_has_no_other_tables() -> None:
    assert set(re.findall(r"^### `(.+)`$", LAKE, re.M)) == {*DECLARED, "calls", "movements"}


def test_movement_columns_match_the_code() -> None:
    assert {name: meaning for name, _, meaning in documented("movements")} == dict(MOVEMENT_COLUMNS)


@pytest.mark.parametrize("names", [ValueReason, ValueHolder], ids=lambda names: names.__name__)
def test_lake_page_lists_holders_of_value_and_movement_causes(
    names: type[ValueReason] | type[ValueHolder],
) -> None:
    column = {ValueReason: "why", ValueHolder: "holder"}[names]
    section = LAKE.split("\n### `value`\n", 1)[1].split("\n#", 1)[0]
    listed = section.split(f"| {column} | name |", 1)[1]
    found = re.findall(r"^\| (\d+) \| `(\w+)` \|", listed.split("\n\n", 1)[0], re.M)
    assert found == [(str(int(item)), item.name.lower()) for item in names]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_have_targets(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_documentation_index_names_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        place = page.relative_to(ROOT / "docs").as_posix()
        if not place.startswith("decisions/0"):
            assert place == "README.md" or f"({place})" in index, place


def test_site_has_every_page_of_index() -> None:
    listed = re.findall(r": ([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    index = re.findall(
        r"\]\(((?!\.\.)[^)#]+\.md)\)", (ROOT / "docs" / "README.md").read_text().split("## Tutorials", 1)[1]
    )
    assert listed == index


def test_files_that_contributing_names_exist() -> None:
    page = re.sub(r"```.*?```", "", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.S)
    named = re.findall(r"`((?:src|tests|docs|packages)/[\w/.-]+)", page)
    assert len(named) > 10
    assert not [path for path in named if "NAME" not in path and not (ROOT / path).exists()]


def test_decisions_index_names_every_record_and_its_status() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    records = sorted(folder.glob("0*.md"))
    assert [int(record.name[:4]) for record in records] == list(range(1, len(records) + 1))
    for record in records:
        found = re.match(r"# (\d+)\. (.+)\n\nStatus: (accepted|superseded by \d{4})\n", record.read_text())
        assert found is not None and int(found[1]) == int(record.name[:4]), record.name
        assert f"| {record.name[:4]} [{found[2]}]({record.name}) | {found[3]} |" in index, record.name


def test_every_dependency_has_a_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (ROOT / "docs" / "reference" / "dependencies.md").read_text()
    for group in (project["dependencies"], *project["optional-dependencies"].values()):
        for requirement in group:
            package = re.split(r"[ ;<>=!~]", requirement)[0]
            assert f"`{package}`" in page, package


def test_every_finding_is_listed() -> None:
    scripts = sorted(path.name for path in (ROOT / "findings").glob("*.sh"))
    assert sorted(re.findall(r"\]\(([\w-]+\.sh)\)", (ROOT / "findings" / "README.md").read_text())) == scripts


PROOF_PAGES = [
    *(ROOT / "docs" / "reference" / "proofs").glob("*.md"),
    *(ROOT / "docs" / "how-to").glob("*-proofs-in-python.md"),
]


@pytest.mark.parametrize("page", sorted(PROOF_PAGES), ids=lambda page: page.stem)
def test_commitment_examples_match_the_code(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The blocks of a page are one program; its output is shown after each ``print``."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    program = "\n".join(blocks)
    exec(compile(program, page.name, "exec"), {"__name__": "example"})
    promised = [line.partition("  # ")[2] for line in program.splitlines() if line.lstrip().startswith("print(")]
    assert promised and capsys.readouterr().out.splitlines() == promised


def test_commitment_limits_match_the_code() -> None:
    page = (ROOT / "docs" / "reference" / "proofs" / "README.md").read_text().split("## Limits", 1)[1]
    rows = re.findall(r"^\| [^|]+ \| ([\d,]+) \| `([\w.]+)\.(\w+)` \|$", page, re.M)
    assert len(rows) == page.count("\n| ") - 1
    for value, module, name in rows:
        declared = getattr(importlib.import_module(f"causeway_proofs.{module}"), name)
        assert int(value.replace(",", "")) == declared, name


@pytest.mark.parametrize("name", ["ic", "icmp"])
def test_recorded_traffic_page_shows_the_roots(name: str) -> None:
    page = (ROOT / "docs" / "how-to" / "recorded-traffic.md").read_text()
    heights, root = RECORDED[name]
    (shown,) = re.findall(rf"protocol {name}, {heights} heights.*?^Root (\w+)$", page, re.M | re.S)
    assert shown == root


SCENARIO = """
[network]
executor = "in_process"
[[chains]]
name = "left"
[[chains]]
name = "right"
[[programs]]
name = "left-counter"
chain = "left"
program = "counter:Counter"
options = { friend = 1 }
balance = 100
[[programs]]
name = "right-counter"
chain = "right"
program = "counter:Counter"
[[programs]]
name = "caller"
chain = "left"
program = "caller"
[[programs]]
name = "tally"
chain = "right"
program = "counter:Tally"
[traffic]
source = "script"
[[traffic.send]]
tick = 0
to = "left-counter"
method = "go"
count = 3
[[traffic.send]]
tick = 0
to = "caller"
call = { receiver = "tally", text = "x" }
count = 5
"""


def test_programs_of_the_guide_run(tmp_path: Path, own_modules: None) -> None:
    page = (ROOT / "docs" / "tutorials" / "write-a-program.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    programs = [block for block in blocks if "class " in block]
    (trial,) = [block for block in blocks if "cw.Trial" in block]
    (test,) = [block for block in blocks if "cw.Deploy" in block]
    assert len(programs) == 2
    (tmp_path / "counter.py").write_text("\n".join(programs))
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    with cw.Network.from_scenario(tmp_path / "scenario.toml", lake=str(tmp_path / "lake")) as net:
        net.run()
        assert net.program_state("left-counter") == {"count": 3}
        assert net.program_state("right-counter") == {"count": 3}
        assert net.program_state("tally")["served"] == 5
        assert net.program_state("caller")["answered"] == 5
    from counter import Counter  # type: ignore[import-not-found]

    names: dict[str, Any] = {"cw": cw, "Counter": Counter}
    exec(trial + test, names)
    names["test_counts_what_it_is_told"]()
    names["test_on_a_network"]()


def test_readme_example_prints_its_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_modules: None) -> None:
    page = (ROOT / "README.md").read_text()
    module, session = re.findall(r"```python\n(.*?)```", page, re.S)
    (scenario,) = re.findall(r"```toml\n(.*?)```", page, re.S)
    (tmp_path / "hello.py").write_text(module)
    (tmp_path / "hello.toml").write_text(scenario)
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, Any] = {"said": []}
    exec(session.replace("print(", "said.append("), names)
    call, state, trace = names["said"]
    assert (call, state) == (b"hello you", {"heard": "hello world"}) and "visitor <- greeter b'hello world'" in trace
    with cw.Network.from_scenario(tmp_path / "hello.toml", {"network.executor": "in_process"}) as net:
        net.run()
        assert net.program_state("visitor") == state


def test_report_example_prints_its_output(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "how-to" / "report.md").read_text()
    (opening,) = re.findall(r"```py\n(.*?)```", page, re.S)
    exec("\n".join(line for line in opening.splitlines() if line.startswith(("import ", "from "))), {})
    (example, output) = re.findall(r"```(?:python|text)\n(.*?)```", page.split("```py\n", 1)[1], re.S)
    exec(compile(example, "report.md", "exec"), {})
    assert capsys.readouterr().out == output
