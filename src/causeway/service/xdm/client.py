"""Client of a served lake of domains: each read of a relay process as a request."""

from __future__ import annotations

import json

from causeway.protocols.shared.limits import MAX_ANSWER_BYTES
from causeway.service.http.client import ServiceClient, ServiceError, path_part
from causeway.service.xdm import answers, relay_state


class DomainLakeClient(ServiceClient):
    """Client of a served lake of domains; all methods raise the errors of ``ServiceClient.ask``."""

    async def status(self) -> answers.DomainStatusAnswer:
        """Return the chains and options of the network."""
        return await self.ask(answers.DomainStatusAnswer, "GET", "/v1/status")

    async def followed(self, step: relay_state.ReadFollowed) -> answers.FollowedAnswer:
        """Return the known state of the consensus chain."""
        return await self.ask(answers.FollowedAnswer, "GET", f"{_chain(step.chain)}/followed")

    async def blocks(self, step: relay_state.ReadBlocks) -> answers.BlocksAnswer:
        """Return headers of the consensus chain."""
        query = {} if step.after is None else {"after": step.after}
        return await self.ask(answers.BlocksAnswer, "GET", f"{_chain(step.chain)}/blocks", query)

    async def anchor(self, step: relay_state.ReadAnchor) -> answers.AnchorAnswer:
        """Return a leaf of the mountain range, and a confirmed receipt."""
        path = f"{_chain(step.chain)}/anchor?under={step.under}"
        if step.domain is not None:
            path += f"&domain={path_part(step.domain)}"
        return await self.ask(answers.AnchorAnswer, "GET", path, most=MAX_ANSWER_BYTES)

    async def receipted(self, step: relay_state.ReadReceipted) -> answers.ReceiptedAnswer:
        """Return the last received receipt of a domain."""
        return await self.ask(
            answers.ReceiptedAnswer, "GET", f"{_chain(step.chain)}/receipted/{path_part(step.domain)}"
        )

    async def receipts(self, step: relay_state.ReadReceipts) -> answers.ReceiptsAnswer:
        """Return receipts of a domain."""
        query = {} if step.after is None else {"after": step.after}
        return await self.ask(
            answers.ReceiptsAnswer, "GET", f"{_chain(step.chain)}/receipts", query, most=MAX_ANSWER_BYTES
        )

    async def channels(self, step: relay_state.ReadChannels) -> answers.ChannelsAnswer:
        """Return the channels of a chain with another."""
        path = f"{_chain(step.chain)}/channels/{path_part(step.counterparty)}"
        found = await self.ask(answers.ChannelsAnswer, "GET", path)
        if (found.chain, found.counterparty) != (step.chain, step.counterparty):
            raise ServiceError(f"{self.url}{path}: other channels than those asked for")
        return found

    async def messages(self, step: relay_state.ReadMessages) -> answers.MessagesAnswer:
        """Return messages with their proofs."""
        lanes = [{"channel": lane.channel, "response": lane.response, "first": lane.first} for lane in step.lanes]
        request = {"counterparty": step.counterparty, "block": step.block, "lanes": lanes, "most": step.most}
        path, body = f"{_chain(step.chain)}/messages", json.dumps(request).encode()
        return await self.ask(answers.MessagesAnswer, "POST", path, body=body, most=MAX_ANSWER_BYTES, again=True)


def _chain(name: str) -> str:
    return f"/v1/chains/{path_part(name)}"
