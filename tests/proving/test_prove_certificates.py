"""``causeway prove`` under ic: certificates of headers, messages and certified data, true before ``causeway verify``
and false when altered; what a person reads; one line for whatever is asked wrongly."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from causeway_proofs.documents.trust import parse_trust_object
from causeway_proofs.documents.verification import build_document, verify_document
from causeway_proofs.errors import InvalidInput
from causeway_proofs.ic.certificate import decode_certificate
from causeway_proofs.ic.hash_tree import build_tree, digest, leaves
from causeway_proofs.ic.messages import StreamRequest, decode_stream_message
from causeway_proofs.ic.stream_header import decode_stream_header

from causeway.core.frame import Frame
from causeway.network.network import LakeNetwork
from causeway.network.opened_lake import HostLookup, OpenedLake, open_lake
from causeway.proving.ic.state import (
    CertifiedState,
    CertifiedValue,
    StateNotCommittedYet,
    StateRemoved,
    Subnets,
    certificate_document,
    get_state_at,
)
from causeway.proving.prover import ProvableMessage, find_offers, prove_offer
from causeway.storage.lake import LakeDamaged, LakeError, Manifest
from causeway.storage.vacuum import vacuum_lake
from tests.support.common.command_line import Run, command_line
from tests.support.ic.ic_lake import make_lake

HEIGHT = 5
"""At this height both streams between the subnets hold messages, and both maps have certified data but one."""

STREAM = ["--chain", "left", "--counterparty", "right"]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_lake(tmp_path_factory.mktemp("certified"))


@pytest.fixture(scope="module")
def opened(lake: str) -> OpenedLake:
    return open_lake(lake)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Return a function that runs the command line in its own folder."""
    yield from command_line(capsys, tmp_path, monkeypatch)


def message_of(state: CertifiedState, counterparty: str) -> int:
    """The first message in a stream."""
    version = state.subnets.options.version
    header = decode_stream_header(state.header(counterparty).value, version)
    assert header.end > header.begin
    return header.begin


# ---- proofs that verify --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["header", "message", "program"])
def test_proofs_verify_and_altered_ones_are_false(cli: Run, lake: str, opened: OpenedLake, kind: str) -> None:
    index = message_of(get_state_at(opened, "left", HEIGHT), "right")
    asked: dict[str, tuple[list[object], str]] = {
        "header": ([*STREAM, "--header"], f"the stream from left to right has the header begin {index}, end "),
        "message": ([*STREAM, "--index", index], f"message {index} of the stream from left to right is a "),
        "program": (["--program", "fruit"], "certified data of fruit is 0x"),
    }
    arguments, told = asked[kind]
    files = ("--out", "proof.json", "--trust-out", "trust.json", "--certificate-out", "proof.cbor")
    code, out, err = cli("prove", lake, *arguments, "--height", HEIGHT, *files)
    assert (code, err) == (0, "")
    assert out.startswith(f"left at height {HEIGHT}: {told}")
    assert "Next: causeway verify proof.json --trust trust.json\n" in out
    for file in ("proof.json", "proof.cbor"):
        code, out, _ = cli("verify", file, "--trust", "trust.json", "--explain")
        assert (code, out.splitlines()[0]) == (0, f"{file}: true")
    code, out, _ = cli("verify", "proof.json")
    assert code == 2 and ", named by the file itself, under which it is true" in out
    document, trust = (json.loads(Path(name).read_text()) for name in ("proof.json", "trust.json"))
    assert document["trust"] == trust
    assert bytes.fromhex(document["proof"]) == Path("proof.cbor").read_bytes()
    trusted = parse_trust_object(trust, "trust")
    for position in range(0, len(document["proof"]), 37):
        digit = "1" if document["proof"][position] == "0" else "0"
        altered = {**document, "proof": document["proof"][:position] + digit + document["proof"][position + 1 :]}
        assert not verify_document(build_document(altered, "altered"), trusted).valid, f"digit {position}"
    Path("altered.json").write_text(json.dumps(altered))
    assert cli("verify", "altered.json", "--trust", "trust.json")[0] in (1, 2)
    (claim,) = document["paths"]
    for change in (
        {"paths": [{**claim, "value": claim["value"][:-2] + "ff"}]},
        {"paths": [{"path": claim["path"], "absent": True}]},
        {"paths": [{**claim, "path": [*claim["path"][:-1], "messages"]}]},
        {"time": document["time"] + 1},
    ):
        assert not verify_document(build_document({**document, **change}, "changed"), trusted).valid, change
    cli("prove", lake, "--chain", "right", "--counterparty", "left", "--header", "--trust-out", "other.json")
    assert cli("verify", "proof.json", "--trust", "other.json")[0] == 1


# ---- substreams


@pytest.fixture(scope="module")
def with_substreams(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_lake(tmp_path_factory.mktemp("substreams"), options='substreams = "per_source"')


def test_proofs_of_a_substream_verify(cli: Run, with_substreams: str) -> None:
    """``left`` has two substreams to ``right``: of ``alice``, who calls and answers, and of ``bob``, whom it
    signals."""
    opened = open_lake(with_substreams)
    state = get_state_at(opened, "left", HEIGHT)
    header = decode_stream_header(state.header("right", "alice").value, state.subnets.options.version)
    assert header.end > header.begin
    stream = [*STREAM, "--substream", "alice", "--height", HEIGHT]
    files = ("--out", "proof.json", "--trust-out", "trust.json", "--overwrite")
    for what, text in (
        (["--header"], f"has the header begin {header.begin}, end {header.end}, "),
        (["--index", header.begin], "is a request from alice to bob, method echo"),
    ):
        code, out, err = cli("prove", with_substreams, *stream, *what, *files)
        assert (code, err) == (0, "") and "the substream of alice in the stream from left to right" in out
        assert text in out
        assert cli("verify", "proof.json", "--trust", "trust.json")[1].startswith("proof.json: true")
    message = ProvableMessage("left", "right", 0, header.begin, {"committed": [HEIGHT]})
    (offer,) = find_offers(opened, message)
    assert offer.given["substream"] == "alice"
    assert prove_offer(opened, offer).height == HEIGHT


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ([], "substream: missing: the stream from left to right has 2, each named by a program (the first is alice)"),
        (["--substream", "bobb"], 'substream: "bobb": no such substream; did you mean bob?: the stream from left to '),
    ],
)
def test_substream_must_be_named(cli: Run, with_substreams: str, given: list[str], line: str) -> None:
    code, _, err = cli("prove", with_substreams, *STREAM, *given, "--header", "--height", HEIGHT)
    assert (code, err.startswith(f"causeway: {line}")) == (2, True), err


def test_flat_streams_have_no_substreams(cli: Run, lake: str) -> None:
    code, _, err = cli("prove", lake, *STREAM, "--substream", "alice", "--header")
    assert (code, err) == (2, 'causeway: substream: "alice": the streams of this lake have none; leave it out\n')


# ---- content of a certificate


def test_certificate_shows_one_value_and_the_time(opened: OpenedLake) -> None:
    state = get_state_at(opened, "left", HEIGHT)
    for shown in (
        state.header("right"),
        state.message("right", message_of(state, "right")),
        state.certified_data("fruit"),
    ):
        certificate = decode_certificate(shown.certificate)
        assert certificate.delegation is None and digest(certificate.tree) == state.root
        assert dict(leaves(certificate.tree)) == {
            shown.path: shown.value,
            (b"time",): dict(leaves(certificate.tree))[(b"time",)],
        }
        assert shown.time == opened.manifest(HEIGHT).tick * opened.tick_ns


def is_true(state: CertifiedState, shown: CertifiedValue) -> bool:
    """Whether a certificate is true under the subnet's key alone."""
    verdict = verify_document(build_document(certificate_document(state, shown), "it"), self_consistent=True)
    return verdict.valid and verdict.named_by_document


def show_all(state: CertifiedState) -> dict[str, list[CertifiedValue]]:
    """Certificates of all headers and messages of a subnet's streams, by destination."""
    found: dict[str, list[CertifiedValue]] = {}
    for other in state.subnets.opened.names:
        try:
            shown = state.header(other)
        except InvalidInput:
            continue
        header = decode_stream_header(shown.value, state.subnets.options.version)
        found[other] = [shown, *(state.message(other, index) for index in range(header.begin, header.end))]
    return found


def test_every_height_of_every_subnet_can_be_proved(opened: OpenedLake) -> None:
    messages = 0
    for height in opened.lake.heights()[::3]:
        for chain in opened.names:
            state = get_state_at(opened, chain, height)
            assert (state.number, state.height) == (height, height)
            shown = show_all(state)
            assert chain not in shown
            messages += sum(len(certificates) - 1 for certificates in shown.values())
            assert all(is_true(state, certificates[-1]) for certificates in shown.values())
    assert messages > 15


def test_messages_and_data_match_the_programs(opened: OpenedLake) -> None:
    state = get_state_at(opened, "left", 2)
    message = decode_stream_message(state.message("right", message_of(state, "right")).value)
    assert isinstance(message, StreamRequest)
    assert (message.method_name, message.method_payload, message.cycles_payment) == ("echo", b"tick 0", 500)
    data = {height: get_state_at(opened, "left", height).certified_data("fruit").value for height in (2, 4, 5, 8)}
    red, both = (digest(build_tree(entries)) for entries in ({b"apple": b"red"}, {b"apple": b"red", b"plum": b"blue"}))
    assert data == {2: red, 4: red, 5: both, 8: both}


# ---- other certification modes -------------------------------------------------------------------

HALTED = """
[[faults]]
kind = "halt"
chain = "left"
from = 3
"""

SILENT = """
[[faults]]
kind = "node"
does = "no_share"
chain = "left"
nodes = [1, 2]
from = 3
until = 3
"""

FORMS = {
    "shares of nodes": "nodes = 4",
    "late": "blocks_ahead = 1\ncertification_delay = 2",
    "mostly metadata": "full_hash_every = 3",
    "metadata in a leaf": 'certification_version = "V20"',
}


@pytest.mark.parametrize("form", FORMS)
def test_other_certification_modes(tmp_path: Path, form: str) -> None:
    threshold = form == "shares of nodes"
    kind, more = ("threshold", SILENT) if threshold else ("bls", "")
    opened = open_lake(make_lake(tmp_path, options=FORMS[form], certification=kind, more=more, until=6))
    last = opened.last_height()
    late = 2 if form == "late" else 0
    assert get_state_at(opened, "left").height == last - late
    for height in (0, 2, 3, last - late):
        state = get_state_at(opened, "left", height)
        assert state.height == height
        assert all(is_true(state, certificates[-1]) for certificates in show_all(state).values())
    if threshold:
        with pytest.raises(InvalidInput, match="height: 4: left has no certification of it: too few of"):
            get_state_at(opened, "left", 4)
    if late:
        with pytest.raises(
            InvalidInput, match=f"height: {last}: is not certified yet; left has certified up to height {last - 2}"
        ):
            get_state_at(opened, "left", last)


def test_halted_subnet_keeps_its_last_certificate(tmp_path: Path) -> None:
    opened = open_lake(make_lake(tmp_path, more=HALTED, until=8))
    state, last = get_state_at(opened, "left"), opened.last_height()
    assert state.height < last
    assert all(get_state_at(opened, "left", height).height == state.height for height in range(state.height, last + 1))
    assert is_true(state, state.header("right"))


def test_later_subnet_is_absent_from_the_earlier_registry(tmp_path: Path) -> None:
    opened = open_lake(make_lake(tmp_path, more='[[chains]]\nname = "late"\nfrom = 2\n', until=4))
    with pytest.raises(InvalidInput, match="height: 2: late was not in the registry"):
        get_state_at(opened, "late", 2)  # of tick 1
    assert get_state_at(opened, "late", 3).number == 1


# ---- errors --------------------------------------------------------------------------------------

WRONG: dict[str, tuple[list[object], str]] = {
    "nothing": (
        [],
        "selection: allowed: exactly one of --header, --index N (both with --chain and --counterparty), --program",
    ),
    "two things": ([*STREAM, "--header", "--index", 3], "selection: allowed: exactly one of --header, --index N"),
    "chain missing": (["--counterparty", "right", "--header"], "--chain: missing"),
    "counterparty missing": (["--chain", "left", "--index", 1], "--counterparty: missing"),
    "counterparty too much": (
        ["--counterparty", "right", "--program", "fruit"],
        "--counterparty: certified data is of",
    ),
    "chain": (
        ["--chain", "lef", "--counterparty", "right", "--header"],
        'chain: "lef": no such chain; did you mean left?',
    ),
    "counterparty": (
        ["--chain", "left", "--counterparty", "east", "--header"],
        'chain: "east": no such chain; there are 3',
    ),
    "no stream": (
        ["--chain", "left", "--counterparty", "middle", "--header"],
        f'counterparty: "middle": left has no stream to it at height {HEIGHT}; it has streams to right',
    ),
    "itself": (
        ["--chain", "left", "--counterparty", "left", "--header"],
        'counterparty: "left": the stream of a subnet to itself is not certified',
    ),
    "index": (
        [*STREAM, "--index", 10**6],
        f"index: {10**6}: is not in the stream; at height {HEIGHT} the stream from left",
    ),
    "negative": ([*STREAM, "--index", -1], "index: -1: is not in the stream"),
    "program": (["--program", "fruits"], 'program: "fruits": no such program; did you mean fruit?'),
    "no data": (["--program", "stones"], f"program: stones: has set no certified data by height {HEIGHT}"),
    "elsewhere": (["--program", "fruit", "--chain", "right"], f"program: fruit: is not on right at height {HEIGHT}"),
    "height": ([*STREAM, "--header", "--height", 99], "height: 99 is not committed; committed are 0 to"),
    "queue": ([*STREAM, "--queue", "send"], "--queue: no option for lakes of ic"),
    "one file": (
        [*STREAM, "--header", "--out", "a", "--certificate-out", "a"],
        "--out, --certificate-out: give each a",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_invalid_request_is_reported_in_one_line(cli: Run, lake: str, case: str) -> None:
    arguments, told = WRONG[case]
    code, out, err = cli("prove", lake, *(arguments if "--height" in arguments else [*arguments, "--height", HEIGHT]))
    assert (code, out) == (2, "")
    assert re.fullmatch(r"causeway: .+\n", err)
    assert told in err


def test_uncertified_values_cannot_be_proved(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "ic.toml").write_text(
        '[network]\nexecutor = "in_process"\n[options]\ncertification = "off"\n[[chains]]\ncount = 2\nprefix = "s"\n'
    )
    LakeNetwork.from_scenario(tmp_path / "ic.toml", lake=str(tmp_path / "ic")).close()
    assert cli("prove", "ic", "--chain", "s0", "--counterparty", "s1", "--header") == (
        2,
        "",
        'causeway: lake: ic: its subnets certify nothing (certification = "off"); there are certificates of runs with '
        'certification = "bls" or "threshold"\n',
    )


def test_removed_and_future_states_are_distinguished(tmp_path: Path) -> None:
    made = open_lake(make_lake(tmp_path, until=3))
    last = made.last_height()
    vacuum_lake(made.lake, keep_every=0, keep_last=1)
    opened = open_lake(str(made.lake.storage.uri))
    with pytest.raises(StateRemoved, match="height: the state of 1 was freed by a vacuum"):
        get_state_at(opened, "left", 1)
    assert get_state_at(opened, "left", last).height == last
    with pytest.raises(StateNotCommittedYet, match=f"height: {last + 1} is not committed; committed are 0 to {last}"):
        get_state_at(opened, "left", last + 1)


def test_altered_lake_yields_no_proof(tmp_path: Path) -> None:
    opened = open_lake(make_lake(tmp_path, until=3))
    manifest, bucket = opened.manifest(), opened.bucket(opened.position("left"))
    path = Path(opened.lake.storage.uri) / manifest.state["certified_data"][bucket].rows[0]
    table = pq.read_table(path)
    data = pa.array([b"other"] * len(table), table.schema.field("data").type)
    pq.write_table(table.set_column(table.schema.get_field_index("data"), table.schema.field("data"), data), path)
    with pytest.raises(LakeDamaged):
        get_state_at(opened, "left")


def test_state_that_differs_from_the_certified_one_is_not_proved(
    opened: OpenedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = OpenedLake.state_rows

    def changed(self: OpenedLake, manifest: Manifest, table: str, position: int, host_of: HostLookup) -> Frame:
        rows = read(self, manifest, table, position, host_of)
        return rows.with_columns(next_callback=rows["next_callback"] + 1) if table == "accounts" else rows

    monkeypatch.setattr(OpenedLake, "state_rows", changed)
    with pytest.raises(LakeError, match=r"the state of left at height 5 has the root .*, certified is "):
        get_state_at(opened, "left", HEIGHT)


def test_signature_of_another_subnet_is_refused(opened: OpenedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    other = get_state_at(opened, "right", HEIGHT).subnets.key_of(opened.position("right"))
    monkeypatch.setattr(Subnets, "key_of", lambda self, position: other)
    with pytest.raises(LakeError, match="the state of left at height 5 is not certified by it: InvalidSignature"):
        get_state_at(opened, "left", HEIGHT)


# ---- the page ------------------------------------------------------------------------------------

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "certificates.md").read_text()


def without_digests(text: str) -> str:
    """Return a text without its digests: they change with the content of a state."""
    return re.sub(r"(0x)?[0-9a-f]{16,}(…[0-9a-f]{4}|\.\.\.)?", "#", text)


def test_examples_of_the_page_print_the_shown_output(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "two-subnets.toml").write_text(re.findall(r"^```toml\n(.*?)```$", PAGE, re.S | re.M)[0])
    network = LakeNetwork.from_scenario("two-subnets.toml", lake="my-lake")
    network.run()
    network.close()
    commands = re.findall(r"^```\n\$ causeway (.*?)\n(.*?)```$", PAGE, re.S | re.M)
    assert len(commands) == 5
    for arguments, output in commands:
        _, out, err = cli(*arguments.split())
        assert without_digests(out + err) == without_digests(output)
    said: list[str] = []
    for python in re.findall(r"^```python\n(.*?)```$", PAGE, re.S | re.M):
        exec(
            compile(python, "certificates.md", "exec"),
            {"print": lambda *values: said.append(" ".join(map(str, values)))},
        )
    assert said == re.findall(r"^print\(.*\)  # (.*)$", PAGE, re.M)
