"""Public endpoints, fuzzed from the OpenAPI document, without server errors.

The short run is a part of the suite. The long one requests a served lake over a socket for ``CAUSEWAY_FUZZ_SECONDS``
seconds (default: 60 s):

    CAUSEWAY_FUZZ_SECONDS=3600 pytest -m slow tests/service/test_schemathesis.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance
from starlette.applications import Starlette

from causeway.service.keys.signing import MESSAGE, TRANSACTION, canonical_json, sign_message
from causeway.service.node.api import create_application
from tests.service.test_api import Http
from tests.service.test_processes import ended, line_of, start
from tests.support.common.lakes import Lakes, both, key_of
from tests.tiers import sized

SECONDS = int(os.environ.get("CAUSEWAY_FUZZ_SECONDS", "60"))

PATHS = {"/v1/messages": MESSAGE, "/v1/chains/{chain}/transactions": TRANSACTION}
"""Where signed bodies are posted, and what they are."""

SHORT = settings(
    max_examples=sized(7, 75),
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lakes]:
    with both(tmp_path_factory.mktemp("lakes"), calls=2) as found:
        found.until_idle()
        found.send("left", {"to": "caller-left", "call": {"receiver": "echo-right", "method": "m"}})
        found.settle()
        yield found


@pytest.fixture(scope="module")
def served(lakes: Lakes) -> Starlette:
    return create_application(lakes.nodes["left"], ["testserver"])


@pytest.fixture(scope="module")
def document(served: Starlette) -> Any:
    return schemathesis.openapi.from_asgi("/openapi.json", served)


def test_responses_conform_to_the_openapi_document(document: Any) -> None:
    operations = [found.ok() for found in document.get_all_operations()]
    assert len(operations) == 14
    for operation in operations:
        raw = operation.definition.raw
        ask(operation, schemathesis.GenerationMode.POSITIVE)
        if raw.get("parameters") or raw.get("requestBody"):
            ask(operation, schemathesis.GenerationMode.NEGATIVE)


def ask(operation: Any, mode: schemathesis.GenerationMode) -> None:
    """Request within or outside the document's limits."""
    # The document cannot express all rules of a message: for example that a text excludes digits.
    excluded = [positive_data_acceptance] if operation.path == "/v1/messages" else []

    @given(case=operation.as_strategy(generation_mode=mode))
    @SHORT
    def run(case: Any) -> None:
        case.call_and_validate(excluded_checks=excluded)

    run()


def test_document_lists_every_address(served: Starlette) -> None:
    described = Http(served).get("/openapi.json").json()
    paths = {(path, method.upper()) for path, methods in described["paths"].items() for method in methods}
    routes = {(route.path, method) for route in served.routes for method in route.methods - {"HEAD"}}  # type: ignore[attr-defined]
    assert routes - paths == {("/openapi.json", "GET")}
    assert paths <= routes


@pytest.mark.parametrize("path", PATHS)
def test_signed_arbitrary_content_is_accepted_or_rejected(
    served: Starlette, lakes: Lakes, document: Any, path: str
) -> None:
    http, node = Http(served), lakes.nodes["left"]
    nonces = iter(range(1, 10_000))
    statuses: set[int] = set()

    @given(case=document[path]["POST"].as_strategy())
    @SHORT
    def run(case: Any) -> None:
        content = json.loads(json.dumps(case.body["content"]), parse_float=lambda text: int(float(text)))
        chain = "left" if PATHS[path] == TRANSACTION else ""
        message = sign_message(key_of(77), node.opened.lake.identity, PATHS[path], chain, next(nonces), content)
        answer = http.post(path.format(chain="left"), canonical_json(message.body()))
        statuses.add(answer.status_code)
        assert answer.status_code in (200, 202, 400, 429), answer.text

    run()
    assert statuses & {200, 202, 400}
    lakes.settle()


@pytest.mark.slow
def test_random_requests_cause_no_server_error(tmp_path: Path) -> None:
    with both(tmp_path, calls=3) as lakes:
        lakes.until_idle()
    server = start("serve", str(tmp_path / "left"), "--drawn-keys", "--json", "--port", "0", "--block-seconds", "1")
    try:
        url = line_of(server)["url"]
        tool = str(Path(sys.executable).with_name("schemathesis"))
        arguments = ["--max-time", str(SECONDS), "--no-color", "--continue-on-failure", "--max-examples", "1000000"]
        arguments += ["--exclude-checks", "positive_data_acceptance"]
        run = subprocess.run(
            [tool, "run", f"{url}/openapi.json", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stdout[-10_000:]
        assert server.poll() is None
    finally:
        server.terminate()
        assert ended(server)[0] == 0
