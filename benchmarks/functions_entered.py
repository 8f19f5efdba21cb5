"""``python -m benchmarks.functions_entered``: count a protocol's functions that one round with one message enters.

One user asks a program for one call to a program on another chain. The busiest round between the request and the answer
is reported: distinct functions of the protocol's own package, methods and lambdas included, comprehensions and
generated methods excluded.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

import causeway as cw
from causeway.protocols import registry

COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
"""Code objects that are no functions to a reader, and not all of which are functions from Python 3.12 on."""

PROTOCOLS = ("ic", "xdm", "ibc", "icmp")

SCENARIO = """
[network]
protocol = "{protocol}"
seed = 1
executor = "in_process"
{options}
[[chains]]
count = 2
prefix = "chain-"

[[programs]]
name = "alice"
chain = "chain-0"
program = "caller"
balance = 100_000

[[programs]]
name = "bob"
chain = "chain-1"
program = "echo"

[traffic]
source = "script"

[[traffic.send]]
tick = 1
to = "alice"
call = {{ receiver = "bob", method = "echo", text = "hello" }}
"""

OPTIONS = {"xdm": "\n[options]\narchiving_depth = 5\nchallenge_period = 8\nendowment = 1_000\n"}
"""What a protocol's scenario says besides: short waits, and fees that a call can pay."""


def entered(protocol: str) -> dict[int, set[CodeType]]:
    """Return the functions of a protocol's package that each height of the small network enters."""
    kernel = registry.find_protocol(protocol).load_kernel()
    package = f"causeway.protocols.{protocol}"
    folder = str(Path(str(import_module(package).__file__)).parent) + os.sep
    heights = defaultdict[int, set[CodeType]](set)
    cls = kernel if isinstance(kernel, type) else _class_in(package)
    with (
        _recorded(cls, "plan", folder, heights),
        _recorded(cls, "round", folder, heights),
        tempfile.TemporaryDirectory() as place,
    ):
        scenario = Path(place) / "scenario.toml"
        scenario.write_text(SCENARIO.format(protocol=protocol, options=OPTIONS.get(protocol, "")))
        with cw.LakeNetwork.from_scenario(str(scenario), lake=str(Path(place) / "lake")) as network:
            network.run()
    return heights


def _class_in(package: str) -> type:
    """Return the kernel class that a package's module ``kernel`` defines."""
    module = import_module(f"{package}.kernel")
    (found,) = (cls for cls in vars(module).values() if isinstance(cls, type) and _is_kernel(cls, module.__name__))
    return found


def _is_kernel(cls: type, module: str) -> bool:
    return cls.__module__ == module and {"plan", "round"} <= vars(cls).keys()


@contextmanager
def _recorded(cls: Any, method: str, folder: str, heights: dict[int, set[CodeType]]) -> Iterator[None]:
    """Record the functions that are entered under a method of a kernel, by height."""
    original: Callable[..., Any] = getattr(cls, method)

    def recorded(self: Any, *args: Any) -> Any:
        codes = heights[args[-1].height]

        def enter(frame: FrameType, event: str, _: Any) -> None:
            code = frame.f_code
            if event == "call" and code.co_filename.startswith(folder) and code.co_name not in COMPREHENSIONS:
                codes.add(code)

        sys.setprofile(enter)
        try:
            return original(self, *args)
        finally:
            sys.setprofile(None)

    with patch.object(cls, method, recorded):
        yield


def main(names: Sequence[str]) -> None:
    """Print the figure of each protocol; with ``--list``, the functions by module as well."""
    listed = "--list" in names
    for protocol in [name for name in names if name != "--list"] or PROTOCOLS:
        heights = entered(protocol)
        busiest = max(heights.values(), key=len)
        union = set[CodeType]().union(*heights.values())
        print(f"{protocol}: {len(busiest)} functions in the busiest round, {len(union)} in all {len(heights)} rounds")
        if listed:
            for name, number in sorted(Counter(Path(code.co_filename).stem for code in busiest).items()):
                inside = sorted(code.co_qualname for code in busiest if Path(code.co_filename).stem == name)
                print(f"  {name} ({number}): {', '.join(inside)}")


if __name__ == "__main__":
    main(sys.argv[1:])
