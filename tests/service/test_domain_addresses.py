"""What strangers may ask of lakes of domains, made from the service's own OpenAPI document: nothing of it ends in an
error of the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis

from causeway.service.api import application
from tests.service.domain_lakes import DomainLakes, both, sending
from tests.service.test_api import Http
from tests.service.test_schemathesis import ask


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DomainLakes]:
    with both(tmp_path_factory.mktemp("addresses"), {"near": sending("alice", "echo-right", 2)}) as found:
        for _ in range(8):
            found.around()
        yield found


@pytest.mark.parametrize("lake", ["near", "far"])
def test_whatever_is_asked_is_answered_as_the_document_says(lakes: DomainLakes, lake: str) -> None:
    served = application(lakes.nodes[lake], ["testserver"])
    document: Any = schemathesis.openapi.from_asgi("/openapi.json", served)
    every = (found.ok() for found in document.get_all_operations())
    own = [one for one in every if one.path.startswith("/v1/chains") and not one.path.endswith("transactions")]
    assert len(own) == {"near": 5, "far": 4}[lake]
    for operation in own:
        ask(operation, schemathesis.GenerationMode.POSITIVE)
        ask(operation, schemathesis.GenerationMode.NEGATIVE)


def test_a_whole_number_is_one_however_it_is_written(lakes: DomainLakes) -> None:
    """RFC 8785 writes 3 for both; what is no whole number is refused by its key."""
    http = Http(application(lakes.nodes["near"]))
    body = '{"counterparty": "right", "lanes": [{"channel": 0}], "block": %s}'

    def ask(block: str) -> Any:
        return http.post("/v1/chains/left/messages", body % block)

    one, *others = (ask(block) for block in ("3", "3.0", "30e-1"))
    assert one.status_code == 200 and one.json()["block"] == 3
    assert [other.json() for other in others] == [one.json()] * 2
    for block in ("3.5", "1e300", "true", '"3"'):
        answer = ask(block)
        assert answer.status_code == 400 and answer.json()["text"].startswith("body: block: "), block
