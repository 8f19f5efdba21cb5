"""Who signs for a served lake's chains: its own validators, and chains that certify, with keys in files;
validators of other lakes are listed.

The last heights that validators signed, remembered outside the lake, so that nothing is signed twice.

Whoever signs two headers of one height gives everybody the proof that its chain is malicious, and all clients of the
chain freeze; and a subnet that certifies two states of one height has sent other messages than those that were taken.
An older copy of a lake, put back and served again, would do that. So beside each key file lies a file
with the last height of each chain that the key signed (``KEYFILE.signed``), written before the height is committed and
thereby shown to anybody. A height is signed when it is above, or when it is the very same block: one that a kill
interrupted between the two files is made again from the lake's record, and comes out the same.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Self

import pyarrow as pa
from causeway_proofs.errors import InvalidInput

from causeway.core.text import load_json, suggest_known
from causeway.protocols.shared.secrets import LISTED, LISTED_CHAINS, Secrets
from causeway.scenarios.scenario import Scenario
from causeway.service.keys.key_files import public_key, read_chain_key, read_key
from causeway.storage.object_store import name_errors


@dataclass(frozen=True)
class ValidatorKeys:
    """The keys of a served lake. ``files``: of the keys that sign, by chain; ``secrets``: what is in them; ``newest``:
    whether the lake is its newest copy, where what was signed last is not known any more; ``drawn``: the chains whose
    keys are drawn from the seed."""

    files: Mapping[str, Sequence[Path]] = field(default_factory=dict)
    secrets: Secrets = field(default_factory=Secrets)
    newest: bool = False
    drawn: Sequence[str] = ()


def add_chain_keys(
    scenario: Scenario, own: Sequence[str] = (), *, newest: bool = False
) -> tuple[Scenario, ValidatorKeys]:
    """Return a scenario that lists the public keys of its chains whose secret keys are in files, and those keys.

    Args:
        scenario: what it lists itself stays.
        own: ``CHAIN=FILE``: the key file of a chain that this lake runs.
        newest: as in ``ValidatorKeys``.

    Raises:
        InvalidInput: the protocol's chains do not certify with keys, a chain or key is none, another lake runs it, or
            the scenario lists another key.
    """
    if not scenario.protocol.certifies:
        if own:
            raise InvalidInput(f"--chain-key: chains of {scenario.network.protocol} do not certify their states")
        return scenario, ValidatorKeys()
    chains = scenario.declared_topology()
    named = zip(chains.chains["name"].to_pylist(), chains.chains["number"].to_pylist(), strict=True)
    names = [name for name, number in named if number not in chains.external]
    listed: dict[str, str] = dict(scenario.options.get(LISTED_CHAINS, {}))
    files: dict[str, list[Path]] = {}
    seeds: dict[bytes, bytes] = {}
    for text in own:
        chain, path = _parts(text, "--chain-key", "CHAIN=FILE", names)
        key = read_chain_key(Path(path))
        if chain in files:
            raise InvalidInput(f"--chain-key: {chain}: given twice; a chain has one key")
        if key.public in seeds:
            raise InvalidInput(f"--chain-key: {chain}: {path} is another chain's key; each has one of its own")
        if listed.setdefault(chain, key.public.hex()) != key.public.hex():
            text = f"holds another key than options.{LISTED_CHAINS} lists for {chain}"
            raise InvalidInput(f"--chain-key: {path}: {text}")
        files[chain], seeds[key.public] = [Path(path)], key.seed
    content: dict[str, Any] = {**scenario.options, **({LISTED_CHAINS: listed} if listed else {})}
    document = scenario.document.model_copy(update={"options": content})
    certified = content.get("certification") != "off"
    drawn = [name for name in names if certified and name not in listed]
    return replace(scenario, document=document), ValidatorKeys(files, Secrets(seeds), newest, drawn)


def add_validators(
    scenario: Scenario,
    own: Sequence[str] = (),
    others: Sequence[str] = (),
    *,
    drawn: bool = False,
    newest: bool = False,
) -> tuple[Scenario, ValidatorKeys]:
    """Return a scenario that lists the validators of its chains, and the keys of those that are here.

    Args:
        scenario: what it lists itself stays.
        own: ``CHAIN=FILE``: a key file of a validator of a chain that this lake runs.
        others: ``CHAIN=KEY,KEY``: the public keys of the validators of another chain.
        drawn: whether chains may be left whose keys are drawn from the seed.
        newest: as in ``ValidatorKeys``.

    Raises:
        InvalidInput: the protocol's chains do not sign, a chain or key is none, they contradict the scenario, or a
            chain is left.
    """
    chains = scenario.declared_topology()
    names: list[str] = chains.chains["name"].to_pylist()
    if not scenario.protocol.signs:
        if own or others:
            raise InvalidInput(f"--validator-key, --validators: chains of {scenario.network.protocol} do not sign")
        return scenario, ValidatorKeys()
    listed: dict[str, list[str]] = dict(scenario.options.get(LISTED, {}))
    files: dict[str, list[Path]] = {}
    seeds: dict[bytes, bytes] = {}
    given: dict[str, list[str]] = {}
    for text in own:
        chain, path = _parts(text, "--validator-key", "CHAIN=FILE", names)
        key = read_key(Path(path))
        files.setdefault(chain, []).append(Path(path))
        seeds[key.public] = key.seed
        given.setdefault(chain, []).append(key.public.hex())
    for chain, publics in given.items():
        for public in publics:
            if public not in listed.get(chain, publics):
                text = f"is the key of no validator that options.{LISTED} lists for {chain}"
                raise InvalidInput(f"--validator-key: {public}: {text}")
        listed.setdefault(chain, publics)
    for text in others:
        chain, value = _parts(text, "--validators", "CHAIN=KEY,KEY", names)
        publics = [public_key(part.strip(), "--validators").hex() for part in value.split(",")]
        if listed.setdefault(chain, publics) != publics:
            raise InvalidInput(f"--validators: {chain}: the scenario, the lake or --validator-key names others")
    left = [name for name in names if name not in listed]
    if left and not drawn:
        text = "its validators' keys would be drawn from the seed, which every reader of the scenario can do"
        option = f"--validator-key {left[0]}=FILE for a chain of this lake, --validators {left[0]}=KEY for another's"
        raise InvalidInput(f"{left[0]}: {text}: give {option}; or --drawn-keys for a simulation on this machine")
    content: dict[str, Any] = {**scenario.options, **({LISTED: listed} if listed else {})}
    document = scenario.document.model_copy(update={"options": content})
    return replace(scenario, document=document), ValidatorKeys(files, Secrets(seeds), newest)


def _parts(text: str, option: str, form: str, names: Sequence[str]) -> tuple[str, str]:
    chain, equals, value = text.partition("=")
    if not equals or not value:
        raise InvalidInput(f"{option}: {text!r}; write it as {form}")
    if chain not in names:
        raise InvalidInput(f"{option}: {suggest_known('chain', chain, names)}")
    return chain, value


try:
    import fcntl
except ImportError:  # no advisory locks on this system
    fcntl = None  # type: ignore[assignment]

ENDING = ".signed"
TYPE = "causeway-signed"
VERSION = 1


class SignedAlready(InvalidInput):
    """The keys of validators have signed another block of this height, or a later one."""


@dataclass(frozen=True)
class SignedMark:
    """What was signed last of a chain: the block's height, its tick, and a digest of what its header says."""

    height: int
    tick: int
    digest: str

    def is_whole(self) -> bool:
        """Return whether all of it has the types that it must have."""
        return type(self.height) is int and type(self.tick) is int and type(self.digest) is str


class SignedHeights:
    """The last heights that some keys signed. Held by one process at a time.

    ``keys``: the files of the keys, by the chain that they sign for.
    """

    def __init__(self, keys: Mapping[str, Sequence[Path]], lake: str) -> None:
        """Open the files, or make them.

        Raises:
            InvalidInput: one is in the lake, is used by another process, cannot be written, or is damaged.
        """
        self._files: list[_File] = []
        self._lake = lake
        try:
            for path in sorted({path for paths in keys.values() for path in paths}):
                marks = path.with_name(path.name + ENDING)
                if "://" not in lake and marks.resolve().is_relative_to(Path(lake).resolve()):
                    raise InvalidInput(
                        f"{path}: lies in the lake {lake}, and would be restored with it; move it elsewhere"
                    )
                chains = [chain for chain, paths in keys.items() if path in paths]
                self._files.append(_File(path, marks, chains))
        except BaseException:
            self.close()
            raise

    def unfinished(self, height: int, *, newest: bool) -> int | None:
        """Return the tick of the height after ``height``, the lake's last, if it was signed and not committed.

        ``newest``: whether this is the newest copy of a lake whose files are lost; -1 stands for no lake.

        Raises:
            SignedAlready: later heights were signed.
            InvalidInput: a file is missing, or what it says of a chain, although the lake has heights that were signed.
        """
        unsaid = [(file, chain) for file in self._files for chain in file.chains if chain not in file.marks]
        if unsaid and height > 0 and not newest:
            file, chain = unsaid[0]
            what = f"says nothing of {chain}" if file.path.exists() else "missing"
            text = f"{what}, but {self._lake} has {height} heights that the key signed; put it back"
            lost = "if it is lost and no newer copy of the lake was ever served, add --newest-copy"
            raise InvalidInput(f"{file.path}: {text}, or, {lost}")
        for file in self._files:
            for chain, mark in file.marks.items():
                if mark.height > height + 1:
                    raise self._refused(file, chain, mark, height)
        ticks = [mark.tick for file in self._files for mark in file.marks.values() if mark.height == height + 1]
        return ticks[0] if ticks and height >= 0 else None

    def sign(self, headers: Iterable[Mapping[str, Any]], tick: int, names: Sequence[str]) -> None:
        """Remember the headers of a height, durably, before anybody sees them.

        ``headers``: rows with ``chain`` (a position among ``names``), ``number``, ``root``.

        Raises:
            SignedAlready: another one was signed.
        """
        new = {names[row["chain"]]: SignedMark(row["number"], tick, _digest(row, tick)) for row in headers}
        for file in self._files:
            for chain in file.chains:
                if chain in new:
                    last, mark = file.marks.get(chain), new[chain]
                    if last is not None and last != mark and last.height >= mark.height:
                        raise self._refused(file, chain, last, mark.height - 1)
        for file in self._files:
            file.write({chain: new[chain] for chain in file.chains if chain in new})

    def _refused(self, file: _File, chain: str, mark: SignedMark, height: int) -> SignedAlready:
        text = f"{file.path}: {chain} has signed height {mark.height}, but {self._lake} ends at height {max(height, 0)}"
        why = f"it is an older copy, or another lake, and would sign a height twice, which ends all trust in {chain}"
        return SignedAlready(f"{text}: {why}. Put back the newest copy of the lake; or serve a new one with new keys")

    def close(self) -> None:
        """Let other processes use the keys."""
        for file in self._files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


class _File:
    """The marks of the key in a file, which is locked meanwhile. ``chains``: those it signs for now."""

    def __init__(self, key: Path, path: Path, chains: Sequence[str]) -> None:
        self.path, self.chains = path, chains
        self._lock: IO[bytes] | None = None
        try:
            self._lock = open(key, "rb")  # noqa: SIM115 - open as long as it is locked
            if fcntl is not None:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.marks = self._read()
        except BlockingIOError:
            self.close()
            raise InvalidInput(f"{key}: another process signs with this key") from None
        except OSError as error:
            self.close()
            raise InvalidInput(f"{error.filename or path}: cannot be read: {error.strerror or error}") from None

    def _read(self) -> dict[str, SignedMark]:
        if not self.path.exists():
            return {}
        try:
            content = load_json(self.path.read_text())
            if (content["type"], content["version"]) != (TYPE, VERSION):
                raise ValueError
            marks = {chain: SignedMark(**mark) for chain, mark in content["chains"].items()}
            if not all(mark.is_whole() for mark in marks.values()):
                raise ValueError
            return marks
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InvalidInput(
                f"{self.path}: is damaged, so it cannot be told what was signed; put back a copy of it"
            ) from None

    def write(self, marks: Mapping[str, SignedMark]) -> None:
        """Add marks, and have the disk keep them."""
        self.marks = {**self.marks, **marks}
        chains = {chain: asdict(mark) for chain, mark in sorted(self.marks.items())}
        new = self.path.with_name(self.path.name + ".new")
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with name_errors(str(new)), open(handle, "w") as file:
            file.write(json.dumps({"type": TYPE, "version": VERSION, "chains": chains}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def close(self) -> None:
        """Let go of the file."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _digest(row: Mapping[str, Any], tick: int) -> str:
    return hashlib.sha256(b"%d/%d/" % (row["number"], tick) + row["root"]).hexdigest()


def header_rows(tables: Iterable[pa.Table]) -> list[dict[str, Any]]:
    """Return what ``SignedHeights.sign`` wants of tables of headers."""
    return [row for table in tables for row in table.select(["chain", "number", "root"]).to_pylist()]
