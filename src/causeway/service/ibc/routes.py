"""The addresses that a served lake of zones has beside those of every lake."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from causeway.model.errors import InvalidInput
from causeway.protocols.ibc.keys import Purpose
from causeway.protocols.limits import MAX_ITEMS
from causeway.service.ibc.answers import MAX_KEY_BYTES
from causeway.service.ibc.views import Views
from causeway.service.requests import answered, hexadecimal, number_of, object_of

CHAIN = "/v1/chains/{chain}"


class Routes:
    """What each address answers."""

    def __init__(self, views: Views) -> None:
        self._views = views

    def all(self) -> list[BaseRoute]:
        """Return all of them."""
        return [
            Route(f"{CHAIN}/header", self.header),
            Route(f"{CHAIN}/queues/{{remote}}", self.lane),
            Route(f"{CHAIN}/queues/{{remote}}/{{purpose}}", self.entries),
            Route(f"{CHAIN}/proofs", self.proofs, methods=["POST"]),
            Route(f"{CHAIN}/relayers", self.relayers),
            Route(f"{CHAIN}/refusals", self.refusals),
        ]

    async def header(self, request: Request) -> Response:
        """Answer the signed header of a chain at ``height``."""
        return await answered(self._views.header, request.path_params["chain"], number_of(request, "height"))

    async def lane(self, request: Request) -> Response:
        """Answer both queues of a chain for a remote one, and its client of it, at ``height``; of their entries those
        from ``packets_from`` and ``receipts_from`` on."""
        place = request.path_params
        begin = (number_of(request, name) or 0 for name in ("packets_from", "receipts_from"))
        arguments = (place["chain"], place["remote"], number_of(request, "height"), *begin)
        return await answered(self._views.lane, *arguments)

    async def entries(self, request: Request) -> Response:
        """Answer entries of a queue with their values: ``count`` at most from index ``first`` on, at ``height``."""
        place = request.path_params
        words = {purpose.name.lower(): purpose for purpose in Purpose}
        if place["purpose"] not in words:
            raise InvalidInput(f"queue: {place['purpose']}; allowed: {', '.join(words)}")
        first, count = number_of(request, "first") or 0, number_of(request, "count")
        wanted = MAX_ITEMS if count is None else count
        arguments = (place["chain"], place["remote"], words[place["purpose"]], first, wanted)
        return await answered(self._views.entries, *arguments, number_of(request, "height"))

    async def proofs(self, request: Request) -> Response:
        """Answer value and proof of each of ``keys`` (hexadecimal) in a chain's store at ``height``."""
        content = await object_of(request)
        texts, height = content.get("keys"), content.get("height")
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InvalidInput('keys: must be a list of hexadecimal texts, as in {"keys": ["6962..."], "height": 17}')
        if height is not None and (not isinstance(height, int) or isinstance(height, bool) or height < 0):
            raise InvalidInput(f"height: {height!r}; allowed: a height, a whole number")
        keys = [hexadecimal(text, "keys", MAX_KEY_BYTES) for text in texts]
        return await answered(self._views.proofs, request.path_params["chain"], keys, height)

    async def relayers(self, request: Request) -> Response:
        """Answer the fee accounts of relayers with a chain; of one ``relayer``, or of all."""
        numbers = number_of(request, "height"), number_of(request, "relayer")
        return await answered(self._views.relayers, request.path_params["chain"], *numbers)

    async def refusals(self, request: Request) -> Response:
        """Answer how many calls were refused in the block of ``height``, by error; of one ``relayer``, or of all."""
        height = number_of(request, "height")
        if height is None:
            raise InvalidInput("height: missing")
        return await answered(self._views.refusals, request.path_params["chain"], height, number_of(request, "relayer"))
