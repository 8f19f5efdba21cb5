"""Signing keys of a served lake's chains, and protection against double signing.

Two signed headers of one height prove that a chain is malicious, and all its clients freeze; a subnet that
certifies two states of one height contradicts its sent messages. Serving a restored older copy of a lake
would cause both. Beside each key file, ``KEYFILE.signed`` therefore stores the last signed height of each
chain, written before the height is committed and thus visible. A height may be signed if it is above the
stored one, or the identical block: a block interrupted by a kill is rebuilt identically from the record.
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
    """Keys of a served lake.

    Attributes:
        files: Key files by chain.
        secrets: Content of the files.
        newest: True if the lake is its newest copy, for a lost signing record.
        drawn: Chains whose keys are drawn from the seed.
    """

    files: Mapping[str, Sequence[Path]] = field(default_factory=dict)
    secrets: Secrets = field(default_factory=Secrets)
    newest: bool = False
    drawn: Sequence[str] = ()


def add_chain_keys(
    scenario: Scenario, own: Sequence[str] = (), *, newest: bool = False
) -> tuple[Scenario, ValidatorKeys]:
    """Add the public keys of key files to a scenario of certifying chains.

    Args:
        scenario: The scenario; its own listed keys remain.
        own: ``CHAIN=FILE``: key file of a chain that this lake runs.
        newest: As in ``ValidatorKeys``.

    Returns:
        The extended scenario and the keys.

    Raises:
        InvalidInput: The protocol does not certify, a chain or key is invalid, another lake runs the chain,
            or the scenario lists another key.
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
        chain, path = _split_option(text, "--chain-key", "CHAIN=FILE", names)
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
    """Add validators to a scenario of signing chains.

    Args:
        scenario: The scenario; its own listed validators remain.
        own: ``CHAIN=FILE``: key file of a validator of a chain that this lake runs.
        others: ``CHAIN=KEY,KEY``: public keys of another chain's validators.
        drawn: True to allow chains with keys drawn from the seed.
        newest: As in ``ValidatorKeys``.

    Returns:
        The extended scenario and the keys.

    Raises:
        InvalidInput: The protocol does not sign, a chain or key is invalid or contradicts the scenario, or a
            chain has no validators.
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
        chain, path = _split_option(text, "--validator-key", "CHAIN=FILE", names)
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
        chain, value = _split_option(text, "--validators", "CHAIN=KEY,KEY", names)
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


def _split_option(text: str, option: str, form: str, names: Sequence[str]) -> tuple[str, str]:
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
    """Height that the keys have already signed with another block, or exceeded."""


@dataclass(frozen=True)
class SignedMark:
    """Last signed block of a chain: its height, tick, and the digest of its header."""

    height: int
    tick: int
    digest: str

    def is_whole(self) -> bool:
        """Return True if all fields have the correct types."""
        return type(self.height) is int and type(self.tick) is int and type(self.digest) is str


class SignedHeights:
    """Last signed heights of some keys; locked by one process at a time.

    Args:
        keys: Key files by chain.
        lake: Location of the lake.
    """

    def __init__(self, keys: Mapping[str, Sequence[Path]], lake: str) -> None:
        """Open the files, or create them.

        Raises:
            InvalidInput: A file is in the lake, locked by another process, not writable, or corrupted.
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
        """Return the tick of the height after the lake's last if it was signed but not committed.

        Args:
            height: Last height of the lake, -1 without a lake.
            newest: True if this is the newest copy of a lake with lost files.

        Raises:
            SignedAlready: Later heights were signed.
            InvalidInput: A file, or its entry of a chain, is missing although the lake has signed heights.
        """
        missing = [(file, chain) for file in self._files for chain in file.chains if chain not in file.marks]
        if missing and height > 0 and not newest:
            file, chain = missing[0]
            problem = f"says nothing of {chain}" if file.path.exists() else "missing"
            text = f"{problem}, but {self._lake} has {height} heights that the key signed; put it back"
            lost = "if it is lost and no newer copy of the lake was ever served, add --newest-copy"
            raise InvalidInput(f"{file.path}: {text}, or, {lost}")
        for file in self._files:
            for chain, mark in file.marks.items():
                if mark.height > height + 1:
                    raise self._refused(file, chain, mark, height)
        ticks = [mark.tick for file in self._files for mark in file.marks.values() if mark.height == height + 1]
        return ticks[0] if ticks and height >= 0 else None

    def sign(self, headers: Iterable[Mapping[str, Any]], tick: int, names: Sequence[str]) -> None:
        """Record the headers of a height durably before they become visible.

        Args:
            headers: Rows with ``chain`` (position in ``names``), ``number``, ``root``.
            tick: Tick of the height.
            names: Names of the chains.

        Raises:
            SignedAlready: Another block was signed.
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
        """Release the keys."""
        for file in self._files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


class _File:
    """Signing record of a key file, locked while open, for the ``chains`` of the key."""

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
            raise InvalidInput(f"{self.path}: is corrupted; the signed heights are unknown; restore a copy") from None

    def write(self, marks: Mapping[str, SignedMark]) -> None:
        """Add marks durably."""
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
        """Release the file."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _digest(row: Mapping[str, Any], tick: int) -> str:
    return hashlib.sha256(b"%d/%d/" % (row["number"], tick) + row["root"]).hexdigest()


def header_rows(tables: Iterable[pa.Table]) -> list[dict[str, Any]]:
    """Convert header tables to the rows of ``SignedHeights.sign``."""
    return [row for table in tables for row in table.select(["chain", "number", "root"]).to_pylist()]
