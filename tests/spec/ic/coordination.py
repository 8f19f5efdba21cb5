"""Coordination of one subnet (3.1, 3.2) and its state manager (2.8)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.spec.ic.certified import CertifiedState, certify
from tests.spec.ic.encoding import version_number
from tests.spec.ic.errors import InvariantViolation, SliceError, StateNotCommittedYet, StateRemoved
from tests.spec.ic.events import Event, canister_event
from tests.spec.ic.execution import Behaviour, execute
from tests.spec.ic.ids import SubnetId
from tests.spec.ic.induction import DecodedBatch, append_to_stream, pre_process
from tests.spec.ic.messages import CanisterMessage, Ingress
from tests.spec.ic.options import Options
from tests.spec.ic.routing import post_process
from tests.spec.ic.slices import XNetPayload, decoded_payload
from tests.spec.ic.state import CanonicalState, Registry
from tests.spec.ic.tree import FULL, METADATA, state_tree, stream_label


@dataclass(frozen=True)
class Batch:
    """2.7, with the batch time."""

    batch_number: int
    registry_version: int
    ingress_payload: Mapping[int, Ingress] = field(default_factory=dict)
    xnet_payload: XNetPayload = field(default_factory=dict)
    requires_full_state_hash: bool = False
    time_ns: int = 0


@dataclass(frozen=True)
class Ignored:
    """The state of that height exists already."""

    expected: int
    actual: int


@dataclass(frozen=True)
class StateManager:
    """The committed states of one subnet by its own heights, and what it has signed of them.

    `trees` has the state tree of every height that was certified. `delay`: a height is certified that many heights
    after it was committed. `removed`: the highest height whose state is gone."""

    states: Mapping[int, CanonicalState]
    trees: Mapping[int, CertifiedState] = field(default_factory=dict)
    delay: int = 0
    removed: int = -1

    @property
    def tip(self) -> int:
        return max(self.states)

    def take_tip_at(self, height: int) -> CanonicalState:
        """The state to go on from; only the newest will do."""
        if height < self.tip:
            raise StateRemoved(f"height {height}, tip {self.tip}")
        return self.get_state_at(height)

    def get_state_at(self, height: int) -> CanonicalState:
        """The state at a height, to read."""
        if height <= self.removed:
            raise StateRemoved(f"height {height}, removed up to {self.removed}")
        if height not in self.states:
            raise StateNotCommittedYet(f"height {height}, tip {self.tip}")
        return self.states[height]

    def commit_and_certify(
        self,
        state: CanonicalState,
        height: int,
        scope: str = FULL,
        sections: Mapping[str, bytes] | None = None,
        options: Options | None = None,
    ) -> "StateManager":
        """The state and its tree at `height`. `sections`: digests of what 2.9 has no place for (see `tree`)."""
        options = options or Options()
        previous = self.trees[height - 1].root if height - 1 in self.trees else None
        made = certified_state(state, previous, sections or {}, options, scope)
        return replace(self, states={**self.states, height: state}, trees={**self.trees, height: made})

    def certified(self) -> CertifiedState | None:
        """The latest certified state: what is served."""
        return self.trees.get(self.tip - self.delay)

    def remove_below(self, height: int) -> "StateManager":
        """Forget older states; their signatures stay."""
        kept = {h: state for h, state in self.states.items() if h >= height}
        return replace(self, states=kept, removed=max(self.removed, height - 1))


def certified_state(
    state: CanonicalState,
    previous: bytes | None,
    sections: Mapping[str, bytes],
    options: Options,
    scope: str = FULL,
) -> CertifiedState:
    """What a subnet signs of its state. `previous`: the root of its height before."""
    version = version_number(options.certification_version)
    tree = state_tree(state, previous, sections, options.index_base, scope=scope, version=version)
    heights = {
        stream_label(remote, name): {i: height for (at, i), height in stream.heights.items() if at == name}
        for remote, stream in state.streams.items()
        for name in stream.msgs
    }
    return certify(state.own, tree, state.number, heights, version)


def decode(own: SubnetId, b: Batch, options: Options) -> DecodedBatch:
    """3.2. The payload was validated before agreement, so a failure is an invariant violation."""
    try:
        payload = decoded_payload(own, b.xnet_payload, version_number(options.certification_version))
    except SliceError as error:
        raise InvariantViolation(f"agreed payload does not decode: {error.name}") from error
    return DecodedBatch(ingress_payload=b.ingress_payload, xnet_payload=payload, time_ns=b.time_ns)


def process_batch(
    manager: StateManager,
    b: Batch,
    registry_versions: Mapping[int, Registry],
    behaviour: Behaviour,
    options: Options,
    seed: int = 0,
    sections: Mapping[str, bytes] | None = None,
) -> tuple[StateManager, list[Event]] | Ignored:
    """3.1, step by step."""
    try:
        s = manager.take_tip_at(b.batch_number - 1)
    except StateRemoved:
        return Ignored(expected=manager.tip + 1, actual=b.batch_number)
    except StateNotCommittedYet as error:
        raise InvariantViolation(f"batch {b.batch_number} before its state") from error
    registry = registry_versions[b.registry_version]
    s3, events = one_round(s, registry, decode(s.own, b, options), behaviour, options, seed)
    scope = FULL if b.requires_full_state_hash else METADATA
    return manager.commit_and_certify(s3, b.batch_number, scope, sections, options), events


def one_round(
    state: CanonicalState,
    registry: Registry,
    batch: DecodedBatch,
    behaviour: Behaviour,
    options: Options,
    seed: int = 0,
    forged: Sequence[CanisterMessage] = (),
) -> tuple[CanonicalState, list[Event]]:
    """Step 4 of process_batch: the three phases, with one view of the registry (D-17).

    `forged`: what a byzantine subnet appends to its streams when routing begins."""
    inducted, induction_events = pre_process(state, registry, batch, options)
    executed, execution_events = execute(inducted, registry, behaviour, options)
    executed, forgery = forge(executed, registry, forged, options)
    routed, routing_events = post_process(executed, registry, options, seed)
    return routed, [*induction_events, *execution_events, *forgery, *routing_events]


def forge(
    state: CanonicalState, registry: Registry, messages: Sequence[CanisterMessage], options: Options
) -> tuple[CanonicalState, list[Event]]:
    """Append messages to streams that no execution has produced. One for a canister in no subnet is dropped."""
    log: list[Event] = []
    for message in messages:
        host = registry.host(message.dst)
        if host is None:
            log.append(canister_event("dropped", state.own, state.height, message, cause="forged_for_nobody"))
            continue
        log.append(canister_event("sent", state.own, state.height, message, via="forged"))
        state, place = append_to_stream(state, host, message, options)
        log.append(canister_event("committed", state.own, state.height, message, remote=host, at=place, via="forged"))
    return state, log
