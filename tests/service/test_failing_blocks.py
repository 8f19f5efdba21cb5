"""Servers that can make no more blocks: one line of output and the exit code of the cause."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from causeway.cli import main
from causeway.service.keys.validators import SignedHeights
from tests.support.common.lakes import both


def test_full_disk_ends_a_server_with_one_line_naming_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*arguments: Any, **named: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device", "lake/heights/x")

    def failing(*arguments: Any, **named: Any) -> Any:
        raise IndexError("nobody thought of this")

    with both(tmp_path, calls=1):
        pass
    serving = ["serve", str(tmp_path / "left"), "--port", "0", "--drawn-keys", "--block-seconds", "0.01"]
    for what, code, said in (
        (full, 2, "block 2: lake/heights/x: No space left on device; heights up to 1 are kept, serve again to go on"),
        (failing, 3, "unexpected ProductionFailed: block 2: IndexError: nobody thought of this"),
    ):
        monkeypatch.setattr("causeway.network.network.run_group", what)
        with pytest.raises(SystemExit) as ended:
            main(serving)
        last = capsys.readouterr().err.splitlines()[-1]
        assert ended.value.code == code and last.startswith(f"causeway: {said}")


def test_full_disk_is_reported_with_the_signing_record_file(tmp_path: Path) -> None:
    (tmp_path / "key.signed.new").symlink_to("/dev/full")
    (tmp_path / "key").touch()
    signed = SignedHeights({"left": [tmp_path / "key"]}, "memory://lake")
    with pytest.raises(OSError, match="No space left") as caught:
        signed.sign([{"chain": 0, "number": 1, "root": b""}], 1, ["left"])
    signed.close()
    assert caught.value.filename == str(tmp_path / "key.signed.new")
