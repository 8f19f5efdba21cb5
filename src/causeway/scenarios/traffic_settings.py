"""The section ``[traffic]``, and measured traffic figures that calibrate the generator.

Source: 161,478 IBC packets sent from cosmoshub-4 in 634,583 blocks, 2024-10-06 to 2024-12-14 (block time 5.9 s),
collected in the repository yanagihalab/analyse_Osmosis (commit e230ee34590d49577969199dc727fe76336cc761), and the 857
channels of the Cosmos Chain Registry (commit 627bbab9c8e56fa1c4581f85f40d6d028e1c26e8, CC BY 4.0, "Cosmos Chain
Registry contributors").
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from causeway.config.section import U64, Amount, Balance, ContentSection, ProgramReference, ScenarioSection, TickNumber
from causeway.core.ingress_call import CALL_METHOD, MAX_METHOD_BYTES
from causeway.core.text import is_text
from causeway.scenarios.settings import Positive

BLOCKS = 634_583
"""Observed blocks, including empty ones."""

PACKETS = 161_478
"""Packets sent in these blocks."""

PACKETS_PER_BLOCK = 0.254
"""Mean number of packets a block."""

VARIANCE_TO_MEAN = {1: 1.11, 10: 1.85, 100: 8.7, 1000: 59.8}
"""Variance-to-mean ratio of the packet count, by number of consecutive blocks.

It is Poisson from block to block, while the rate drifts.
"""

CHANNELS = 55
"""Channels with at least one packet."""

CHANNEL_SHARES = (0.654, 0.123, 0.067, 0.022, 0.020, 0.0113, 0.0113, 0.0101, 0.0100, 0.0090)
"""Shares of the ten busiest channels."""

TOP_1_SHARE = 0.654
TOP_5_SHARE = 0.885
TOP_10_SHARE = 0.937

TAIL_RATIO = 0.874
"""Ratio of the shares of consecutive channels after the tenth.

With it the other 45 sum to the remaining 6.3 %. The tail falls faster than a Zipf law, as measured.
"""

BURST_MESSAGES = 51
"""Size of the largest burst: packets of a channel in the only block with 20 or more."""

BLOCKS_PER_BURST = BLOCKS
"""One such burst in all observed blocks."""

CHANNEL_ENDS_OF_BUSIEST_CHAINS = (182, 81, 61)
"""Registered channels of osmosis, cosmoshub and noble, the three chains with most."""

DEGREE_ZIPF = 1.0
"""Exponent of the Zipf law through these three: 182, 91, 61."""

DRIFT = ((3, 0.05), (40, 0.03), (1_500, 0.14), (14_570, 0.115))
"""Components of the rate's drift: (time scale in blocks, variance over squared mean).

14,570 blocks are a day. Fitted to ``VARIANCE_TO_MEAN``: the relative variance of the mean rate over w blocks is
(ratio(w) - 1 - burst) / (w * PACKETS_PER_BLOCK), with 0.016 for the burst: 0.37, 0.33, 0.30, 0.23 for 1, 10, 100,
1,000.
"""

ANSWER_DELAY_BLOCKS = {0.5: 2, 0.9: 4, 0.99: 6, 0.999: 30}
"""Quantiles of a packet's acknowledgement delay in blocks (mean 3.09, range 2 to 12,057)."""

ANSWER_DELAY_SHARES = {2: 0.517, 3: 0.367, 4: 0.087, 5: 0.019}
"""Share of packets by delay of the acknowledgement in blocks."""

SLOW_CARRIER_SKIP = 0.275
"""Value of ``transport.skip`` that best fits these delays when a tick is a block.

A call takes two ticks, plus one for every carrier that skips its turn, so the share of k ticks is (k - 1) (1 - skip)^2
skip^(k - 2). The sum of squares over the four shares is least at 0.275: 0.526, 0.289, 0.119, 0.044.
"""

UNANSWERED_SHARE = 0.00437
"""Share of packets without an observed acknowledgement."""


MAX_PAYLOAD_BYTES = 2 * 1024 * 1024
"""Maximum payload of a message (IC limit of an inter-canister payload)."""


def _method(value: object) -> object:
    if isinstance(value, str) and not 1 <= len(value.encode(errors="replace")) <= MAX_METHOD_BYTES:
        raise ValueError(f"must be a name of 1 to {MAX_METHOD_BYTES} bytes")
    if isinstance(value, str) and not is_text(value):
        raise ValueError("must be Unicode text: half of a surrogate pair is none")
    return value


def _skew(value: object) -> object:
    if isinstance(value, dict) and set(value) == {"zipf"}:
        exponent = value["zipf"]
        if isinstance(exponent, int | float) and not isinstance(exponent, bool) and 0 <= exponent <= 20:
            return float(exponent)
    elif value in ("cosmoshub", "uniform"):
        return value
    raise ValueError('must be "cosmoshub", "uniform" or { zipf = exponent from 0 to 20 }')


def _skew_as_written(skew: str | float) -> object:
    return {"zipf": skew} if isinstance(skew, float) else skew


def _byte_range(value: object) -> object:
    pair: list[Any] = value if isinstance(value, list) else [value, value]
    whole = len(pair) == 2 and all(isinstance(size, int) and not isinstance(size, bool) for size in pair)
    if not whole or not 0 <= pair[0] <= pair[1] <= MAX_PAYLOAD_BYTES:
        raise ValueError(f"must be a number of bytes or [least, most], each from 0 to {MAX_PAYLOAD_BYTES}")
    return tuple(pair)


MAX_PLANNED_TICKS = 100_000
"""Maximum number of ticks for an exact total, whose distribution every process computes."""

ProgramKind = Annotated[str, Field(min_length=1)]
Method = Annotated[
    str,
    BeforeValidator(_method),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_METHOD_BYTES}),
]


class NoTrafficSection(ScenarioSection):
    """``source = "none"``: nothing comes from outside."""

    source: Literal["none"] = Field("none", description="This source.")


class CallSection(ContentSection):
    """``call = { ... }``: the message asks the program it goes to to call another."""

    receiver: ProgramReference = Field(..., description="The program to call: its name or number.")
    method: Method = Field("echo", description="The method to call.")
    amount: Amount = Field(0, description="Amount attached to the call.")


class MessageSection(ContentSection):
    """A message from outside to a program, or ``count`` equal ones."""

    to: ProgramReference = Field(..., description="The program it is for: its name or number.")
    method: Method | None = Field(None, description="The method asked for; not with `call`.")
    call: CallSection | None = Field(None, description="Ask the program to make this call instead.")
    count: Annotated[int, Field(ge=1, le=1_000_000_000)] = Field(1, description="Number of identical messages.")
    chain: str | None = Field(
        None,
        description="Name of the chain at which it arrives; without it, the chain that holds the program at that tick.",
    )

    @model_validator(mode="after")
    def _validate_form(self) -> Self:
        if (self.method is None) == (self.call is None):
            raise ValueError("give either method or call")
        if self.call is not None and (self.text is not None or self.hex is not None):
            raise ValueError("with call, text or hex belongs into call")
        return self

    @property
    def method_name(self) -> str:
        """Called method."""
        return self.method or CALL_METHOD


class SendSection(MessageSection):
    """``[[traffic.send]]``: one message from outside, or ``count`` equal ones."""

    tick: TickNumber = Field(..., description="The tick at which it arrives.")
    sender: U64 = Field(0, description="Number of the user who sends it.")


class ScriptSection(ScenarioSection):
    """``source = "script"``: the messages stand in the file."""

    source: Literal["script"] = Field(..., description="This source.")
    send: list[SendSection] = Field(default_factory=list, description="The messages, as `[[traffic.send]]`.")


class ColumnsSection(ScenarioSection):
    """``[traffic.columns]``: names of a recording's columns."""

    source_end: str = Field("channel_id", description="The end of the lane that a packet left from (text or number).")
    sequence: str = Field("sequence", description="Number of the packet on its lane.")
    time: str = Field(
        "send_height", description="When it was sent: a block height or another whole number, or a timestamp."
    )
    source_chain: str | None = Field(None, description="The sending chain; without it, `traffic.source_chain`.")
    destination: str | None = Field(
        None, description="The receiving chain; without it, the counterparty in the channels file."
    )
    payload: str | None = Field(None, description="The packet's content; without it, `source end/sequence` as text.")


class ChannelsSection(ScenarioSection):
    """``[traffic.channels]``: how the two ends of a channel are matched."""

    file: str | None = Field(
        None,
        min_length=1,
        description="JSON array of objects with chain_1, channel_1, chain_2, channel_2; without it, "
        "`ibc_channels.json` beside the recording, if there.",
    )


class RecordedSection(ScenarioSection):
    """``source = "recorded"``: packets from a CSV, Parquet or JSON lines file."""

    source: Literal["recorded"] = Field(..., description="This source.")
    path: str | None = Field(None, min_length=1, description="The recording: a file, a folder of files or a URI.")
    format: Literal["parquet", "csv", "jsonl"] | None = Field(
        None, description="Its format; without it, by the ending of the name."
    )
    columns: ColumnsSection = Field(
        default_factory=lambda: ColumnsSection.model_validate({}), description="Its columns."
    )
    where: dict[str, str] = Field(
        default_factory=dict, description='Only rows whose columns have these values, e.g. `{ side = "send" }`.'
    )
    source_chain: str | None = Field(
        None, min_length=1, description="Name of the sending chain, when no column says it."
    )
    blocks_per_tick: Positive = Field(
        1000, description="Blocks of the recording that make one tick (any unit, if `time` is another whole number)."
    )
    seconds_per_tick: Annotated[float, Field(ge=1e-6, le=1e9)] | None = Field(
        None, description="Seconds of the recording that make one tick, when `time` is a timestamp."
    )
    channels: ChannelsSection = Field(
        default_factory=lambda: ChannelsSection.model_validate({}), description="The channels file."
    )
    caller: ProgramKind = Field("caller", description="The program of the ends that packets leave from.")
    echo: ProgramKind = Field("echo", description="The program of the ends that only receive.")
    balance: Balance = Field(0, description="Value that each caller starts with.")
    method: Method = Field("echo", description="The method called at the counterparty.")
    amount: Amount = Field(0, description="Amount attached to each call.")


class BurstsSection(ScenarioSection):
    """``[traffic.bursts]``: occasional bursts of messages on one channel."""

    every_blocks: Annotated[int, Field(ge=0, le=2**53)] = Field(
        BLOCKS_PER_BURST, description="Mean number of blocks between two bursts of a chain; 0 = none."
    )
    messages: Positive = Field(BURST_MESSAGES, description="Mean number of messages in a burst.")


class GeneratedSection(ScenarioSection):
    """``source = "generated"``: seeded traffic with the shape of a measured recording."""

    source: Literal["generated"] = Field(..., description="This source.")
    messages_per_tick: Annotated[float, Field(gt=0, le=1e9)] | None = Field(
        None, description="Mean number of messages a tick, all chains together."
    )
    messages: Annotated[int, Field(ge=1, le=2**53)] | None = Field(
        None, description="Number of messages of the whole run, exactly; instead of messages_per_tick."
    )
    ticks: Annotated[int, Field(ge=1, le=10_000_000)] = Field(100, description="Ticks that bring traffic, from 0 on.")
    blocks_per_tick: Annotated[int, Field(ge=1, le=2**32)] = Field(
        1, description="Blocks that one tick stands for: sets how fast the rate drifts from tick to tick."
    )
    channels: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        CHANNELS,
        description="Channels that start at each chain; each has a caller here and an echo elsewhere.",
    )
    skew: Annotated[Any, BeforeValidator(_skew), PlainSerializer(_skew_as_written)] = Field(
        "cosmoshub",
        description='Shares of a chain\'s channels: `"cosmoshub"` (measured), `"uniform"` or `{ zipf = exponent }`.',
    )
    degree_skew: Annotated[float, Field(ge=0, le=20)] = Field(
        DEGREE_ZIPF,
        description="Zipf exponent of the chains: busy ones send more and are called more; 0 = all alike.",
    )
    drift: Annotated[float, Field(ge=0, le=10)] = Field(
        1.0, description="How strongly a chain's rate drifts; 1 = as measured, 0 = constant."
    )
    bursts: BurstsSection = Field(
        default_factory=lambda: BurstsSection.model_validate({}), description="Bursts, as `[traffic.bursts]`."
    )
    payload_bytes: Annotated[Any, BeforeValidator(_byte_range)] = Field(
        64, validate_default=True, description="Size of a call's body in bytes, or `[least, most]`."
    )
    caller: ProgramKind = Field("caller", description="The program of the callers.")
    echo: ProgramKind = Field("echo", description="The program of the echoes.")
    balance: Balance = Field(0, description="Value that each caller starts with.")
    method: Method = Field("echo", description="The method called.")
    amount: Amount = Field(0, description="Amount attached to each call.")

    @model_validator(mode="after")
    def _validate_amount(self) -> Self:
        if (self.messages_per_tick is None) == (self.messages is None):
            raise ValueError("give either messages_per_tick or messages")
        if self.messages is not None and self.ticks > MAX_PLANNED_TICKS:
            raise ValueError(f"with messages, ticks = {self.ticks} must not be above {MAX_PLANNED_TICKS}")
        return self


TrafficSection = Annotated[
    NoTrafficSection | ScriptSection | RecordedSection | GeneratedSection, Field(discriminator="source")
]
