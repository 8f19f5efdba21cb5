"""User programs: found beside the scenario, packed for workers, and tried in isolation."""

from __future__ import annotations

import importlib
import json
import sys
import zipfile
from pathlib import Path

import pytest
from causeway_proofs.errors import InvalidInput

import causeway as cw
from causeway.programs.catalogue import find_program_class
from causeway.programs.scalar import Answer, Call, Context, Ingress, Reply, Request
from causeway.programs.trial import HandlerFailed
from causeway.programs.user_modules import allow_scenario_folder, archive_modules, is_importable, loaded_modules


@pytest.fixture
def folder(tmp_path: Path, own_modules: None) -> Path:
    """Return a folder with user modules that are unloaded after the test."""
    (tmp_path / "own_helper.py").write_text("WORD = b'hi'\n")
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").touch()
    (tmp_path / "own_package" / "greeter.py").write_text(
        "import causeway as cw\nfrom own_helper import WORD\n\n"
        "class Greeter(cw.Program):\n    def on_request(self, request, context):\n        return WORD\n"
    )
    (tmp_path / "not_loaded.py").write_text("raise SystemExit\n")
    return allow_scenario_folder(str(tmp_path / "scenario.toml"))


def test_module_beside_the_scenario_is_found_and_packed_with_its_imports(folder: Path, tmp_path: Path) -> None:
    assert find_program_class("own_package.greeter:Greeter").__name__ == "Greeter"
    files = loaded_modules(folder)
    assert [path.relative_to(folder).as_posix() for path in files] == [
        "own_helper.py", "own_package/__init__.py", "own_package/greeter.py",
    ]  # fmt: skip
    target = tmp_path / "archives"
    target.mkdir()
    first = archive_modules(folder, files, target)
    content = first.read_bytes()
    first.unlink()
    assert archive_modules(folder, files, target) == first
    assert first.read_bytes() == content
    assert sorted(zipfile.ZipFile(first).namelist()) == [
        "own_helper.py", "own_package/__init__.py", "own_package/greeter.py",
    ]  # fmt: skip


def test_scenario_folder_shadows_no_module_and_serves_programs_only(folder: Path) -> None:
    (folder / "json.py").write_text("raise SystemExit\n")
    (folder / "optional_module.py").write_text("raise SystemExit\n")
    (folder / "asking.py").write_text(
        "import json\nimport causeway as cw\n"
        "def later():\n    import importlib\n    return importlib.import_module('own_helper').WORD\n"
        "class Asking(cw.Program):\n    loads = staticmethod(json.loads)\n"
    )
    for name in ("optional_module", "own_helper"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)
    with pytest.raises(ModuleNotFoundError):
        exec(compile("import optional_module", "library.py", "exec"), {"__name__": "some_library.part"})
    asking = find_program_class("asking:Asking")
    assert asking.loads is json.loads  # type: ignore[union-attr]
    assert "own_helper" not in sys.modules and sys.modules["asking"].later() == b"hi"
    assert str(folder) not in sys.path


def test_each_scenario_has_its_own_folder(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "own_helper.py").write_text("WORD = b'there'\n")
    (other / "elsewhere.py").write_text("import causeway as cw\nclass Quiet(cw.Program): ...\n")
    allow_scenario_folder(str(other / "scenario.toml"))
    assert find_program_class("elsewhere:Quiet").__name__ == "Quiet"
    # It comes from the first folder, and so do its imports.
    assert find_program_class("own_package.greeter:Greeter").__name__ == "Greeter"
    assert sys.modules["own_helper"].__file__ == str(folder / "own_helper.py")


def test_installed_packages_in_the_folder_are_not_packed() -> None:
    assert is_importable(Path("auction.py"))
    assert not is_importable(Path(".venv/lib/python3.11/site-packages/numpy/__init__.py"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("broken_module:X", "SyntaxError"),
        ("own_helper:Missing", "Missing"),
        ("own_helper:WORD", "is not a subclass"),
        ("nowhere:X", "No module named 'nowhere'"),
        ("failing_module:X", r"ZeroDivisionError: division by zero \(.*/failing_module.py, line 2\)"),
        ("own_uses:X", r"ValueError: negative dimensions .* \(.*/own_uses.py, line 3\)"),
        ("not_loaded:X", r"SystemExit: .*\(.*/not_loaded.py, line 1\)"),
    ],
)
def test_unloadable_modules_are_bad_input(folder: Path, name: str, text: str) -> None:
    (folder / "broken_module.py").write_text("def f(:\n")
    (folder / "failing_module.py").write_text("import own_helper\nX = 1 / 0\n")
    (folder / "own_uses.py").write_text("import numpy\n\nX = numpy.zeros(-1)\n")
    with pytest.raises(InvalidInput, match=text) as error:
        find_program_class(name)
    assert "\n" not in str(error.value)


class Relay(cw.Program):
    """Relay that forwards requests to program 9 and returns its answers; ``no`` is rejected, ``break`` fails."""

    def initial_state(self) -> dict[str, int]:
        return {"seen": 0}

    def on_request(self, request: Request, context: Context) -> None:
        self.state["seen"] += 1
        if request.method == "no":
            raise cw.Reject("never")
        if request.method == "break":
            raise KeyError("oh")
        context.call(9, request.method, request.payload, note=request.ref)

    def on_reply(self, reply: Reply, context: Context) -> None:
        context.answer(reply.note, reply.payload)

    def on_ingress(self, message: Ingress, context: Context) -> None:
        raise ValueError("users have no business here")


def test_program_on_trial_follows_round_rules(capsys: pytest.CaptureFixture[str]) -> None:
    relay = cw.Trial(Relay, balance=2**70)
    assert relay.balance == 2**70
    (call,) = relay.request(4, "ask", b"x", amount=5)
    assert call == Call(9, 0, "ask", b"x", 0)
    assert isinstance(call, Call)
    assert relay.reply(call, b"y") == [Answer(4, 1, 5, 0, 0, b"y")]
    assert relay.request(4, "no", amount=6) == [Answer(4, 2, 6, 0, 4, b"never")]
    assert capsys.readouterr().err == ""
    assert relay.request(4, "break") == [Answer(4, 3, 0, 0, 5, b"KeyError: 'oh'")]
    traced = capsys.readouterr().err
    assert "Traceback" in traced and "test_own_programs.py" in traced and traced.endswith("KeyError: 'oh'\n")
    with pytest.raises(HandlerFailed, match="no business here") as failed:
        relay.ingress("hello")
    assert isinstance(failed.value.__cause__, ValueError)
    assert relay.state == {"seen": 1}
