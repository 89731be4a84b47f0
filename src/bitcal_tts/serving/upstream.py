"""The server behind the sidecar: streams that end there when they are left, and everything else as it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any

import httpx2
from anyio import Lock, to_thread

from bitcal_tts.engines.base import Decoding
from bitcal_tts.engines.http import HttpEngine
from bitcal_tts.engines.wire import PATIENCE, Piece, Pieces, ServerError, Standing
from bitcal_tts.halting.words import words_of

_NOT_PASSED_ON = words_of(
    "connection keep-alive proxy-authenticate proxy-authorization te trailers transfer-encoding upgrade host "
    "content-length content-encoding accept-encoding"
)
"""Headers that are between two neighbours only."""


_CLIENTS = (400, 404, 413, 422, 429)
"""What an upstream answers to requests that are at fault; a key that it does not take is not the client's."""


class UpstreamError(ServerError):
    """The upstream does not take a request.

    Args:
        status: Its answer.
        text: Its words.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"the upstream answers {status}: {' '.join(text.split())[:300]}")
        self.status = status if status in _CLIENTS else 502


class Upstream:
    """A server.

    Args:
        engine: What is known of it, and how it is spoken to.
        api_key: Sent in place of the clients' own.
        patience: Seconds without a byte after which it counts as hanging.
    """

    def __init__(self, engine: HttpEngine, *, api_key: str | None = None, patience: float = PATIENCE) -> None:
        self.engine = engine
        self._away = False
        self._changed: str | None = None
        self._checking = Lock()
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
        self._client = httpx2.AsyncClient(
            base_url=engine.url, timeout=httpx2.Timeout(patience, connect=10.0), limits=limits, trust_env=False
        )

    async def close(self) -> None:
        """Give the connections back."""
        await self._client.aclose()

    async def changed(self) -> str | None:
        """In what it is another server than it was, in words; asked anew once it has been away."""
        async with self._checking:
            if self._away:
                self._changed = await to_thread.run_sync(self.engine.changed)
                self._away = False
        return self._changed

    def failed(self, error: ServerError) -> None:
        """Told of every failure: what does not answer, or not as a server should, may be another one when it does."""
        self._away = self._away or not isinstance(error, UpstreamError) or error.status not in _CLIENTS

    @asynccontextmanager
    async def stream(
        self, standing: Standing, *, limit: int, top: int, decoding: Decoding, seed: int
    ) -> AsyncIterator[AsyncIterator[Piece]]:
        """Let the model go on; leaving ends it on the server too."""
        wire = self.engine.wire
        path, body = wire.request(standing, limit, top, decoding, seed)
        with self._noted():
            request = self._client.build_request("POST", path, json=body, headers=self._headers)
            async with aclosing(await self._answer(request)) as answer:
                if answer.status_code != 200:
                    await answer.aread()
                    raise UpstreamError(answer.status_code, answer.text)
                yield self._pieces(answer)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """What fails, in words, and noted: what does not answer may be another server when it does."""
        try:
            yield
        except httpx2.TimeoutException:
            self._away = True
            raise ServerError("the upstream does not answer any more: nothing came for a while") from None
        except httpx2.HTTPError as error:
            self._away = True
            raise ServerError(f"the upstream is gone: {type(error).__name__}") from None
        except UpstreamError as error:
            self.failed(error)
            raise

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        """The beginning of an answer. A connection that was kept may be closed by now: then over another one."""
        try:
            return await self._client.send(request, stream=True)
        except httpx2.RemoteProtocolError:
            return await self._client.send(request, stream=True)

    async def _pieces(self, answer: Any) -> AsyncIterator[Piece]:
        pieces = Pieces(self.engine.wire)
        async for line in answer.aiter_lines():
            for piece in pieces.take(line):
                yield piece
        for piece in pieces.rest():
            yield piece

    async def passed_on(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], AsyncIterator[bytes]]:
        """A request as it came; status, headers and body of the answer as they come."""
        sent = {name: value for name, value in headers.items() if name.lower() not in _NOT_PASSED_ON}
        request = self._client.build_request(method, path, headers={**sent, **self._headers}, content=body)
        with self._noted():
            answer = await self._answer(request)
        told = {name: value for name, value in answer.headers.items() if name.lower() not in _NOT_PASSED_ON}

        async def content() -> AsyncIterator[bytes]:
            try:
                async for part in answer.aiter_bytes():
                    yield part
            finally:
                await answer.aclose()

        return answer.status_code, told, content()
