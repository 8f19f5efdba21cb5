"""``relay_message_response``: what accepted responses do (XDM reference 3.5, 3.6).

Outcomes: a channel opened; an answer, or a reject, for the program that asked. The request leaves the outbox, and its
fee is paid.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame, concat, repeated
from causeway.model.ledger import Kind, Via
from causeway.model.order import stable_order
from causeway.protocols.messages import LANE
from causeway.protocols.xdm.arrivals import ARRIVALS, OPEN_CALL, REJECTED, value_in
from causeway.protocols.xdm.books import Moved
from causeway.protocols.xdm.calls import ANSWER, CALL, PROGRAMS_ENDPOINT, TRANSPORTER_ENDPOINT, decode_contents
from causeway.protocols.xdm.channels import OPENED
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.errors import OK, MessengerError, error_texts, name_of
from causeway.protocols.xdm.lane_tables import LaneTable
from causeway.protocols.xdm.money import Money
from causeway.protocols.xdm.notices import Notice
from causeway.protocols.xdm.prepare import Accepted, bodies_at
from causeway.protocols.xdm.state import NOBODY, Asked, ChannelState, State, channel_of, channel_rows
from causeway.protocols.xdm.sums import sums
from causeway.protocols.xdm.tables import CHANNELS_SCHEMA, OPEN_CALLS_SCHEMA
from causeway.protocols.xdm.tags import Tag, response_tags


def settle(
    state: State, now: Accepted, at: npt.NDArray[np.int64], money: Money, context: Context
) -> tuple[Frame, Frame, State, list[Notice]]:
    """Return the answers for programs, what is settled, the state without the requests that have theirs, and what
    became of the channels that they asked for."""
    rows, bodies = now.rows.take(at), bodies_at(now.bodies, at)
    asked = Frame(
        {
            "source": rows["destination"],
            "destination": rows["source"],
            "substream": rows["substream"] & ~np.uint64(1),
            "index": rows["index"],
        },
        len(rows),
    )
    outbox = LaneTable.of(state["outbox"])
    own = outbox.find(asked)
    # A response to what is not in the outbox cannot be proved by a chain that keeps the rules: MissingMessage.
    there = own >= 0
    rows, bodies, own = rows.filter(there), bodies_at(bodies, np.flatnonzero(there)), own[there]
    settled = outbox.rows_at(own)
    due = response_tags(bodies.layer, bodies.error, settled["asked"], settled["dst_endpoint"])
    wrong = (rows["tag"] != due) & (due != Tag.NONE) & (context.options.trust_tag == "on")
    state, notices = _counted_off(state.with_tables(outbox=outbox.without(own)), settled, bodies.error, wrong)
    for chain, _, amount in sums(settled["source"], settled["source"], settled["src_fee"]):
        money.add(chain, "outbox_held", -amount)
        money.pay(chain, amount)
    of_endpoint = (settled["asked"] == Asked.ENDPOINT) & (settled["dst_endpoint"] == PROGRAMS_ENDPOINT)
    variant, messages = decode_contents(
        pa.compute.if_else(pa.array(of_endpoint), bodies.payload, pa.scalar(b"", pa.large_binary()))
    )
    failed = bodies.error != OK
    # Under a tag that does not match nobody is told of the response, and what would come back is lost.
    transfer = (settled["asked"] == Asked.ENDPOINT) & (settled["src_endpoint"] == TRANSPORTER_ENDPOINT)
    is_call = (of_endpoint | transfer) & (settled["sender"] != NOBODY) & ~wrong
    answered = is_call & ~failed & (transfer | (variant == ANSWER))
    unreadable = ~failed & ~transfer & ((variant == CALL) | (variant < 0))
    refused = is_call & (failed | unreadable | (answered & ~_within(messages, settled)))
    answered &= ~refused
    waits = is_call & ~refused & ~answered
    state = _with_open_calls(state, settled.filter(waits))
    given = np.flatnonzero(answered | refused)
    back = refused[given]
    texts = error_texts(bodies.error[given])
    arrivals = messages.take(given).with_columns(
        kind=repeated(np.uint8(Kind.RESPONSE), len(given)),
        sender=settled["receiver"][given],
        receiver=settled["sender"][given],
        callback=settled["callback"][given],
        code=np.where(back, np.uint8(REJECTED), messages["code"][given]).astype(np.uint8),
        payload=pa.compute.if_else(pa.array(back), texts, messages["payload"].take(pa.array(given))),
        amount_high=np.where(back, settled["amount_high"][given], messages["amount_high"][given]),
        amount_low=np.where(back, settled["amount_low"][given], messages["amount_low"][given]),
        **{name: rows[name][given] for name in (*LANE, "index")},
        via=repeated(np.uint8(Via.LANE), len(given)),
    )
    value_in(arrivals.filter(~back), money)
    for chain, foreign, amount in sums(
        arrivals["destination"][back],
        arrivals["source"][back],
        arrivals["amount_low"][back],
        arrivals["amount_high"][back],
    ):
        money.add(chain, "issuance", amount)
        money.move(chain, Moved.CLAIMED, foreign, amount)
    return arrivals.select(ARRIVALS), settled.with_columns(error=bodies.error), state, notices


def _within(messages: Frame, settled: Frame) -> npt.NDArray[np.bool_]:
    """Return which answers give back no more than was attached."""
    high, low = messages["amount_high"], messages["amount_low"]
    return np.asarray(
        (high < settled["amount_high"]) | ((high == settled["amount_high"]) & (low <= settled["amount_low"]))
    )


def _counted_off(
    state: State,
    settled: Frame,
    error: npt.NDArray[np.uint8],
    wrong: npt.NDArray[np.bool_],
) -> tuple[State, list[Notice]]:
    """Return the state after requests have their responses; a channel that the other side has opened is open.

    ``error``: of each response; ``wrong``: those whose weight tag does not match.
    """
    if len(settled) == 0:
        return state, []
    channels = state["channels"]
    at = channel_rows(channels, settled["source"], settled["destination"], channel_of(settled["substream"]))
    counts = channels["count"].copy()
    np.subtract.at(counts, at, np.uint64(1))
    states = channels["state"].copy()
    opened = (settled["asked"] == Asked.CHANNEL_OPEN) & (error == OK) & ~wrong
    opened &= states[at] == ChannelState.INITIATED
    states[at[opened]] = ChannelState.OPEN
    changed = channels.with_columns(count=counts, state=states).select(CHANNELS_SCHEMA.names)
    state = state.with_tables(channels=changed)
    told = opened | wrong | ((settled["asked"] != Asked.ENDPOINT) & (error != OK))
    return state, [_result(settled, row, int(error[row]), bool(wrong[row])) for row in np.flatnonzero(told).tolist()]


def _result(settled: Frame, row: int, error: int, wrong: bool) -> Notice:
    """Return the notice of a response that opens a channel, is refused, or is refused to be looked at."""
    chain, foreign, index = (int(settled[name][row]) for name in ("source", "destination", "index"))
    number = int(channel_of(settled["substream"][row : row + 1])[0])
    if wrong:
        return Notice(chain, foreign, MessengerError.WeightTagNotMatch.name, number, index, refused=True)
    what = name_of(error) if error != OK else OPENED
    return Notice(chain, foreign, what, number, index, refused=error != OK)


def _with_open_calls(state: State, settled: Frame) -> State:
    if len(settled) == 0:
        return state
    added = settled.with_columns(chain=settled["source"]).select(OPEN_CALLS_SCHEMA.names)
    calls = concat([state["open_calls"], added])
    return state.with_tables(open_calls=calls.take(stable_order(*(calls[name] for name in OPEN_CALL))))
