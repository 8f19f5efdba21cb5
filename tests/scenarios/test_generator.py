"""Generated traffic: exact totals, independent chains, and the shape of the measured recording."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput
from hypothesis import given
from hypothesis import strategies as st

from causeway.core.ingress_call import decode_calls
from causeway.scenarios import generator, traffic_settings
from causeway.scenarios import generator as draws
from causeway.scenarios.generator import GeneratedTraffic, channel_shares, measure_traffic
from causeway.scenarios.scenario import load_scenario
from causeway.scenarios.traffic_settings import GeneratedSection

NO_BURSTS = {"every_blocks": 0}


def traffic_of(chains: int, seed: int = 1, **keys: Any) -> GeneratedTraffic:
    section = GeneratedSection.model_validate({"source": "generated", **keys})
    numbers = tuple(10 * place for place in range(chains))
    return GeneratedTraffic(section, seed, numbers, tuple(f"c{number}" for number in numbers), 1000)


def numbers_of(traffic: GeneratedTraffic) -> Any:
    return np.array(traffic.chains, dtype=np.uint64)


@pytest.mark.parametrize("chains", [1, 2, 7])
@pytest.mark.parametrize("keys", [{"messages": 5_000}, {"messages_per_tick": 300.0}])
def test_rows_of_a_chain_depend_on_no_other_chain(chains: int, keys: dict[str, Any]) -> None:
    traffic = traffic_of(chains, ticks=9, channels=6, payload_bytes=[0, 40], **keys)
    everyone = numbers_of(traffic)
    for tick in range(10):
        whole = traffic.rows(tick, everyone)
        parts = [traffic.rows(tick, everyone[place : place + 1]) for place in range(chains)]
        assert pa.concat_tables(parts).to_pylist() == whole.to_pylist()
        assert traffic.rows(tick, np.append(everyone[::-1], 999).astype(np.uint64)).to_pylist() == whole.to_pylist()


def test_equal_seeds_give_equal_rows_in_another_process() -> None:
    traffic = traffic_of(3, messages=900, ticks=4, channels=5)
    rows = [traffic.rows(tick, numbers_of(traffic)).to_pylist() for tick in range(4)]
    copy = pickle.loads(pickle.dumps(traffic))
    for cache in (generator._plan, generator._block, generator._cached_window, generator._totals, generator._drift_at):
        cache.cache_clear()
    assert [copy.rows(tick, numbers_of(copy)).to_pylist() for tick in (3, 2, 1, 0)] == rows[::-1]
    other = traffic_of(3, seed=2, messages=900, ticks=4, channels=5)
    assert other.rows(0, numbers_of(other)).to_pylist() != rows[0]


@pytest.mark.parametrize(("messages", "ticks", "chains"), [(1, 1, 1), (1, 50, 9), (12_345, 17, 4), (10**7, 3, 2)])
def test_total_is_met_exactly(messages: int, ticks: int, chains: int) -> None:
    traffic = traffic_of(chains, messages=messages, ticks=ticks, channels=3)
    counts = traffic.counts(0, ticks)
    assert counts.shape == (ticks, chains)
    assert counts.sum() == messages
    if messages < 10**6:
        assert sum(traffic.rows(tick, numbers_of(traffic)).num_rows for tick in range(ticks)) == messages
    assert traffic.rows(ticks, numbers_of(traffic)).num_rows == 0


def test_counts_match_the_rows_and_next_tick_finds_them() -> None:
    traffic = traffic_of(2, messages_per_tick=0.01, ticks=3_000, channels=2, bursts=NO_BURSTS)
    busy = np.flatnonzero(traffic.counts(0, 3_000).any(axis=1)).tolist()
    found, tick = [], traffic.next_tick(0)
    while tick is not None:
        found.append(tick)
        rows = traffic.rows(tick, numbers_of(traffic))
        chains, sizes = np.unique(rows["chain"].to_numpy(), return_counts=True)
        counts = traffic.counts(tick, tick + 1)[0]
        assert dict(zip(chains.tolist(), sizes.tolist(), strict=True)) == {
            number: count for number, count in zip(traffic.chains, counts.tolist(), strict=True) if count
        }
        tick = traffic.next_tick(tick + 1)
    assert found == busy
    assert 5 < len(found) < 100


def test_run_samples_each_tick_once(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[int, int, int]] = []
    real = draws.random_words

    def words(seed: int, place: int, tick: int, stream: int, count: int) -> Any:
        drawn.append((place, tick, stream) if stream == generator._ROWS else (0, tick, stream))
        return real(seed, place, tick, stream, count)

    monkeypatch.setattr(generator, "random_words", words)
    traffic = traffic_of(3, seed=99, messages_per_tick=40.0, ticks=600, channels=2)
    tick = traffic.next_tick(0)
    while tick is not None:
        traffic.rows(tick, numbers_of(traffic))
        assert traffic.next_tick(tick) == tick
        tick = traffic.next_tick(tick + 1)
    counts = [cell for cell in drawn if cell[2] == generator._COUNTS]
    assert len(counts) == len(set(counts)) == 600
    rows = [cell for cell in drawn if cell[2] == generator._ROWS]
    assert len(rows) == len(set(rows)) == int((traffic.counts(0, 600) > 0).sum())


def test_rows_do_not_depend_on_the_request_order() -> None:
    traffic = traffic_of(3, seed=5, messages_per_tick=900.0, ticks=30, channels=4)
    forward = [traffic.rows(tick, numbers_of(traffic)).to_pylist() for tick in range(30)]
    generator._cached_window.cache_clear()
    some = numbers_of(traffic)[:1]
    alone = [traffic.rows(tick, some).to_pylist() for tick in reversed(range(30))]
    assert alone[::-1] == [[row for row in rows if row["chain"] == some[0]] for rows in forward]


def test_each_message_asks_a_caller_to_call_the_echo_of_its_channel() -> None:
    traffic = traffic_of(4, messages=2_000, ticks=2, channels=3, payload_bytes=[5, 9], amount=2**70 + 1, balance=7)
    programs = traffic.topology().programs
    assert programs["number"].to_pylist() == list(range(1000, 1024))
    assert len(set(programs["name"].to_pylist())) == 24
    assert programs["program"].to_pylist() == ["caller"] * 12 + ["echo"] * 12
    assert [int(value) for value in programs["balance"].to_pylist()] == [7] * 12 + [0] * 12
    home = dict(zip(programs["number"].to_pylist(), programs["chain"].to_pylist(), strict=True))
    rows = traffic.rows(1, numbers_of(traffic))
    calls = decode_calls(rows["payload"].combine_chunks())
    assert calls.valid.all()
    assert (calls.receivers == rows["receiver"].to_numpy() + np.uint64(12)).all()
    assert set(calls.methods.to_pylist()) == {"echo"}
    assert set(zip(calls.amount_high.tolist(), calls.amount_low.tolist(), strict=True)) == {(2**6, 1)}
    assert [home[number] for number in rows["receiver"].to_pylist()] == rows["chain"].to_pylist()
    assert all(home[number] != home[number + 12] for number in range(1000, 1012)), "a channel leads to another chain"
    assert {len(body) for body in calls.bodies.to_pylist()} == {5, 6, 7, 8, 9}
    assert len(set(calls.bodies.to_pylist())) == rows.num_rows


def test_single_chain_calls_itself_and_empty_payloads_are_allowed() -> None:
    traffic = traffic_of(1, messages=10, ticks=1, channels=1, payload_bytes=0)
    assert set(traffic.topology().programs["chain"].to_pylist()) == {0}
    assert traffic.rows(0, numbers_of(traffic)).num_rows == 10


def test_shape_matches_the_measured_recording() -> None:
    """80,000 blocks each of 40 like chains; the tolerances are the variation of so many blocks of so slow a drift."""
    chains, blocks = 40, 80_000
    traffic = traffic_of(
        chains, messages_per_tick=traffic_settings.PACKETS_PER_BLOCK * chains, ticks=blocks, degree_skew=0.0
    )
    counts = np.concatenate([traffic.counts(first, first + 4_000) for first in range(0, blocks, 4_000)])
    drawn = draws.random_words(1, 0, 0, 99, 200_000)
    thresholds = generator._plan(traffic).thresholds
    channels = np.bincount(np.searchsorted(thresholds, drawn, side="right"), minlength=traffic_settings.CHANNELS)
    figures = measure_traffic(counts.T.reshape(-1), channels)
    assert figures.per_block == pytest.approx(traffic_settings.PACKETS_PER_BLOCK, rel=0.1)
    for width, tolerance in ((1, 0.05), (10, 0.1), (100, 0.25), (1000, 0.25)):
        ratio = traffic_settings.VARIANCE_TO_MEAN[width]
        assert figures.variance_to_mean[width] == pytest.approx(ratio, rel=tolerance), f"{width} blocks"
    assert figures.top_1_share == pytest.approx(traffic_settings.TOP_1_SHARE, abs=0.01)
    assert figures.top_5_share == pytest.approx(traffic_settings.TOP_5_SHARE, abs=0.01)


def test_without_drift_and_bursts_counts_are_poisson() -> None:
    traffic = traffic_of(1, messages_per_tick=3.0, ticks=20_000, drift=0.0, bursts=NO_BURSTS)
    counts = traffic.counts(0, 20_000)[:, 0]
    assert counts.mean() == pytest.approx(3.0, rel=0.03)
    assert counts.var() / counts.mean() == pytest.approx(1.0, rel=0.05)


def test_burst_belongs_to_one_channel() -> None:
    bursts = {"every_blocks": 1, "messages": 500}
    traffic = traffic_of(1, messages_per_tick=1.0, ticks=5, channels=10, skew="uniform", bursts=bursts)
    for tick in range(5):
        rows = traffic.rows(tick, numbers_of(traffic))
        assert rows.num_rows > 400
        assert np.unique(rows["receiver"].to_numpy(), return_counts=True)[1].max() > 0.95 * rows.num_rows


@pytest.mark.parametrize("skew", ["cosmoshub", "uniform", 0.0, 1.0, 2.5])
@pytest.mark.parametrize("channels", [1, 3, 10, 55, 2_000])
def test_shares_sum_to_one_and_decrease(skew: str | float, channels: int) -> None:
    share = channel_shares(skew, channels)
    assert len(share) == channels
    assert share.sum() == pytest.approx(1.0)
    assert (np.diff(share) <= 0).all()
    assert (share > 0).all()


@given(st.floats(0.001, 0.999), st.floats(0.0, 2_000.0))
def test_poisson_matches_the_quantile(chance: float, mean: float) -> None:
    count = int(draws.poisson_counts(np.array([chance]), np.array([mean]))[0])

    def mass(k: int) -> float:
        return math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) if mean > 0 else float(k == 0)

    below = math.fsum(mass(k) for k in range(count))
    assert below <= chance + 1e-9
    assert below + mass(count) >= chance - 1e-9


@given(st.floats(0.001, 0.999), st.integers(0, 3_000), st.floats(0.0, 1.0))
def test_binomial_matches_the_quantile(chance: float, trials: int, probability: float) -> None:
    count = draws.binomial_count(chance, trials, probability)

    def mass(k: int) -> float:
        if probability in (0.0, 1.0):
            return float(k == trials * probability)
        ways = math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
        return math.exp(ways + k * math.log(probability) + (trials - k) * math.log1p(-probability))

    below = math.fsum(mass(k) for k in range(count))
    assert 0 <= count <= trials
    assert below <= chance + 1e-9
    assert below + mass(count) >= chance - 1e-9


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=12), st.integers(0, 10**6), st.integers(0, 100))
def test_split_sums_to_its_total(weights: list[float], total: int, seed: int) -> None:
    chances = draws.uniform_numbers(draws.random_words(seed, 0, 0, 0, len(weights)))
    parts = draws.multinomial_split(chances, total, np.array(weights))
    assert parts.sum() == total
    assert (parts >= 0).all()


def test_words_are_those_of_philox() -> None:
    """A change of these numbers changes every generated scenario."""
    assert draws.random_words(1, 2, 3, 4, 3).tolist() == draws.random_words(1, 2, 3, 4, 9).tolist()[:3]
    assert draws.random_words(0, 0, 0, 0, 2).tolist() == [
        int(word) for word in np.random.Philox(key=0, counter=0).random_raw(2)
    ]


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({}, "traffic: give either messages_per_tick or messages"),
        ({"messages": 1, "messages_per_tick": 1.0}, "traffic: give either messages_per_tick or messages"),
        ({"messages": 1, "ticks": 200_000}, "traffic: with messages, ticks = 200000 must not be above 100000"),
        ({"messages": 1, "skew": "steep"}, 'traffic.skew: "steep": must be "cosmoshub", "uniform" or { zipf ='),
        (
            {"messages": 1, "payload_bytes": [9, 5]},
            "traffic.payload_bytes: [9, 5]: must be a number of bytes or [least,",
        ),
        ({"messages": 1, "payload_bytes": -1}, "traffic.payload_bytes: -1: must be a number of bytes"),
        ({"messages": 1, "chanels": 3}, "traffic.chanels: unknown key; did you mean channels?"),
    ],
)
def test_mistake_is_one_line(tmp_path: Path, keys: dict[str, Any], line: str) -> None:
    path = tmp_path / "g.toml"
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in keys.items())
    path.write_text(f"[[chains]]\ncount = 2\n[traffic]\nsource = 'generated'\n{lines}\n")
    with pytest.raises(InvalidInput) as caught:
        load_scenario(path)
    assert str(caught.value).startswith(f"{path}: {line}")


def test_migrated_callers_get_their_messages_at_their_new_chain(tmp_path: Path) -> None:
    path = tmp_path / "g.toml"
    text = "[[chains]]\ncount = 3\n[traffic]\nsource = 'generated'\nmessages = 600\nticks = 3\nchannels = 2\n"
    path.write_text(text)
    still = load_scenario(path).traffic()
    path.write_text(text + "[[moves]]\ntick = 1\nprogram = 'chain-0/channel-0'\nchain = 'chain-2'\n")
    scenario = load_scenario(path)
    moving = pickle.loads(pickle.dumps(scenario.traffic()))
    assert scenario.topology(moving).moves.num_rows == 1
    chains = np.arange(3, dtype=np.uint64)
    assert moving.rows(0, chains).to_pylist() == still.rows(0, chains).to_pylist()
    for tick in (1, 2):
        before, after = still.rows(tick, chains), moving.rows(tick, chains)
        assert after.num_rows == before.num_rows
        found = sorted(zip(after["receiver"].to_pylist(), after["chain"].to_pylist(), strict=True))
        expected = zip(before["receiver"].to_pylist(), before["chain"].to_pylist(), strict=True)
        assert found == sorted((receiver, 2 if receiver == 0 else chain) for receiver, chain in expected)
        parts = [moving.rows(tick, chains[place : place + 1]) for place in range(3)]
        assert pa.concat_tables(parts).to_pylist() == after.to_pylist()
