"""No body, however malformed, makes the sidecar fail or hang."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sidecar import Running

schemathesis = pytest.importorskip("schemathesis")

PATHS = ("/v1/chat/completions", "/v1/completions")
PASSED = "passed on"


@pytest.fixture(scope="module")
def running(start: Any) -> Any:
    one: Running = start("--method", "stated", "--budget", "8")
    yield one
    one.close()


def send(running: Running, path: str, body: bytes) -> Any:
    import httpx2

    answer = httpx2.post(
        f"{running.url}{path}", content=body, headers={"content-type": "application/json"}, timeout=30, trust_env=False
    )
    if PASSED not in answer.headers.get("x-bitcal", ""):
        assert answer.status_code in (200, 400, 413), (answer.status_code, body[:300])
        if answer.status_code != 200:
            assert answer.json()["error"]["message"], body[:300]
            assert "Traceback" not in answer.text
    return answer


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        "model",
        "messages",
        "prompt",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "stream",
        "stream_options",
        "n",
        "bitcal",
        "chat_template_kwargs",
        "tools",
        "response_format",
        "stop",
        "logprobs",
        "metadata",
    ]
)
BODIES = st.one_of(
    st.binary(max_size=200),
    ANYTHING.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(KEYS, ANYTHING, max_size=6).map(lambda value: json.dumps(value).encode()),
    st.dictionaries(KEYS, ANYTHING, max_size=4).map(
        lambda more: json.dumps({"messages": [{"role": "user", "content": "2+2?"}], "max_tokens": 4, **more}).encode()
    ),
    st.integers(1, 3000).map(lambda n: b"[" * n),
    st.integers(1, 3000).map(lambda n: b'{"messages":' * n),
)


@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(path=st.sampled_from(PATHS), body=BODIES)
def test_malformed_bodies(running: Running, path: str, body: bytes) -> None:
    answer = send(running, path, body)
    if PASSED not in answer.headers.get("x-bitcal", ""):
        assert answer.status_code != 500


def test_nothing_is_left_behind(running: Running) -> None:
    assert running.get("/healthz").json() == {"status": "ok"}
    assert "bitcal_open_requests 0.0" in running.get("/metrics").text


def test_by_the_schema(running: Running) -> None:
    """Requests drawn from the published schema: nothing fails, and answers keep to it."""
    from schemathesis.specs.openapi.checks import response_schema_conformance

    schema = schemathesis.openapi.from_url(f"{running.url}/openapi.json")
    tried = 0
    for result in schema.get_all_operations():
        operation = result.ok()

        @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def one(case: Any) -> None:
            nonlocal tried
            tried += 1
            answer = case.call(timeout=30)
            passed = PASSED in "".join(answer.headers.get("x-bitcal", []))
            assert passed or answer.status_code < 500, (case.body, answer.status_code)
            if not passed:
                case.validate_response(answer, checks=[response_schema_conformance])

        one()
    assert tried > 80
