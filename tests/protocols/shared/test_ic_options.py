"""Options of the IC protocol: rejections, profiles and bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from causeway_proofs.errors import InvalidInput
from pydantic import ValidationError

from causeway.config.document import validate_document
from causeway.protocols.contract import Tick
from causeway.protocols.ic.options import IcOptions, StreamLimits
from causeway.protocols.registry import find_protocol
from causeway.protocols.shared.option_values import LARGEST
from tests.spec import ic
from tests.support.ic.ic_harness import KernelRun, Scenario, kernel_of
from tests.support.ic.ic_programs import ACTOR

SCENARIO = """
[network]
protocol = "ic"
executor = "in_process"
seconds_per_tick = {seconds}
[[chains]]
name = "A"
[[programs]]
name = "echo"
chain = "A"
program = "echo"
[traffic]
source = "script"
"""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("first_index_rule", "seed_literal"),
        ("best_effort", "on"),
        ("refunds", "on"),
    ],
)
def test_single_valued_option_explains_its_value(name: str, value: str) -> None:
    only = IcOptions.model_fields[name].default
    with pytest.raises(ValidationError, match=f'only "{only}" in this version: '):
        IcOptions.model_validate({name: value})
    IcOptions.model_validate({name: only})


def test_profile_sets_defaults_that_explicit_values_override() -> None:
    assert IcOptions(profile="seed") == IcOptions()
    deployed, oracle = IcOptions(profile="deployed"), ic.deployed_profile()
    elsewhere = {"remote", "listen", "chain_keys"}  # the oracle knows no lakes
    for name in set(IcOptions.model_fields) - {"profile", "limit", *elsewhere}:
        assert getattr(deployed, name) == getattr(oracle, name), name
    given = IcOptions(profile="deployed", index_base=1, timeouts="off")
    assert (given.index_base, given.timeouts, given.vsr) == (1, "off", "deployed")
    with pytest.raises(ValidationError, match="profile"):
        IcOptions.model_validate({"profile": "other"})


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"nodes": "4"}, 'options.nodes: "4": must be a whole number'),
    ({"nodes": 4.0}, "options.nodes: 4.0: must be a whole number"),
    ({"index_base": True}, "options.index_base: true: must be a whole number"),
    ({"limit": {"stream_messages": "5"}}, 'options.limit.stream_messages: "5": must be a whole number'),
    ({"limit": {"stream_message": 5}}, "options.limit.stream_message: unknown key; did you mean stream_messages? "),
    ({"limit": 3}, "options.limit: 3: must be a table"),
    ({"certificaton": "off"}, "options.certificaton: unknown key; did you mean certification? "),
    ({"certification": False}, "options.certification: false: must be 'bls', 'threshold' or 'off'"),
    ({"certification": "off", "payload_bytes": 5}, 'options.payload_bytes: 5: allowed with certification = "off": 0'),
    (
        {"substreams": "per_source", "listen": {"x": ["[::1]:80"]}},
        'options.substreams: "per_source": allowed with options.listen: "flat": lakes exchange one stream between ',
    ),
    ({"substreams": "nested"}, "options.substreams: \"nested\": must be 'flat', 'per_destination' or 'per_source'"),
    ({"remote": {"x": {}}}, "options.remote.x.public_key: missing"),
    ({"remote": {"x": {"public_key": "00"}}}, 'options.remote.x.public_key: "00": must be 192 hexadecimal digits'),
    ({"listen": {"x": "[::1]:80"}}, 'options.listen.x: "[::1]:80": must be a list'),
    ({"listen": {"x": ["[::1]:80", "x:99999"]}}, 'options.listen.x[1]: "x:99999": no address to listen at'),
]


@pytest.mark.parametrize(("given", "told"), WRONG)
def test_invalid_option_is_reported_by_key_and_value(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        validate_document(IcOptions, given, "s.toml", ("options",))
    assert str(refused.value).startswith(f"s.toml: {told}")


def test_limits_equal_the_oracle() -> None:
    for name in StreamLimits.model_fields:
        assert getattr(StreamLimits(), name) == getattr(ic.Limit(), name), name


NUMBERS = [
    *("reject_every", "messages_per_canister", "request_lifetime_seconds"),
    *(f"limit.{name}" for name in StreamLimits.model_fields),
]


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-1, LARGEST + 1, 2**63, 2**64, 10**30])
def test_numbers_outside_their_bounds_are_rejected(name: str, value: int) -> None:
    section, _, key = name.rpartition(".")
    with pytest.raises(ValidationError, match=key):
        IcOptions.model_validate({section: {key: value}} if section else {key: value})


@pytest.mark.parametrize("largest", [False, True])
def test_maximum_numbers_are_accepted(largest: bool) -> None:
    limit = dict.fromkeys(StreamLimits.model_fields, LARGEST if largest else 1)
    numbers = {"reject_every": LARGEST, "messages_per_canister": LARGEST, "request_lifetime_seconds": LARGEST // 10**9}
    options: dict[str, Any] = {"limits": "deployed", "timeouts": "on", "vsr": "deployed", "limit": limit, **numbers}
    run = KernelRun(Scenario((0, 1), {1: (0, ACTOR, 5), 2: (1, "ping_pong", 5)}, options), apart=False)
    for height in range(1, 4):
        run.round(Tick(height, 2**62 + height))


@pytest.mark.parametrize("seconds", ["0", "0.9e-9", "1e10", "-1", "inf", "nan"])
def test_tick_length_is_bounded(tmp_path: Path, seconds: str) -> None:
    from causeway.network.network import LakeNetwork

    (tmp_path / "s.toml").write_text(SCENARIO.format(seconds=seconds))
    with pytest.raises(InvalidInput, match="seconds_per_tick"):
        LakeNetwork.from_scenario(tmp_path / "s.toml", lake=str(tmp_path / "lake"))


@pytest.mark.parametrize("seconds", ["1e-9", "1e9"])
def test_tick_length_bounds_are_inclusive(tmp_path: Path, seconds: str) -> None:
    from causeway.network.network import LakeNetwork

    (tmp_path / "s.toml").write_text(SCENARIO.format(seconds=seconds))
    LakeNetwork.from_scenario(tmp_path / "s.toml", lake=str(tmp_path / "lake")).run(ticks=2)


def test_lifetime_is_counted_in_whole_ticks() -> None:
    """Two ticks of 1 s do not reach a lifetime of 2.5 ticks, three do: nothing is rounded down."""
    from causeway.protocols.ic.registry import lifetime_ticks

    for lifetime, tick_ns, ticks in ((0, 7, 0), (1, 10**9, 1), (5, 2 * 10**9, 3), (LARGEST // 10**9, 1, None)):
        options = IcOptions(request_lifetime_seconds=lifetime)
        found = lifetime_ticks(options, tick_ns)
        assert found == (lifetime * 10**9 if ticks is None else ticks)
        assert found * tick_ns >= lifetime * 10**9 > (found - 1) * tick_ns or lifetime == 0


def test_kernel_rejects_a_tick_without_length() -> None:
    kernel = kernel_of(Scenario((0,), {1: (0, ACTOR, 5)}))
    for tick_ns in (0, -1, 2**63):
        with pytest.raises(InvalidInput, match="seconds_per_tick"):
            type(kernel)(kernel.topology, kernel.programs, tick_ns=tick_ns)


def test_summary_reports_missing_certification() -> None:
    remark = find_protocol("ic").load_semantics().remark
    assert "Nothing was certified" in str(remark({"certification": "off"}))
    assert remark({}) is None
    assert find_protocol("ibc").load_semantics().remark({}) is None
