"""Recorded traffic: each packet becomes a call from its channel's end to the counterparty.

Channel ends become programs, and their chains become chains, both numbered by name.

The recording is read twice and never held in memory. The first pass collects its ends, its first time and its bytes a
tick. The second converts each packet to an ingress message and appends it to one of several runs, each a range of ticks
that fits in memory. Each run is then sorted by tick, chain and recorded order, and written as one part of a prepared
folder.

Memory: one batch, and one run of about ``RUN_BYTES``; a larger single tick is sorted in memory whole. Disk: twice the
size of the result during preparation.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pa_fs
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import U64

from causeway.cluster.jobs import Session, run_tasks
from causeway.config.topology import CHAINS_SCHEMA, Topology
from causeway.core.ingress_call import encode_calls
from causeway.core.text import load_json
from causeway.scenarios.directory import programs_table
from causeway.scenarios.prepared_traffic import (
    INDEX_SCHEMA,
    STORED_SCHEMA,
    PreparedTraffic,
    clear_folder,
    finish_prepared,
    part_path,
    read_prepared,
    write_part,
)
from causeway.scenarios.recording import RecordingPiece, file_system, fingerprint_files, read_packets, split_recording
from causeway.scenarios.traffic_settings import RecordedSection
from causeway.storage.files import Storage
from causeway.storage.object_store import MAX_WHOLE_BYTES
from causeway.storage.seals import Seal

ChannelEnd = tuple[str, str, str | None]
"""Chain, channel and, if a column has it, destination chain, as recorded."""


@dataclass(frozen=True)
class ChannelRoute:
    """Numbers of the chain and program of an end, and of the program that its packets call."""

    chain: int
    caller: int
    callee: int


class ChannelRegistry:
    """Counterparties of channel ends, by chain and channel."""

    def __init__(self, channels: list[Any], file: str) -> None:
        """Build the registry; records with channel ``*`` stand for many channels and are skipped.

        Args:
            channels: Objects with chain_1, channel_1, chain_2, channel_2.
            file: Their file, for errors.
        """
        self.chains: set[str] = set()
        self.counterparty: dict[tuple[str, str], tuple[str, str]] = {}
        for place, record in enumerate(channels):
            keys = ("chain_1", "channel_1", "chain_2", "channel_2")
            if not isinstance(record, Mapping) or not all(isinstance(record.get(key), str) for key in keys):
                raise InvalidInput(f"{file}: record {place + 1}: must be an object with the texts {', '.join(keys)}")
            chain_1, channel_1, chain_2, channel_2 = (record[key] for key in keys)
            if "*" in (channel_1, channel_2):
                continue
            self.chains |= {chain_1, chain_2}
            self.counterparty.setdefault((chain_1, channel_1), (chain_2, channel_2))
            self.counterparty.setdefault((chain_2, channel_2), (chain_1, channel_1))

    def canonical(self, chain: str) -> str:
        """Return the registry's name of a chain: ``cosmoshub-4`` may be listed as ``cosmoshub``."""
        shorter = re.sub(r"-[0-9]+$", "", chain)
        return shorter if chain not in self.chains and shorter in self.chains else chain


def read_registry(file: str | None) -> ChannelRegistry:
    """Read a registry from a JSON file; without a file it is empty."""
    if file is None:
        return ChannelRegistry([], "")
    system, inside = file_system(file)
    try:
        with system.open_input_stream(inside) as stream:
            records = load_json(stream.read())
    except FileNotFoundError:
        raise InvalidInput(f"{file}: no such channels file (traffic.channels.file)") from None
    except (ValueError, OSError) as error:
        raise InvalidInput(f"{file}: cannot be read as JSON: {' '.join(str(error).split())}") from None
    if not isinstance(records, list):
        raise InvalidInput(f"{file}: must be a JSON array of channels")
    return ChannelRegistry(records, file)


def route_ends(
    ends: Collection[ChannelEnd], registry: ChannelRegistry, own: Topology, section: RecordedSection, path: str
) -> tuple[Topology, dict[ChannelEnd, ChannelRoute]]:
    """Derive the topology and the routes of channel ends.

    Chains and programs of the file with the same name are used as declared. New ones are numbered after the largest of
    the file, in order of name.

    Args:
        ends: Channel ends of the recording.
        registry: Known counterparties.
        own: Chains and programs of the scenario file.
        section: Settings, with the classes of new programs.
        path: The scenario file, for errors.

    Returns:
        The additions to the topology, and the route of each end.
    """
    names = _Names(path)
    pairs = {end: _pair(end, registry, names) for end in ends}
    callers = {caller for caller, _ in pairs.values()}
    hosts = {program: chain for pair in pairs.values() for chain, program in pair}
    own_chains = dict(zip(own.chains["name"].to_pylist(), own.chains["number"].to_pylist(), strict=True))
    own_programs = dict(zip(own.programs["name"].to_pylist(), own.programs["number"].to_pylist(), strict=True))
    own_hosts = dict(zip(own.programs["name"].to_pylist(), own.programs["chain"].to_pylist(), strict=True))
    new_chains = sorted(set(hosts.values()) - set(own_chains))
    new_programs = sorted(set(hosts) - set(own_programs))
    chain_of = own_chains | _assign_numbers(new_chains, own_chains)
    number_of = own_programs | _assign_numbers(new_programs, own_programs)
    chains = pa.Table.from_arrays(
        [pa.array([chain_of[name] for name in new_chains], pa.uint64()), pa.array(new_chains, pa.string())],
        schema=CHAINS_SCHEMA,
    )
    calling = {program for _, program in callers}
    programs = programs_table(
        np.array([number_of[name] for name in new_programs], dtype=np.uint64),
        new_programs,
        [chain_of[hosts[name]] for name in new_programs],
        [section.caller if name in calling else section.echo for name in new_programs],
        [section.balance if name in calling else 0 for name in new_programs],
    )
    routes = {}
    for end, ((chain, caller), (_, callee)) in pairs.items():
        host = own_hosts.get(caller)
        routes[end] = ChannelRoute(chain_of[chain] if host is None else host, number_of[caller], number_of[callee])
    return Topology(chains, programs), routes


class _Names:
    """Recorded names converted to valid names; collisions raise ``InvalidInput``."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._original: dict[str, str] = {}

    def clean(self, text: str, forbidden: str) -> str:
        name = re.sub(rf"[\s{forbidden}]", "_", text)
        if self._original.setdefault(name, text) != text:
            both = f'"{self._original[name]}" and "{text}"'
            raise InvalidInput(
                f"{self._path}: traffic: {both} would both be called {name}; rename one in the recording"
            )
        return name


def _pair(end: ChannelEnd, registry: ChannelRegistry, names: _Names) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return (chain, program) of an end and of its counterparty."""
    recorded_chain, channel, recorded_destination = end
    chain = registry.canonical(recorded_chain)
    known = registry.counterparty.get((chain, channel))
    destination = None if recorded_destination is None else registry.canonical(recorded_destination)
    if known is not None and destination in (None, known[0]):
        other_chain, other_channel = known
    elif destination is not None:
        other_chain, other_channel = destination, f"{chain}.{channel}"
    else:
        other_chain, other_channel = f"unknown-{chain}-{channel}", f"{chain}.{channel}"

    def clean_names(chain: str, channel: str) -> tuple[str, str]:
        clean = names.clean(chain, "/>#")
        return clean, f"{clean}/{names.clean(channel, '>#')}"

    return clean_names(chain, channel), clean_names(other_chain, other_channel)


def _assign_numbers(names: list[str], declared: Mapping[str, int]) -> dict[str, int]:
    first = max(declared.values(), default=-1) + 1
    return {name: first + place for place, name in enumerate(names)}


RUN_BYTES = 128 * 1024 * 1024
"""Approximate size of a run in memory."""

_VERSION = 1
_ROW_BYTES = 64
_CHANNELS_FILE = "ibc_channels.json"
_KEYS = ("chain", "end", "destination")


@dataclass(frozen=True)
class PieceScan:
    """Result of the first pass over a piece of the recording.

    Attributes:
        rows: Number of packets.
        first: First time.
        ends: Channel ends.
        cells: Cells of time, ascending.
        weights: Bytes of each cell.
    """

    rows: int
    first: int
    ends: tuple[ChannelEnd, ...]
    cells: U64
    weights: npt.NDArray[np.int64]


@dataclass(frozen=True)
class SortPlan:
    """Input of the second pass.

    Run ``i`` holds the ticks from ``run_ticks[i]`` to before ``run_ticks[i + 1]``.
    """

    folder: str
    section: RecordedSection
    unit: int
    first: int
    run_ticks: U64
    routes: dict[ChannelEnd, ChannelRoute]


def recorded_traffic(
    section: RecordedSection, own: Topology, folder: str, path: str, spark: Session | None
) -> PreparedTraffic:
    """Prepare the traffic of a recording in a folder, unless the folder has it already.

    Args:
        section: Settings.
        own: Chains and programs of the scenario file.
        folder: Folder for the sorted traffic, shared by all of Spark if ``spark`` is given.
        path: The scenario file, for errors.
        spark: Processes pieces and runs in parallel, with the same result; None: this process.

    Raises:
        InvalidInput: The recording is not as declared, or the folder holds another one or cannot be written.
    """
    if section.source_chain is None and section.columns.source_chain is None:
        raise InvalidInput(f"{path}: traffic.source_chain: missing; give it, or traffic.columns.source_chain")
    identity = _identity(section, own)
    token = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    manifest = read_prepared(folder)
    if manifest is not None:
        if manifest.get("token") != token:
            raise InvalidInput(
                f"{folder}: holds traffic prepared from another recording or with other settings; use another folder"
            )
        return PreparedTraffic(folder, token)
    pieces = split_recording(section)
    clear_folder(folder)
    unit = section.blocks_per_tick
    if section.seconds_per_tick is not None:
        unit = round(section.seconds_per_tick * 1_000_000)
    scans = run_tasks(functools.partial(scan_piece, section=section, unit=unit), pieces, spark, "scan the recording")
    ends = sorted({end for scan in scans for end in scan.ends}, key=lambda end: tuple(part or "" for part in end))
    if not ends:
        raise InvalidInput(f"{section.path}: no packets{' where traffic.where holds' if section.where else ''}")
    first = min(scan.first for scan in scans)
    topology, routes = route_ends(ends, read_registry(_channels_file(section)), own, section, path)
    sorting = SortPlan(folder, section, unit, first, _run_ticks(scans, first // unit), routes)
    run_tasks(functools.partial(split_piece, sorting=sorting), list(enumerate(pieces)), spark, "split the recording")
    sort = functools.partial(sort_run, folder=folder, pieces=len(pieces))
    parts = run_tasks(sort, list(range(len(sorting.run_ticks))), spark, "sort the recording")
    ticks = np.concatenate([np.zeros(0, dtype=np.uint64), *(part[1] for part in parts)])
    rows = sum(scan.rows for scan in scans)
    last = int(ticks[-1]) if len(ticks) else None
    content = {"version": _VERSION, "token": token, "rows": rows, "first_time": first, "last_tick": last}
    index, seals = [part[0][0] for part in parts], {part_path(run): part[0][1] for run, part in enumerate(parts)}
    written = {path: seal for path, seal in seals.items() if seal[0]}
    finish_prepared(folder, index, written, ticks, topology, content | {"identity": identity})
    Storage(folder).remove_folder("runs")
    return PreparedTraffic(folder, token)


def scan_piece(piece: RecordingPiece, section: RecordedSection, unit: int) -> PieceScan:
    """Read and validate a piece: its ends, first time and weight."""
    rows, first = 0, 2**64 - 1
    ends: set[ChannelEnd] = set()
    weights: dict[int, int] = {}
    for batch in read_packets(piece, section):
        if not batch.num_rows:
            continue
        rows += batch.num_rows
        times = batch["time"].to_numpy()
        first = min(first, int(times.min()))
        distinct = batch.select(_KEYS).group_by(list(_KEYS)).aggregate([])
        ends.update(zip(*(distinct[key].to_pylist() for key in _KEYS), strict=True))
        sizes = pc.binary_length(batch["body"]).to_numpy().astype(np.int64) + _ROW_BYTES
        cells, places = np.unique(times // np.uint64(unit), return_inverse=True)
        sums = np.zeros(len(cells), dtype=np.int64)
        np.add.at(sums, places, sizes)
        for cell, weight in zip(cells.tolist(), sums.tolist(), strict=True):
            weights[cell] = weights.get(cell, 0) + weight
    ordered = sorted(weights)
    heavy = np.array([weights[cell] for cell in ordered], dtype=np.int64)
    return PieceScan(rows, first, tuple(ends), np.array(ordered, dtype=np.uint64), heavy)


def split_piece(numbered: tuple[int, RecordingPiece], sorting: SortPlan) -> None:
    """Append the packets of a piece, as ingress messages, to the runs of their ticks."""
    number, piece = numbered
    with _Runs(sorting.folder, number) as runs:
        for batch in read_packets(piece, sorting.section):
            if not batch.num_rows:
                continue
            table = _messages(batch, sorting)
            run = np.searchsorted(sorting.run_ticks, table["tick"].to_numpy(), side="right") - 1
            order = np.argsort(run, kind="stable")
            table, run = table.take(pa.array(order)), run[order]
            starts = np.flatnonzero(np.append(True, run[1:] != run[:-1]))
            for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(run)], strict=True):
                runs.append(int(run[start]), table.slice(start, end - start))


def _run_path(run: int, piece: int) -> str:
    return f"runs/{run:05d}-{piece:05d}.arrow"


def sort_run(run: int, folder: str, pieces: int) -> tuple[tuple[pa.Table, Seal], U64]:
    """Sort a run and write it as a part.

    Returns:
        Its index rows with its seal (of length 0 if it is empty), and its ticks.
    """
    storage = Storage(folder)
    tables = []
    for piece in range(pieces):
        with contextlib.suppress(FileNotFoundError):
            content = storage.read_bytes(_run_path(run, piece), MAX_WHOLE_BYTES)
            tables.append(pa.ipc.open_stream(pa.BufferReader(content)).read_all())
    if not tables:
        return (INDEX_SCHEMA.empty_table(), (0, "")), np.zeros(0, dtype=np.uint64)
    table = pa.concat_tables(tables).combine_chunks()
    order = np.lexsort((table["chain"].to_numpy(), table["tick"].to_numpy()))
    table = table.take(pa.array(order))
    return write_part(folder, run, table), np.unique(table["tick"].to_numpy())


class _Runs:
    """The run files of a piece, opened on first use."""

    def __init__(self, folder: str, piece: int) -> None:
        self._folder = folder
        self._piece = piece
        self._files: dict[int, tuple[Any, Any]] = {}

    def __enter__(self) -> _Runs:
        return self

    def append(self, run: int, table: pa.Table) -> None:
        if run not in self._files:
            opening = Storage(self._folder).place.writer(_run_path(run, self._piece))
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            self._files[run] = (opening, pa.ipc.new_stream(opening.__enter__(), STORED_SCHEMA, options=options))
        self._files[run][1].write_table(table)

    def __exit__(self, *failure: Any) -> None:
        for opening, writer in self._files.values():
            writer.close()
            opening.__exit__(*failure)


def _messages(batch: pa.Table, sorting: SortPlan) -> pa.Table:
    """Convert packets to ``STORED_SCHEMA``, in order."""
    section = sorting.section
    keys = [pc.fill_null(batch[key], "").combine_chunks() for key in _KEYS]
    present = batch["destination"].is_valid().combine_chunks().cast(pa.uint8()).cast(pa.string())
    joined = pc.binary_join_element_wise(*keys, present, "\x1f").dictionary_encode()
    first_rows = np.zeros(len(joined.dictionary), dtype=np.int64)
    codes = joined.indices.to_numpy()
    first_rows[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    distinct = batch.select(_KEYS).take(pa.array(first_rows)).to_pylist()
    routes = [sorting.routes[row["chain"], row["end"], row["destination"]] for row in distinct]
    numbers = np.array([(route.chain, route.caller, route.callee) for route in routes], dtype=np.uint64)[codes]
    ticks = (batch["time"].to_numpy() - np.uint64(sorting.first)) // np.uint64(sorting.unit)
    high, low = np.uint64(section.amount >> 64), np.uint64(section.amount & (2**64 - 1))
    bodies = batch["body"].combine_chunks()
    payloads = encode_calls(numbers[:, 2], int(high), int(low), section.method, bodies)
    columns = [pa.array(ticks), pa.array(numbers[:, 0].copy()), pa.array(numbers[:, 1].copy()), payloads]
    return pa.Table.from_arrays(columns, schema=STORED_SCHEMA)


def _run_ticks(scans: list[PieceScan], offset: int) -> U64:
    """Return the first tick of each run of about ``RUN_BYTES``; the first is 0.

    Cells of time start at multiples of the unit, ticks at the first packet. A packet of cell ``offset + t`` is in tick
    ``t`` or ``t - 1``, so the size of a run is off by less than the weight of a tick.
    """
    cells = np.concatenate([scan.cells for scan in scans])
    weights = np.concatenate([scan.weights for scan in scans])
    distinct, places = np.unique(cells, return_inverse=True)
    sums = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(sums, places, weights)
    before = np.cumsum(sums) - sums
    cut = np.flatnonzero(np.append(False, before[1:] // RUN_BYTES != before[:-1] // RUN_BYTES))
    return np.append(np.uint64(0), distinct[cut] - np.uint64(offset)).astype(np.uint64)


def _channels_file(section: RecordedSection) -> str | None:
    """Return the declared channels file, or the one beside the recording."""
    if section.channels.file is not None or section.path is None:
        return section.channels.file
    folder = section.path.rstrip("/").rsplit("/", 1)[0] if "/" in section.path else "."
    beside = f"{folder}/{_CHANNELS_FILE}"
    system, inside = file_system(beside)
    return beside if system.get_file_info(inside).type == pa_fs.FileType.File else None


def _identity(section: RecordedSection, own: Topology) -> dict[str, Any]:
    """Return the inputs of the preparation: settings, fingerprints, declared topology."""
    settings = section.model_dump(mode="json", exclude={"path": True, "channels": True})
    channels = _channels_file(section)
    if channels is not None:
        read_registry(channels)
    names = {"chains": own.chains.to_pylist(), "programs": own.programs.select(["number", "name", "chain"]).to_pylist()}
    topology = hashlib.sha256(json.dumps(names, sort_keys=True).encode()).hexdigest()
    return {
        "version": _VERSION,
        "settings": settings,
        "recording": fingerprint_files(section.path or ""),
        "channels": None if channels is None else fingerprint_files(channels),
        "topology": topology,
    }
