"""Compared protocols: figures against independent counts, equal traffic, faults."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import duckdb
import pytest
from causeway_proofs.errors import InvalidInput
from rich.console import Console

from causeway.cli import main
from causeway.cli.commands.report import read_comparison
from causeway.cli.commands.run import execute_run
from causeway.cli.output.comparison import show_comparison
from causeway.compare.comparison import (
    Comparison,
    ComparisonColumn,
    IngressDiffers,
    build_column,
    describe_difference,
    digest_ingress,
    protocol_guarantees,
    same_ingress,
)
from causeway.compare.faults import try_faults
from causeway.compare.runs import PlannedRun, plan_runs, read_outcome, write_outcome
from causeway.compare.table import comparison_rows, section_data
from causeway.network.network import LakeNetwork
from causeway.protocols.ic.kernel import IcKernel
from causeway.protocols.registry import find_protocol, protocol_names, register_protocol
from causeway.protocols.shared.semantics import TRIES
from causeway.storage.lake import Lake

EXAMPLES = Path(__file__).parents[2] / "examples"

SCENARIO = """
[network]
seed = 3
executor = "in_process"
seconds_per_tick = 6
[protocols.xdm]
archiving_depth = 3
challenge_period = 4
[[chains]]
count = 3
prefix = "chain-"
[traffic]
source = "generated"
messages = 40
ticks = 5
channels = 2
payload_bytes = [16, 64]
"""


def write_scenario(folder: Path, text: str = SCENARIO) -> str:
    path = folder / "scenario.toml"
    path.write_text(text)
    return str(path)


def column_of(one: PlannedRun, lake: Path) -> ComparisonColumn:
    outcome, _ = execute_run(Path(one.scenario.path), dict(one.overrides), str(lake), lambda ledger, summary: None)
    return build_column(one, str(lake), json.loads(json.dumps(outcome.as_json())))


def compared(path: str, folder: Path, protocols: list[str], **overrides: str) -> Comparison:
    planned = plan_runs(path, protocols, overrides)
    columns = [column_of(one, folder / one.protocol) for one in planned]
    return Comparison("scenario.toml", 6.0, columns, {one.protocol: protocol_guarantees(one) for one in planned})


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    return compared(write_scenario(folder), folder, protocol_names()), folder


def test_all_protocols_ingest_the_same_traffic_and_pass(four):
    comparison, _ = four
    found = comparison.as_json()
    assert comparison.holds
    assert found["traffic"]["messages"] == 40
    assert {one.taken.digest for one in comparison.columns} == {found["traffic"]["digest"]}
    for name in protocol_names():
        assert found["columns"][name]["calls"]["answered"] == 40
        assert found["columns"][name]["audit"]["verdict"] == "PASSED"
        assert found["measured"]["columns"][name]["hashes"]


@pytest.mark.parametrize("name", protocol_names())
def test_figures_match_the_lakes(four, name):
    comparison, folder = four
    found = next(one.content for one in comparison.columns if one.protocol == name)
    files = {
        table: [str(folder / name / path) for path in Lake.at(str(folder / name)).log_files(table)]
        for table in ("outbound", "events", "headers")
    }
    sql = duckdb.connect()
    for table, paths in files.items():
        sql.execute(f"create view {table} as select * from read_parquet({paths})")
    between = "source <> destination and kind between 1 and 3"
    counted = f"select (select count(*) from outbound where {between}), (select count(*) from headers)"
    assert sql.execute(counted).fetchall() == [(found["messages"], found["headers"])]
    answers = """
        select quantile_disc(e.tick - o.sent_tick, 0.5), quantile_disc(e.tick - o.sent_tick, 0.99),
               max(e.tick - o.sent_tick), count(*)
        from (select sender, receiver, callback, min(sent_tick) as sent_tick from outbound
              where kind = 1 group by all) o
        join (select sender, receiver, callback, min(tick) as tick from events
              where kind = 2 and events & 8 > 0 group by all) e
        on e.receiver = o.sender and e.sender = o.receiver and e.callback = o.callback
    """
    ticks = found["latency"]["round_trip"]["ticks"]
    assert sql.execute(answers).fetchall() == [(ticks["p50"], ticks["p99"], ticks["max"], ticks["count"])]
    assert found["latency"]["round_trip"]["seconds"]["max"] == 6 * ticks["max"]
    assert sum(count for _, count in found["distribution"]["round_trip"]) == 40
    assert max(found["backlog"]["pending"]) == found["backlog"]["most"] > 0


@pytest.mark.slow
def test_proof_bytes_match_the_lakes(tmp_path):
    comparison = compared(write_scenario(tmp_path), tmp_path, ["xdm", "icmp"], **{"network.commit_every": "1"})
    counted = {one.protocol: one.content["proof_bytes"] for one in comparison.columns}
    sql = duckdb.connect()
    for table in ("envelopes", "bases", "nodes"):
        # With one height per commit, every height's state is in files, including the items of carriers.
        files = tmp_path / "xdm" / "heights" / "*" / f"{table}-*.parquet"
        sql.execute(f"create view {table} as select *, parse_path(filename)[-2] as height from '{files}'")
    # Four bytes, little endian, name a node.
    members = """
        select height, source, destination, ('0x' || substr(digits, 8 * i + 7, 2) || substr(digits, 8 * i + 5, 2)
            || substr(digits, 8 * i + 3, 2) || substr(digits, 8 * i + 1, 2))::bigint as id
        from (select *, hex(members) as digits, unnest(range(octet_length(members) // 4)) as i from envelopes)
    """
    nodes = f"""
        select sum(octet_length(node)) from ({members}) m join nodes n
        on n.height = m.height and n.source = m.source and n.destination = m.destination and n.number = m.id
    """
    [[one_base]] = sql.execute(
        "select max(n) from (select count(*) n from bases group by height, source, destination)"
    ).fetchall()
    assert one_base == 1
    bases = """
        select sum(octet_length(leaf) + octet_length(items) + octet_length(domain_proof))
        from envelopes join bases using (height, source, destination)
    """
    assert sql.execute(f"select ({nodes}) + ({bases})").fetchall() == [(counted["xdm"],)]
    # A root and the number of its chain for each queue of a block.
    sent = tmp_path / "icmp" / "heights" / "*" / "outbound-*.parquet"
    queues = f"select distinct source, destination, sent_tick from '{sent}' where source <> destination and kind < 4"
    assert sql.execute(f"select 36 * count(*) from ({queues})").fetchall() == [(counted["icmp"],)]


def test_fees_are_exact(four):
    comparison, folder = four
    fees = {one.protocol: one.content["fees"] for one in comparison.columns}
    assert fees["ic"] == fees["icmp"] == []
    paths = [str(folder / "xdm" / path) for path in Lake.at(str(folder / "xdm")).log_files("value")]
    for why, number in (("fee_held", 7), ("fee_burned", 8)):
        query = f"select sum(amount_low)::varchar from read_parquet({paths}) where why = {number} and asset = 0"
        [amount] = [fee["amount"] for fee in fees["xdm"] if fee["why"] == why]
        assert duckdb.execute(query).fetchall() == [(amount,)]
    paid = {fee["why"]: int(fee["amount"]) for fee in fees["ibc"]}
    assert paid["message_relayed"] == 20 * 80
    assert paid["header_relayed"] % 100 == 0 < paid["header_relayed"]


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["in_process", "spark"])
def test_comparison_is_independent_of_the_execution(four, tmp_path, executor, request):
    chosen = protocol_names()
    overrides = {"network.partitions": "2", "network.commit_every": "3", "network.executor": f'"{executor}"'}
    if executor == "spark":
        request.getfixturevalue("spark")
        overrides["network.master"] = '"local[2]"'
        chosen = ["ic", "xdm"]
    again = compared(write_scenario(tmp_path), tmp_path, chosen, **overrides).as_json()
    first = four[0].as_json()
    assert again["traffic"] == first["traffic"]
    assert again["columns"] == {name: first["columns"][name] for name in chosen}


class Deaf(IcKernel):
    """Leaves out the first user message of a tick."""

    def plan(self, state, chains, view, ingress, carried, tick):
        return super().plan(state, chains, view, ingress.slice(1), carried, tick)

    def round(self, state, chains, plan, inputs, tick):
        return super().round(state, chains, plan, replace(inputs, ingress=inputs.ingress.slice(1)), tick)


def test_protocol_that_ingests_less_traffic_is_detected(tmp_path):
    info = replace(find_protocol("ic"), name="deaf", kernel=f"{__name__}:Deaf")
    with register_protocol(info):
        [one] = plan_runs(write_scenario(tmp_path), ["deaf"], {})
        with pytest.raises(
            IngressDiffers, match=r"deaf: its chains were given 26 messages of user 0 to program 0, .* received 21"
        ):
            column_of(one, tmp_path / "deaf")


def test_column_with_other_traffic_fails_at_the_first_message(tmp_path):
    taken = []
    for place, text in enumerate(("left", "right")):
        send = f'[{{tick = 0, to = "alice", method = "a"}}, {{tick = 2, to = "alice", method = "b", text = "{text}"}}]'
        overrides = {
            "network.executor": '"in_process"',
            "traffic": f'{{source = "script", send = {send}}}',
            "network.protocol": f'"{("ic", "ibc")[place]}"',
        }
        lake = str(tmp_path / str(place))
        with LakeNetwork.from_scenario(EXAMPLES / "two_subnets.toml", overrides, lake=lake) as net:
            net.run()
        taken.append(digest_ingress(("ic", "ibc")[place], lake))
    assert describe_difference(taken[0], taken[0]) is None
    columns = [
        ComparisonColumn(one.protocol, content={"calls": {}}, taken=one) for one in (taken[0], taken[1], taken[0])
    ]
    columns.insert(0, ComparisonColumn("none", "its run failed"))
    found = same_ingress(columns)
    assert found == [*columns[:2], found[2], columns[3]]
    assert (found[2].content, found[2].failed) == (
        {},
        'ingress: tick 2, message 1: ic took in "b" of user 0 to program 0 on left (4 bytes 6c656674); '
        'ibc took in "b" of user 0 to program 0 on left (5 bytes 7269676874)',
    )


def assert_rows_add_up(found: dict[str, Any]) -> None:
    """Every message of a user and every call is in one row of the table, under each protocol.

    The programs of these scenarios make one call for each message that they receive.
    """
    groups = {
        group: [row for row in comparison_rows(found) if row.group == group] for group in ("messages of users", "calls")
    }
    for name, one in found["columns"].items():
        users, calls = ({row.what: int(row.values[name] or 0) for row in rows} for rows in groups.values())
        assert sum(users.values()) == found["traffic"]["messages"], (name, users)
        assert sum(calls.values()) == 2 * calls["sent"], (name, calls)
        assert calls["sent"] == users["received"] == one["ingress"]["received"]


HALTED = """
[[faults]]
kind = "halt"
chain = "chain-1"
from = 2
"""


def test_user_messages_to_a_halted_chain_are_counted(tmp_path):
    """Every protocol refuses them: no block will include them."""
    path = write_scenario(tmp_path, SCENARIO + HALTED)
    found = compared(path, tmp_path, protocol_names(), **{"network.ticks": "30"}).as_json()
    ingress = {name: one["ingress"] for name, one in found["columns"].items()}
    assert ingress == {name: {"received": 38, "refused": 2, "waiting": 0} for name in protocol_names()}
    assert found["traffic"]["messages"] == 40
    assert {one["calls"]["sent"] for one in found["columns"].values()} == {38}
    assert_rows_add_up(found)
    rows = {row.what: row.values for row in comparison_rows(found) if row.group == "messages of users"}
    assert rows["refused at ingress"] == dict.fromkeys(protocol_names(), 2)
    assert rows.get("waiting at ingress", dict.fromkeys(protocol_names(), 0)) == dict.fromkeys(protocol_names(), 0)


def test_internal_error_of_one_column_hides_no_other(tmp_path, capsys, monkeypatch):
    path = write_scenario(tmp_path)
    for one in plan_runs(path, ["ibc", "icmp"], {}):
        outcome, _ = execute_run(
            Path(path), dict(one.overrides), str(tmp_path / one.protocol), lambda ledger, summary: None
        )
        write_outcome(str(tmp_path), one, outcome.as_json())

    def check(protocol: str, *rest: Any) -> Any:
        assert protocol != "ibc", "no column"
        return digest_ingress(protocol, *rest)

    monkeypatch.setattr("causeway.compare.comparison.digest_ingress", check)
    command = ["compare", path, "--lake", str(tmp_path), "--resume", "--protocols", "ibc,icmp", "--faults", "none"]
    with pytest.raises(SystemExit, match="1"):
        main(command)
    lines = capsys.readouterr().out.splitlines()
    assert "ibc failed: unexpected AssertionError: no column (CAUSEWAY_DEBUG=1 shows the trace)" in lines
    assert [line.split() for line in lines if line.startswith(("Run ", "  sent "))] == [
        ["Run", "failed", "done"],
        ["sent", "-", "40"],
    ]
    assert lines[-2:] == ["Failed: ibc.", "icmp: PASSED"]


def test_each_protocol_has_its_own_options(tmp_path):
    text = SCENARIO.replace("[[chains]]", "[options]\nmax_signals = 5\n[[chains]]", 1)
    path = write_scenario(tmp_path, SCENARIO.replace("[[chains]]", '[options]\nprofile = "deployed"\n[[chains]]', 1))
    planned = {one.protocol: one for one in plan_runs(path, protocol_names(), {})}
    assert dict(planned["ic"].scenario.options) == {"profile": "deployed"}
    assert dict(planned["ibc"].scenario.options) == {}
    assert dict(planned["xdm"].scenario.options) == {"archiving_depth": 3, "challenge_period": 4}
    assert [name for name, one in planned.items() if one.note] == ["ibc", "icmp"]
    assert "[protocols.ibc]" in str(planned["ibc"].note)
    with pytest.raises(InvalidInput, match=r'protocols\.ipc: "ipc": no such protocol; did you mean ic?'):
        plan_runs(write_scenario(tmp_path, text.replace("protocols.xdm", "protocols.ipc")), ["ic"], {})


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("protocols.xdm.nope", "1", r"protocols\.xdm\.nope: unknown key; "),
        ("options.foo", "1", r"options\.foo: unknown key; "),
        ("protocols", "3", r"protocols: must be tables, as \[protocols\.ibc\]"),
        ("faults", "3", r"faults: 3: must be a list"),
    ],
)
def test_wrong_option_is_refused_before_any_run(tmp_path, key, value, line):
    with pytest.raises(InvalidInput, match=line):
        plan_runs(write_scenario(tmp_path), ["ic", "xdm"], {key: value})


def test_lake_is_refused_as_the_folder_of_lakes(four, capsys):
    comparison, folder = four
    scenario, lake = str(folder / "scenario.toml"), folder / comparison.columns[0].protocol
    before = sorted(lake.iterdir())
    with pytest.raises(SystemExit, match="2"):
        main(["compare", scenario, "--protocols", "ibc", "--lake", str(lake), "--faults", "none"])
    assert f"--lake: {lake}: is a lake; name a folder that is none" in capsys.readouterr().err
    assert sorted(lake.iterdir()) == before


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--lake", "{file}"), "--lake: {file}: {file} is a file; name a folder"),
        (("--lake", "{file}/below"), "--lake: {file}/below: {file} is a file; name a folder"),
        (("--set", "network.protocol=ibc"), "--set network.protocol: of each column; use --protocols"),
        (("--set", "network.lake=x"), "--set network.lake: of each column; use --lake"),
    ],
)
def test_meaningless_options_are_refused(tmp_path, capsys, options, line):
    file = write_scenario(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        main(["compare", file, "--protocols", "ibc", *(each.format(file=file) for each in options)])
    assert capsys.readouterr().err == f"causeway: {line.format(file=file)}\n"


def test_lakes_of_another_scenario_are_refused_before_any_run(four, tmp_path, capsys):
    other = write_scenario(tmp_path, SCENARIO.replace("seed = 3", "seed = 4"))
    with pytest.raises(SystemExit, match="2"):
        main(["compare", other, "--lake", str(four[1]), "--resume", "--protocols", "icmp,ic"])
    assert f"--lake: {four[1] / 'icmp'} is of another scenario: network.seed differs" in capsys.readouterr().err


def test_outcome_covers_the_requested_number_of_ticks(tmp_path):
    path = write_scenario(tmp_path)
    [few], [more] = (plan_runs(path, ["ic"], {"network.ticks": ticks}) for ticks in ("3", "8"))
    assert read_outcome(str(tmp_path), few) is None
    write_outcome(str(tmp_path), few, {"sent": 3})
    assert read_outcome(str(tmp_path), few) == {"sent": 3}
    assert read_outcome(str(tmp_path), more) is None


def test_failed_run_is_reported_without_violations(four):
    found = four[0].as_json()
    found["columns"]["ic"] = {"failed": "its disk is full"}

    def last_lines() -> list[str]:
        shown = StringIO()
        show_comparison(found, Console(file=shown, width=200))
        return shown.getvalue().splitlines()[-4:]

    assert last_lines() == ["Failed: ic.", "ibc: PASSED", "icmp: PASSED", "xdm: PASSED"]


def test_fault_of_another_protocol_is_refused_in_one_line(tmp_path):
    text = SCENARIO + '[[faults]]\nkind = "fork"\nchain = "chain-0"\ntick = 3\n'
    with pytest.raises(InvalidInput, match=r"faults\[0\]\.kind: 'fork': not all of .*: drop, halt") as refused:
        plan_runs(write_scenario(tmp_path, text), protocol_names(), {})
    assert "\n" not in str(refused.value)


def test_role_of_another_protocol_is_refused(tmp_path):
    text = SCENARIO.replace("[[chains]]\ncount", '[[chains]]\nname = "main"\nrole = "consensus"\n[[chains]]\ncount', 1)
    with pytest.raises(InvalidInput, match=r"chains\[0\]\.role: 'consensus'; allowed: .*\(under ic; compare"):
        plan_runs(write_scenario(tmp_path, text), ["xdm", "ic"], {})


def test_altered_proof_is_refused_without_effect(tmp_path):
    path = write_scenario(tmp_path)
    effect = try_faults(plan_runs(path, ["ic"], {}), path, ["altered"])["found"]["ic"]["altered"]
    assert any("RootHashMismatch" in why for why in effect["refused"]), effect
    assert (effect["audit"], effect["calls"]["answered"]) == ("PASSED", 40)
    assert effect["late"] > 0


def test_trial_omits_faults_that_changes_inject_and_heal(tmp_path):
    changes = """
[[changes]]
tick = 2
heal = [0]
inject = [{ kind = "drop", from = 2 }]
[[changes]]
tick = 3
heal = true
upgrade = [{ program = "idle", to = "echo" }]
"""
    idle = '[[programs]]\nname = "idle"\nchain = "chain-0"\nprogram = "echo"\n'
    path = write_scenario(tmp_path, SCENARIO + idle + HALTED + changes)
    trial = try_faults(plan_runs(path, ["ibc"], {}), path, ["late"])["found"]["ibc"]["late"]
    assert not trial["failed"] and trial["calls"]["answered"] == 40


@pytest.mark.slow
def test_each_fault_is_refused_by_its_rule_without_violation(tmp_path):
    path = write_scenario(tmp_path)
    found = try_faults(plan_runs(path, protocol_names(), {}), path)["found"]
    effects = [(name, what, effect) for name, of_one in found.items() for what, effect in of_one.items()]
    assert len(effects) == 4 * len(TRIES)
    for name, what, effect in effects:
        assert not effect["failed"], (name, what, effect)
        assert not effect["violated"] or what == "lost", (name, what, effect)
        if what in ("altered", "duplicated", "forged"):
            assert effect["refused"], (name, what, effect)
        if what == "late":
            assert effect["late"] > 0 == effect["calls"]["pending"], (name, what, effect)
        if what == "lost":
            assert effect["calls"]["pending"] > 0, (name, what, effect)


def test_page_has_every_row(four):
    found = four[0].as_json()
    data = section_data(found)
    assert [len(row["values"]) for row in data["rows"]] == [4] * len(data["rows"])
    assert list(data["guarantees"]) == found["protocols"]
    for name, table in data["guarantees"].items():
        assert [row[0] for row in table["rows"]] == list(found["topics"].values())
        judged = {row[3]: row[4]["verdict"] for row in table["rows"]}
        checks = found["columns"][name]["audit"]["checks"]
        assert judged["order"] == checks["order"]["verdict"] == "PASSED"
        assert judged[None] is None  # carriers, a third chain: no check
    for line in data["lines"]:
        assert all(len(values) + 1 == len(line["at"]) for values in line["series"].values())
    through = data["lines"][1]["series"]
    assert all(values[-1] == 100 for values in through.values())


def test_terminal_shows_a_table_of_guarantees_per_protocol(four):
    found = four[0].as_json()
    found["columns"]["ic"]["audit"]["checks"]["gaps"]["verdict"] = "FAILED"
    for width in (80, 200):
        shown = StringIO()
        show_comparison(found, Console(file=shown, width=width))
        tables = re.split(r"^Guarantees of (\w+),.*\n", shown.getvalue(), flags=re.M)
        assert tables[1::2] == found["protocols"]
        assert all(len(line) <= width for line in shown.getvalue().splitlines())
        (gaps,) = re.findall(r"^no message of a lane.*$", tables[2 * found["protocols"].index("ic") + 2], re.M)
        (row,) = [one for one in found["guarantees"]["ic"] if one["topic"] == "no_gaps"]
        how = [row["how"]] if width == 200 else []
        assert re.split(r"  +", gaps.strip())[1:] == ["yes", *how, row["reference"], "gaps", "FAILED"]


def test_page_and_terminal_show_equal_guarantees(four):
    text = (EXAMPLES.parent / "docs" / "how-to" / "compare.md").read_text()
    block = text.split("## What is guaranteed", 1)[1].split("```\n")[1]
    lines = block.split("...\n")[1].splitlines()
    shown = StringIO()
    show_comparison(four[0].as_json(), Console(file=shown, width=130))
    printed = [line.rstrip() for line in shown.getvalue().splitlines()]
    begin = printed.index(lines[0])
    assert printed[begin : begin + len(lines)] == lines and printed[begin + len(lines)] == ""


@pytest.mark.parametrize("number", ["1e400", "-5", "NaN", "9" * 400])
@pytest.mark.parametrize("key", ["sent", "seconds_per_tick", "p50", "peak_memory_bytes", "messages"])
def test_file_with_invalid_numbers_is_no_comparison(four, tmp_path, key, number):
    text = re.sub(rf'"{key}": [0-9.]+', f'"{key}": {number}', json.dumps(four[0].as_json()))
    (tmp_path / "compare.json").write_text(text)
    with pytest.raises(InvalidInput, match="is not what causeway compare --json prints"):
        read_comparison(tmp_path / "compare.json")


def test_file_with_an_unknown_word_for_a_guarantee_is_no_comparison(four, tmp_path):
    found = four[0].as_json()
    found["guarantees"]["ic"][0]["holds"] = "maybe"
    (tmp_path / "compare.json").write_text(json.dumps(found))
    with pytest.raises(InvalidInput, match="is not what causeway compare --json prints"):
        read_comparison(tmp_path / "compare.json")


def test_interval_line_reports_the_state_at_its_end(four):
    found = four[0].as_json()
    steps = {"ibc": [[2, 30], [4, 10]], "xdm": [[30, 10], [2_000, 30]]}
    for name, of_one in found["columns"].items():
        of_one["distribution"] = {"delivery": steps[name]} if name in steps else {}
    (line,) = section_data(found)["lines"][:1]
    assert line["log"] and line["at"][:4] == [0, 1, 2, 3] and line["at"][-1] == 2_001 and len(line["at"]) <= 242
    share = {
        (name, edge - 1): value
        for name, values in line["series"].items()
        for edge, value in zip(line["at"][1:], values, strict=True)
    }
    assert [share["ibc", tick] for tick in (1, 2, 3, 4)] == [0, 75, 75, 100]
    assert share["xdm", 2_000] == 100 and {value for (name, _), value in share.items() if name == "xdm"} == {0, 25, 100}
    found["columns"]["xdm"]["distribution"]["delivery"] = [[3, 10], [6, 30]]
    assert not section_data(found)["lines"][0]["log"]


CERTIFYING = """
[[programs]]
name = "map"
chain = "chain-0"
program = "certified_map"
"""


@pytest.mark.slow
def test_failed_protocol_hides_no_other_and_finished_runs_are_not_repeated(tmp_path):
    path, page = write_scenario(tmp_path, SCENARIO + CERTIFYING), tmp_path / "page.html"
    command = [sys.executable, "-m", "causeway", "compare", path, "--protocols", "ibc,ic", "--faults", "none", "--json"]
    command += ["--lake", str(tmp_path / "lakes"), "--report", str(page)]
    first = subprocess.run(command, capture_output=True, text=True)
    assert (first.returncode, first.stderr) == (1, "")
    found = json.loads(first.stdout)
    assert (
        'program "certified_map" certifies data, which chains of the protocol ibc' in found["columns"]["ibc"]["failed"]
    )
    assert found["columns"]["ic"]["calls"]["answered"] == 40
    assert found["measured"]["columns"]["ic"]["processor_seconds"] > 0
    assert not found["holds"]
    assert "programs[0].program" in page.read_text()
    again = subprocess.run([*command, "--resume"], capture_output=True, text=True)
    assert (again.returncode, again.stderr) == (1, "")
    assert json.loads(again.stdout) == found
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "is there already; go on with --resume" in refused.stderr


@pytest.mark.slow
def test_resumed_run_covers_all_its_ticks_and_reports_no_duration(tmp_path):
    command = [sys.executable, "-m", "causeway", "compare", write_scenario(tmp_path), "--protocols", "ic,ibc", "--json"]
    command += ["--faults", "none", "--lake", str(tmp_path / "lakes"), "--report", str(tmp_path / "page.html")]

    def run(*options: str) -> Any:
        done = subprocess.run([*command, *options], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    first = run("--ticks", "3")
    assert all(column["ticks"] == 3 for column in first["columns"].values())
    again = run("--resume")
    whole = compared(write_scenario(tmp_path), tmp_path / "whole", ["ic", "ibc"]).as_json()
    assert again["columns"] == whole["columns"]
    assert again["traffic"]["messages"] == 40 > first["traffic"]["messages"]
    for measured in again["measured"]["columns"].values():
        assert measured["seconds"] is measured["processor_seconds"] is measured["peak_memory_bytes"] is None
        assert measured["hashes"]


def test_empty_list_of_protocols_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["compare", "nowhere.toml", "--protocols", ""])
    assert capsys.readouterr().err.startswith("causeway: --protocols: names none; allowed: ")
