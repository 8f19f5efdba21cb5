"""The options of 4.1 and the parameters of 2.7. The options' defaults are the reference's; those of the delays and
amounts are small, so that a test runs through them."""

from dataclasses import dataclass
from typing import Literal

Switch = Literal["off", "on"]
U32, U128, U256 = 2**32 - 1, 2**128 - 1, 2**256 - 1
MAX_FUTURE_ALLOWED_NONCES = 256
CHANNELS_A_BLOCK = 15
"""X-5: at most so many channels a relayer takes in one block; it then goes on with the next ones."""
NONCES_A_CHANNEL = 257


@dataclass(frozen=True)
class Options:
    """Options and parameters of a network. `price` over `weight_per_unit` is WeightToFee: fee units a unit of weight.
    Decision: what is less than a unit is nobody's; a weight is made a fee before it is multiplied (v1).

    `proof_form` is not here: this oracle has the enum only. `flush_ack` neither: the reference names it and gives it no
    format.
    """

    fee_model: Literal["v0", "v1"] = "v0"
    v0_mint: Literal["collected", "recomputed"] = "collected"
    initiate_by: Literal["root", "signed"] = "root"
    close_by: Literal["root", "owner_or_root"] = "root"
    inbox: Literal["stored", "pool"] = "stored"
    allowlist: Switch = "off"
    strict_envelope: Switch = "on"
    pool_tag: Literal["with_src", "without_src"] = "with_src"
    trust_tag: Switch = "off"
    force_close: Switch = "off"
    archiving_depth: int = 3
    challenge_period: int = 3
    max_outgoing_messages: int = 25
    max_messages: int = U256
    relay_fee: int = 7
    price: int = 1
    weight_per_unit: int = 1
    fee_multiplier: int = 5
    reserve: int = 10
    reserve_portion: int = 20
    minimum_transfer: int = 5
    existential_deposit: int = 1
    mmr_roots: int = 1024
    longevity: int = 10
    max_future_nonces: int = MAX_FUTURE_ALLOWED_NONCES
    resubmit_after: int = 15
    fraud_found_after: int = 2
    message_weight: int = 11
    response_weight: int = 5

    def weight_to_fee(self, weight: int) -> int:
        return weight * self.price // self.weight_per_unit
