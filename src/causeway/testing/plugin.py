"""The pytest plugin: networks under several protocols, and timelines of failed tests.

It is loaded in every run of pytest where Causeway is installed, so it imports the engine only when a test needs it.
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

_RECENT = pytest.StashKey[RecentNetworks]()


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    line = (
        f"{MARK}(protocols=None, options=None): run the test once under each of these protocols ({ALL!r}: under all), "
        f"with these options by protocol, in the networks that the fixture {FIXTURE} makes"
    )
    config.addinivalue_line("markers", line)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize tests over the protocols of their mark."""
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
    """Return the protocols of a mark, or None. Raises ``ValueError``."""
    unknown = sorted(set(mark.kwargs) - {"protocols", "options"})
    if mark.args or unknown:
        what = f"an argument {mark.args[0]!r} without a name" if mark.args else f"an argument {unknown[0]}"
        raise ValueError(f"mark {MARK}: {what}; allowed: protocols, options")
    protocols = mark.kwargs.get("protocols")
    return None if protocols is None else _protocols(protocols)


def _protocols(asked: object) -> list[str]:
    """Validate the protocols of a mark."""
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
    """Return the protocol of the test: from its mark, or the default of scenarios."""
    from causeway.protocols.registry import DEFAULT

    name: str = getattr(request, "param", DEFAULT)
    return name


def _options(request: pytest.FixtureRequest) -> Mapping[str, Mapping[str, Any]]:
    """Return the options of the mark by protocol."""
    mark = request.node.get_closest_marker(MARK)
    return {} if mark is None else mark.kwargs.get("options") or {}


@pytest.fixture
def causeway_network(request: pytest.FixtureRequest, causeway_protocol: str) -> MakeNetwork:
    """Return a factory of networks, as ``causeway.Network``, under the protocol of the test.

    Options of the mark, by protocol, are the defaults.
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
    """Cache the networks that tests of a module start from."""
    return {}


@pytest.fixture
def causeway_fork(
    request: pytest.FixtureRequest,
    causeway_network: MakeNetwork,
    causeway_protocol: str,
    _causeway_built: dict[object, Network],
) -> ForkNetwork:
    """Return a function that forks a shared initial network: ``causeway_fork(build)``.

    ``build`` gets the fixture ``causeway_network`` and returns a network at any tick. It is called once a module,
    protocol and options; so pass the same function each time, without other side effects. Raises ``InvalidInput`` if it
    returns something else.
    """
    from causeway_proofs.errors import InvalidInput

    from causeway.testing.network import Network

    options = repr(_options(request).get(causeway_protocol))

    def fork(build: Callable[[MakeNetwork], Network]) -> Network:
        key = build, causeway_protocol, options
        if key not in _causeway_built:
            network = build(causeway_network)
            if not isinstance(network, Network):
                raise InvalidInput(f"causeway_fork: {build!r:.120} returned {network!r:.80}: must return a network")
            _causeway_built[key] = network
        return _causeway_built[key].fork()

    return fork


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Record the networks that a test and its fixtures use."""
    with watch_networks() as recent:
        item.stash[_RECENT] = recent
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the timelines of a test's last networks to the report of a failed test or set-up."""
    report = yield
    recent = item.stash.get(_RECENT, None)
    if report.failed and recent is not None:
        before = f" (the last of {len(recent.networks) + recent.others})" if recent.others else ""
        for network in recent.networks:
            report.sections.append((f"messages of {network!r}{before}", network.trace()))
    return report
