"""The pytest plugin: networks for tests, under several protocols, and what their messages did where a test fails.

It is there in every run of pytest where Causeway is installed, so it imports nothing of it until a test asks.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from causeway.testing.recent_networks import RecentNetworks, watch_networks

if TYPE_CHECKING:
    from causeway.testing.network import ForkNetwork, MakeNetwork, Network

MARK = "causeway"
FIXTURE = "causeway_network"
PROTOCOL = "causeway_protocol"
ALL = "all"

_TOUCHED = pytest.StashKey[RecentNetworks]()


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark."""
    line = (
        f"{MARK}(protocols=None, options=None): run the test once under each of these protocols ({ALL!r}: under all), "
        f"with these options by protocol, in the networks that the fixture {FIXTURE} makes"
    )
    config.addinivalue_line("markers", line)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for a network or its protocol once under each protocol of its mark."""
    if PROTOCOL not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker(MARK)
    try:
        protocols = None if mark is None else marked_protocols(mark)
    except ValueError as error:
        pytest.fail(f"{metafunc.definition.nodeid}: {error}", pytrace=False)
    if protocols is not None:
        metafunc.parametrize(PROTOCOL, protocols, indirect=True)


def marked_protocols(mark: pytest.Mark) -> list[str] | None:
    """Return the protocols that a mark names, None where it names none. Raises ``ValueError``."""
    unknown = sorted(set(mark.kwargs) - {"protocols", "options"})
    if mark.args or unknown:
        what = f"an argument {mark.args[0]!r} without a name" if mark.args else f"an argument {unknown[0]}"
        raise ValueError(f"mark {MARK}: {what}; allowed: protocols, options")
    asked = mark.kwargs.get("protocols")
    return None if asked is None else _protocols(asked)


def _protocols(asked: object) -> list[str]:
    """Return the names of protocols that a mark asks for."""
    from causeway.protocols.registry import protocol_names

    known = protocol_names()
    if asked == ALL:
        return known
    if isinstance(asked, str):
        asked = [asked]
    if not isinstance(asked, Iterable):
        raise ValueError(f"mark {MARK}: protocols = {asked!r}: must be a name, a list of names, or {ALL!r}")
    found = list(asked)
    for name in found:
        if name not in known:
            raise ValueError(f"mark {MARK}: protocols: {name!r}: no such protocol; allowed: {', '.join(known)}")
    return found


@pytest.fixture
def causeway_protocol(request: pytest.FixtureRequest) -> str:
    """Return the name of the protocol that the test runs under: of its mark, or the one that scenarios have."""
    from causeway.protocols.registry import DEFAULT

    name: str = getattr(request, "param", DEFAULT)
    return name


def _options(request: pytest.FixtureRequest) -> Mapping[str, Mapping[str, Any]]:
    """Return the options of the mark, by protocol."""
    mark = request.node.get_closest_marker(MARK)
    return {} if mark is None else mark.kwargs.get("options") or {}


@pytest.fixture
def causeway_network(request: pytest.FixtureRequest, causeway_protocol: str) -> MakeNetwork:
    """Return what makes networks as ``causeway.Network`` does, under the protocol of the test.

    ``options`` of the mark, by protocol, are theirs unless the test gives others.
    """
    from causeway.testing.network import Network

    options = _options(request)

    def make(*args: Any, **kwargs: Any) -> Network:
        kwargs = {"protocol": causeway_protocol, **kwargs}
        kwargs.setdefault("options", options.get(kwargs["protocol"]))
        return Network(*args, **kwargs)

    return make


@pytest.fixture(scope="module")
def _causeway_built() -> dict[object, Network]:
    """Keep the networks that the tests of a module begin from."""
    return {}


@pytest.fixture
def causeway_fork(
    request: pytest.FixtureRequest,
    causeway_network: MakeNetwork,
    causeway_protocol: str,
    _causeway_built: dict[object, Network],
) -> ForkNetwork:
    """Return what gives a test a fork of a network that the tests of its module begin from: ``causeway_fork(build)``.

    ``build`` gets what the fixture ``causeway_network`` is, and returns a network, at whatever tick. It is called once
    a module, protocol and options of the mark; so it must be the same function each time, and make nothing but the
    network. Raises ``InvalidInput`` where it returns something else.
    """
    from causeway_proofs.errors import InvalidInput

    from causeway.testing.network import Network

    options = repr(_options(request).get(causeway_protocol))

    def fork(build: Callable[[MakeNetwork], Network]) -> Network:
        key = build, causeway_protocol, options
        if key not in _causeway_built:
            made = build(causeway_network)
            if not isinstance(made, Network):
                raise InvalidInput(f"causeway_fork: {build!r:.120} returned {made!r:.80}: must return a network")
            _causeway_built[key] = made
        return _causeway_built[key].fork()

    return fork


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Watch which networks a test uses, its fixtures included, however they were made."""
    with watch_networks() as touched:
        item.stash[_TOUCHED] = touched
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the timelines of the networks that a test used last to its report where it, or its set-up, failed."""
    report = yield
    touched = item.stash.get(_TOUCHED, None)
    if report.failed and touched is not None:
        before = f" (the last of {len(touched.networks) + touched.others})" if touched.others else ""
        for network in touched.networks:
            report.sections.append((f"messages of {network!r}{before}", network.trace()))
    return report
