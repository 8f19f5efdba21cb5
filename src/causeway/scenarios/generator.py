"""Generated traffic in the shape of a measured recording, for any number of chains.

Each chain has channels; each channel has a caller on that chain and an echo on another. A chain's rate drifts slowly.
The count of a tick is Poisson, or a multinomial share of an exact total. Channels have measured shares, and bursts
occur at random.

Random numbers are a function of their position: Philox-4x64 keyed by (seed, chain) and counted by (tick, stream). So
the rows of a chain never depend on the chains requested with it, and nothing is stored. Only the raw words of NumPy's
generator are used, since its definition fixes them; the distributions are computed here. Another release of NumPy gives
the same numbers.
"""

from __future__ import annotations

import functools
import math
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import U64

from causeway.config.topology import CHAINS_SCHEMA, Topology
from causeway.config.traffic import INGRESS_SCHEMA
from causeway.core.ingress_call import CALL_METHOD, HEADER_BYTES, encode_calls
from causeway.core.text import format_value
from causeway.scenarios import traffic_settings
from causeway.scenarios.directory import programs_table
from causeway.scenarios.traffic_settings import GeneratedSection

F64Array = npt.NDArray[np.float64]
I64Array = npt.NDArray[np.int64]

_SMALL_MEAN = 30.0
_REACH = 12.0
"""Half-width of the search interval of a quantile, in standard deviations."""


def random_words(seed: int, place: int, tick: int, stream: int, count: int) -> U64:
    """Return random 64-bit words for a position; a longer sample begins with the shorter.

    Args:
        seed: First word of the Philox key.
        place: Second word of the key: a chain number, or 0.
        tick: Third word of the counter.
        stream: Fourth word of the counter.
        count: Number of words.

    Returns:
        uint64 array of ``count`` words.
    """
    generator, state = _GENERATOR.of_thread()
    state["state"]["key"] = np.array([seed, place], dtype=np.uint64)
    state["state"]["counter"] = np.array([0, 0, tick, stream], dtype=np.uint64)
    generator.state = state
    words: U64 = generator.random_raw(count)
    return words


class _Generator(threading.local):
    """A Philox generator for each thread, repositioned for each use.

    A new generator would read entropy from the system first.
    """

    def __init__(self) -> None:
        self._generator = np.random.Philox(key=0)
        self._state: Any = self._generator.state

    def of_thread(self) -> tuple[np.random.Philox, Any]:
        """Return the generator, and a state without buffered words to overwrite."""
        return self._generator, self._state


_GENERATOR = _Generator()


def uniform_numbers(words: U64) -> F64Array:
    """Map random words to uniform numbers in the open interval (0, 1).

    Args:
        words: uint64 array.

    Returns:
        float64 array of the same shape.
    """
    numbers: F64Array = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return numbers


def normal_numbers(words: U64) -> F64Array:
    """Map 2n random words to n independent standard normal numbers (Box-Muller).

    Args:
        words: uint64 array of even length.

    Returns:
        float64 array of half that length.
    """
    first, second = uniform_numbers(words).reshape(2, -1)
    numbers: F64Array = np.sqrt(-2.0 * np.log(first)) * np.cos(2.0 * math.pi * second)
    return numbers


def poisson_counts(chance: F64Array, mean: F64Array) -> I64Array:
    """Return Poisson quantiles, element by element.

    Args:
        chance: Probabilities in (0, 1).
        mean: Means, at least 0, of the same shape.

    Returns:
        int64 array of counts.
    """
    found = np.zeros(chance.shape, dtype=np.int64)
    small = mean <= _SMALL_MEAN
    found[small] = _small_poisson(chance[small], mean[small])
    for cell in np.argwhere(~small):
        index = tuple(cell)
        found[index] = _large_poisson(float(chance[index]), float(mean[index]))
    return found


def binomial_count(chance: float, trials: int, probability: float) -> int:
    """Return the quantile at ``chance`` (in (0, 1)) of a binomial distribution.

    Args:
        chance: Probability in (0, 1).
        trials: Number of trials.
        probability: Probability of success.
    """
    if trials == 0 or probability <= 0.0:
        return 0
    if probability >= 1.0:
        return trials
    mean = trials * probability
    reach = _REACH * math.sqrt(mean * (1.0 - probability)) + 20.0
    low, high = max(0, math.floor(mean - reach)), min(trials, math.ceil(mean + reach))
    counts = np.arange(low, high, dtype=np.float64)
    steps = np.log((trials - counts) / (counts + 1.0)) + math.log(probability) - math.log1p(-probability)
    return low + _quantile_offset(chance, steps)


def multinomial_split(chances: F64Array, total: int, weights: F64Array) -> I64Array:
    """Distribute a total over cells by weight: a multinomial sample.

    All weights zero: all items go to the last cell.

    Args:
        chances: A probability in (0, 1) for each of n cells.
        total: Number of items.
        weights: Weight of each cell.

    Returns:
        int64 array of n counts that sum to ``total`` exactly.
    """
    parts = np.zeros(len(weights), dtype=np.int64)
    weight_from = np.cumsum(weights[::-1])[::-1]
    remaining = total
    for cell in range(len(weights) - 1):
        if remaining == 0:
            break
        share = float(weights[cell] / weight_from[cell]) if weight_from[cell] > 0 else 0.0
        parts[cell] = binomial_count(float(chances[cell]), remaining, share)
        remaining -= int(parts[cell])
    parts[-1] = remaining
    return parts


def _small_poisson(chance: F64Array, mean: F64Array) -> I64Array:
    probability = np.exp(-mean)
    below = probability.copy()
    found = np.zeros(chance.shape, dtype=np.int64)
    for count in range(1, int(_SMALL_MEAN + _REACH * math.sqrt(_SMALL_MEAN)) + 21):
        more = chance >= below
        if not more.any():
            break
        found += more
        probability *= mean / count
        below += probability
    return found


def _large_poisson(chance: float, mean: float) -> int:
    reach = _REACH * math.sqrt(mean) + 20.0
    low, high = max(0, math.floor(mean - reach)), math.ceil(mean + reach)
    return low + _quantile_offset(chance, math.log(mean) - np.log(np.arange(low + 1, high + 1, dtype=np.float64)))


def _quantile_offset(chance: float, steps: F64Array) -> int:
    """Return the quantile of a distribution given by log ratios of neighboring probabilities."""
    logarithms = np.append(0.0, np.cumsum(steps))
    mass = np.exp(logarithms - logarithms.max())
    below = np.cumsum(mass)
    return int(min(np.searchsorted(below, chance * below[-1], side="right"), len(below) - 1))


_TICKS, _COUNTS, _ROWS, _TOPOLOGY, _DRIFT = 1, 2, 3, 4, 16
"""Streams of random words; from ``_DRIFT`` on, one for each component of the drift."""

_SAMPLES = 16
_BLOCK_OF_TICKS = 256
_BLOCK_CELLS = 1 << 16
_TOTALS_OF_TICKS = 1024
_WINDOW_ROWS = 4096
_WINDOW_BYTES = 16 * 1024 * 1024
_ENCODED_BYTES = 512 * 1024 * 1024
_USER = 0


@dataclass(frozen=True)
class GeneratedTraffic:
    """Generated traffic of a network.

    Channel ``i`` of the chain at position ``c`` has its caller at number ``first_program + c * channels + i``; its
    echo's number is larger by ``len(chains) * channels``.

    Attributes:
        section: Settings of the scenario.
        seed: Seed of the network.
        chains: Chain numbers, ascending.
        names: Names of the chains.
        first_program: Number of the first program.
    """

    section: GeneratedSection
    seed: int
    chains: tuple[int, ...]
    names: tuple[str, ...]
    first_program: int

    def rows(self, tick: int, chains: U64) -> pa.Table:
        """Return the rows of a tick for some chains, by chain.

        Args:
            tick: Tick of the network.
            chains: Chain numbers.

        Returns:
            Table of ``INGRESS_SCHEMA``.
        """
        if tick >= self.section.ticks:
            return INGRESS_SCHEMA.empty_table()
        places = np.flatnonzero(np.isin(_plan(self).numbers, chains))
        first, end = self._window(tick)
        if end - first == 1:
            return self._rows_of(places, first, end)
        window, starts = _cached_window(self, places.tobytes(), first, end)
        start, stop = starts[tick - first : tick - first + 2].tolist()
        return window.slice(start, stop - start)

    def next_tick(self, tick: int) -> int | None:
        """Return the first tick at or after ``tick`` with any row, or None."""
        size = self._block_ticks
        for number in range(tick // size, -(-self.section.ticks // size)):
            busy = np.flatnonzero(_block(self, number)[0].any(axis=1)) + number * size
            position = int(np.searchsorted(busy, tick))
            if position < len(busy):
                return int(busy[position])
        return None

    def topology(self) -> Topology:
        """Return the callers and echoes of all channels, and no chains."""
        plan = _plan(self)
        size = self.section.channels
        callers = [f"{name}/channel-{i}" for name in self.names for i in range(size)]
        hosts = plan.counterparties.tolist()
        echoes = [f"{self.names[host]}/{caller.replace('/', '-')}" for host, caller in zip(hosts, callers, strict=True)]
        numbers = self.first_program + np.arange(2 * len(callers), dtype=np.uint64)
        known = np.array(self.chains, dtype=np.uint64)
        homes = np.concatenate([np.repeat(known, size), known[plan.counterparties]])
        kinds = [self.section.caller] * len(callers) + [self.section.echo] * len(echoes)
        balances = [self.section.balance] * len(callers) + [0] * len(echoes)
        return Topology(CHAINS_SCHEMA.empty_table(), programs_table(numbers, callers + echoes, homes, kinds, balances))

    def rows_a_tick(self) -> float:
        """Return the mean number of rows a tick."""
        return _mean(self.section)

    def counts(self, first: int, end: int) -> I64Array:
        """Return the message counts of ticks ``first`` to ``end`` - 1 as a (ticks, chains) matrix."""
        return _counts(self, first, end)[0]

    @property
    def _block_ticks(self) -> int:
        """Number of ticks sampled together, bounded by memory."""
        return max(1, min(_BLOCK_OF_TICKS, _BLOCK_CELLS // max(1, len(self.chains))))

    @property
    def _row_bytes(self) -> int:
        """Maximum number of bytes of a payload."""
        most: int = self.section.payload_bytes[1]
        return most + HEADER_BYTES + len(self.section.method.encode())

    def _window(self, tick: int) -> tuple[int, int]:
        """Return the range of ticks around ``tick`` whose rows are built together."""
        size = self._block_ticks
        number, offset = divmod(tick, size)
        totals = _block(self, number)[0].sum(axis=1)
        limit = max(1, min(_WINDOW_ROWS, _WINDOW_BYTES // self._row_bytes))
        rows_before = np.cumsum(totals) - totals
        cell = rows_before // limit
        first, end = (int(np.searchsorted(cell, cell[offset], side=side)) for side in ("left", "right"))
        if totals[first:end].sum() > 2 * limit:
            return tick, tick + 1
        return number * size + first, number * size + end

    def _rows_of(self, places: I64Array, first: int, end: int) -> pa.Table:
        """Return the rows of chains (by position) in a range of ticks, by tick, then by chain."""
        counts, bursts = (column[:, places] for column in _cached_counts(self, first, end))
        busy = np.argwhere(counts > 0)
        ticks, chains = busy[:, 0], places[busy[:, 1]]
        counts, bursts = counts[counts > 0], bursts[busy[:, 0], busy[:, 1]]
        # An Arrow array holds a bounded number of payload bytes, so the rows are built in parts.
        cell = np.cumsum(counts * self._row_bytes) // _ENCODED_BYTES
        parts = [cell == number for number in np.unique(cell)]
        tables = [self._table(chains[part], first + ticks[part], counts[part], bursts[part]) for part in parts]
        return tables[0] if len(tables) == 1 else pa.concat_tables([INGRESS_SCHEMA.empty_table(), *tables])

    def _table(self, places: I64Array, ticks: I64Array, counts: I64Array, bursts: I64Array) -> pa.Table:
        """Build the rows of (chain position, tick) cells.

        ``counts`` is the number of messages of each cell; the last ``bursts`` of them use one channel.
        """
        plan, section = _plan(self), self.section
        least, most = section.payload_bytes
        channels, sizes, bodies = [], [], []
        cells = zip(places.tolist(), ticks.tolist(), counts.tolist(), bursts.tolist(), strict=True)
        for place, tick, count, burst in cells:
            words = random_words(self.seed, self.chains[place], tick, _ROWS, 2 * count + (count * most + 7) // 8)
            channel = np.searchsorted(plan.thresholds, words[:count], side="right")
            channel[count - burst :] = channel[-1]
            size = least + (words[count : 2 * count] % np.uint64(most - least + 1)).astype(np.int64)
            channels.append(place * section.channels + channel)
            sizes.append(size)
            bodies.append(words[2 * count :].astype("<u8").view(np.uint8)[: int(size.sum())])
        ends = np.append(0, np.cumsum(np.concatenate(sizes))).astype(np.int32)
        content = np.concatenate(bodies)
        rows = len(ends) - 1
        body = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(content)])
        channel = np.concatenate(channels).astype(np.uint64)
        callers = np.uint64(self.first_program) + channel
        echoes = (callers + np.uint64(len(self.chains) * section.channels)).astype(np.uint64)
        chain = np.repeat(np.array(self.chains, dtype=np.uint64)[places], counts)
        columns = {
            "chain": pa.array(chain),
            "receiver": pa.array(callers),
            "sender": pa.array(np.full(rows, _USER, dtype=np.uint64)),
            "method": pa.repeat(pa.scalar(CALL_METHOD), rows),
            "payload": encode_calls(echoes, section.amount >> 64, section.amount & (2**64 - 1), section.method, body),
        }
        return pa.table(columns, schema=INGRESS_SCHEMA)


@dataclass(frozen=True)
class TrafficFigures:
    """Statistics of a traffic sample.

    Attributes:
        per_block: Mean number of messages a block.
        variance_to_mean: Variance-to-mean ratio of the count, by number of consecutive blocks.
        top_1_share: Share of the busiest channel.
        top_5_share: Share of the five busiest channels.
    """

    per_block: float
    variance_to_mean: dict[int, float]
    top_1_share: float
    top_5_share: float


def generated_traffic(section: GeneratedSection, own: Topology, seed: int, path: str) -> GeneratedTraffic:
    """Create the traffic that a section describes.

    Args:
        section: Settings of the scenario.
        own: Chains and programs of the scenario file.
        seed: Seed of the network.
        path: The scenario file, for errors.

    Raises:
        InvalidInput: A generated name equals a declared one.
    """
    chains = own.chains.sort_by("number")
    first = max(own.programs["number"].to_pylist(), default=-1) + 1
    numbers, names = (tuple(chains[name].to_pylist()) for name in ("number", "name"))
    traffic = GeneratedTraffic(section, seed, numbers, names, first)
    declared = set(own.programs["name"].to_pylist())
    if declared:
        for name in traffic.topology().programs["name"].to_pylist():
            if name in declared:
                raise InvalidInput(f"{path}: programs: the name {format_value(name)} is taken by a generated channel")
    return traffic


def measure_traffic(counts: I64Array, channels: I64Array) -> TrafficFigures:
    """Compute statistics of a traffic sample.

    Args:
        counts: Number of messages in each of n consecutive blocks.
        channels: Number of messages of each channel.
    """
    ratios = {}
    for width in traffic_settings.VARIANCE_TO_MEAN:
        whole = len(counts) // width
        if whole > 1:
            sums = counts[: whole * width].reshape(whole, width).sum(axis=1)
            ratios[width] = float(sums.var() / sums.mean())
    ordered = np.sort(channels)[::-1]
    total = ordered.sum()
    return TrafficFigures(float(counts.mean()), ratios, float(ordered[0] / total), float(ordered[:5].sum() / total))


def channel_shares(skew: str | float, channels: int) -> F64Array:
    """Return the shares of a chain's channels, largest first.

    Args:
        skew: ``cosmoshub``, ``uniform`` or a Zipf exponent.
        channels: Number of channels.

    Returns:
        float64 array that sums to 1.
    """
    ranks = np.arange(1, channels + 1, dtype=np.float64)
    if skew == "uniform":
        weights = np.ones(channels)
    elif skew == "cosmoshub":
        head = np.array(traffic_settings.CHANNEL_SHARES)
        weights = head[-1] * traffic_settings.TAIL_RATIO ** np.maximum(ranks - len(head), 0)
        weights[: len(head)] = head[:channels]
    else:
        weights = ranks ** -float(skew)
    share: F64Array = weights / weights.sum()
    return share


@dataclass(frozen=True)
class _Plan:
    """Constants derived from the settings.

    Attributes:
        numbers: Chain numbers.
        thresholds: Upper bounds of the channels' shares of the range of a word.
        rates: Mean messages a tick by chain.
        counterparties: Position of the counterparty chain by channel.
    """

    numbers: U64
    thresholds: U64
    rates: F64Array
    counterparties: I64Array


@functools.lru_cache(maxsize=8)
def _plan(traffic: GeneratedTraffic) -> _Plan:
    """Derive the constants of a traffic."""
    section, count = traffic.section, len(traffic.chains)
    upper = np.minimum(np.cumsum(channel_shares(section.skew, section.channels)), 1.0)
    thresholds = np.floor(upper[:-1] * 2.0**53).astype(np.uint64) << np.uint64(11)
    words = random_words(traffic.seed, 0, 0, _TOPOLOGY, count + count * section.channels)
    weights = np.empty(count)
    weights[np.argsort(words[:count], kind="stable")] = channel_shares(section.degree_skew, count)
    below = np.cumsum(weights)
    source = np.repeat(np.arange(count), section.channels)
    point = uniform_numbers(words[count:]) * (1.0 - weights[source])
    point += np.where(point >= below[source] - weights[source], weights[source], 0.0)
    other = np.minimum(np.searchsorted(below, point, side="right"), count - 1)
    other = np.where(other == source, (source + 1) % count, other)
    return _Plan(np.array(traffic.chains, dtype=np.uint64), thresholds, _mean(section) * weights, other)


def _mean(section: GeneratedSection) -> float:
    """Return the mean number of messages a tick."""
    if section.messages is not None:
        return section.messages / section.ticks
    return section.messages_per_tick or 0.0


@functools.lru_cache(maxsize=512)
def _drift_at(seed: int, part: int, cell: int, chains: int) -> F64Array:
    """Return a standard normal number for each chain at a cell of a drift component."""
    return normal_numbers(random_words(seed, 0, cell, _DRIFT + part, 2 * chains))


def _drift(traffic: GeneratedTraffic, first: int, end: int) -> F64Array:
    """Return the factors on the mean rates: ticks as rows, chains as columns."""
    section, chains = traffic.section, len(traffic.chains)
    width = section.blocks_per_tick
    samples = min(width, _SAMPLES)
    offsets = (2 * np.arange(samples, dtype=np.int64) + 1) * width // (2 * samples)
    blocks = (np.arange(first, end, dtype=np.int64)[:, None] * width + offsets).reshape(-1)
    logarithm = np.zeros((len(blocks), chains))
    for part, (scale, variance) in enumerate(traffic_settings.DRIFT):
        sigma = math.sqrt(math.log1p(variance)) * section.drift
        cells, places = np.unique(blocks // scale, return_inverse=True)
        left = np.stack([_drift_at(traffic.seed, part, cell, chains) for cell in cells.tolist()])
        right = np.stack([_drift_at(traffic.seed, part, cell + 1, chains) for cell in cells.tolist()])
        angle = (blocks % scale / scale * (math.pi / 2))[:, None]
        logarithm += sigma * (np.cos(angle) * left[places] + np.sin(angle) * right[places]) - sigma * sigma / 2
    factor: F64Array = np.exp(logarithm).reshape(end - first, samples, chains).mean(axis=1)
    return factor


def _rates(traffic: GeneratedTraffic, first: int, end: int) -> tuple[F64Array, F64Array, F64Array]:
    """Return matrices (ticks, chains): expected messages, the burst part of them, and a chance."""
    section, chains = traffic.section, len(traffic.chains)
    steady = _plan(traffic).rates * (_drift(traffic, first, end) if section.drift > 0 else np.ones((end - first, 1)))
    words = np.stack([random_words(traffic.seed, 0, tick, _COUNTS, 2 * chains) for tick in range(first, end)])
    chances = uniform_numbers(words)
    burst_probability = 0.0
    if section.bursts.every_blocks > 0:
        burst_probability = -math.expm1(
            section.blocks_per_tick * math.log1p(-min(1 / section.bursts.every_blocks, 1 - 1e-16))
        )
    burst = np.where(chances[:, chains:] < burst_probability, float(section.bursts.messages), 0.0)
    return steady + burst, burst, chances[:, :chains]


def _counts(traffic: GeneratedTraffic, first: int, end: int) -> tuple[I64Array, I64Array]:
    """Return matrices (ticks, chains): messages, and the burst part of them."""
    expected, burst, chances = _rates(traffic, first, end)
    if traffic.section.messages is None:
        counts = poisson_counts(chances, expected)
    else:
        totals = _totals(traffic)[first:end].tolist()
        rows = [multinomial_split(chances[row], total, expected[row]) for row, total in enumerate(totals)]
        counts = np.stack(rows) if rows else np.zeros(expected.shape, dtype=np.int64)
    bursts = np.rint(counts * burst / np.maximum(expected, 1e-300)).astype(np.int64)
    return counts, bursts


@functools.lru_cache(maxsize=4)
def _block(traffic: GeneratedTraffic, number: int) -> tuple[I64Array, I64Array]:
    """Return ``_counts`` for a block of ticks."""
    first = number * traffic._block_ticks
    return _counts(traffic, first, min(first + traffic._block_ticks, traffic.section.ticks))


def _cached_counts(traffic: GeneratedTraffic, first: int, end: int) -> tuple[I64Array, I64Array]:
    """Return ``_counts`` for ticks within one block."""
    number, start = divmod(first, traffic._block_ticks)
    counts, bursts = _block(traffic, number)
    return counts[start : start + end - first], bursts[start : start + end - first]


@functools.lru_cache(maxsize=16)
def _cached_window(traffic: GeneratedTraffic, places: bytes, first: int, end: int) -> tuple[pa.Table, I64Array]:
    """Return the rows of chains in a window of ticks, and the first row of each tick."""
    chains = np.frombuffer(places, dtype=np.int64)
    counts = _cached_counts(traffic, first, end)[0][:, chains].sum(axis=1)
    return traffic._rows_of(chains, first, end), np.append(0, np.cumsum(counts))


@functools.lru_cache(maxsize=4)
def _totals(traffic: GeneratedTraffic) -> I64Array:
    """Return the messages of each tick for a given total."""
    section = traffic.section
    weights = [
        _rates(traffic, start, min(start + _TOTALS_OF_TICKS, section.ticks))[0].sum(axis=1)
        for start in range(0, section.ticks, _TOTALS_OF_TICKS)
    ]
    chances = uniform_numbers(random_words(traffic.seed, 0, 0, _TICKS, section.ticks))
    return multinomial_split(chances, section.messages or 0, np.concatenate(weights))
