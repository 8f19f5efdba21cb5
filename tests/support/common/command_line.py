"""The command line as a test runs it: in this process, in a folder of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from causeway.cli import main

Result = tuple[int, str, str]
Run = Callable[..., Result]


def command_line(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch, *first: object
) -> Iterator[Run]:
    """Give a function that runs the command line in a folder, each time with the arguments ``first``, and gives its
    exit code, output and error output; for fixtures, which yield from it."""
    monkeypatch.chdir(folder)

    def run(*arguments: object) -> Result:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in (*first, *arguments)])
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    yield run
    logging.disable(logging.NOTSET)
