"""Who may come in: by one of the sidecar's own names, with its key, and with no more than it takes."""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True)
class Door:
    """What a client must bring.

    Attributes:
        hosts: Names by which the sidecar may be addressed: a page elsewhere cannot reach it under another.
        api_key: That clients must send; None where there is none.
        most_bytes: Of a request.
    """

    hosts: frozenset[str] = LOCAL
    api_key: str | None = None
    most_bytes: int = 1 << 22

    def elsewhere(self, request: Request) -> Response | None:
        """Refuses who addresses the sidecar by a name that is not its own."""
        host = request.headers.get("host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if name.strip("[]") not in self.hosts:
            return failure(421, f"this is not {name[:80]!r}: name it with --allow-host", "invalid_request_error")
        return None

    def refused(self, request: Request) -> Response | None:
        """Refuses that, and who does not have the key."""
        elsewhere = self.elsewhere(request)
        if elsewhere is not None or self.api_key is None:
            return elsewhere
        sent = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(sent.encode(), self.api_key.encode()):
            return failure(401, "the API key is missing or wrong", "authentication_error")
        return None

    async def body(self, request: Request) -> bytes | Response:
        """What a client sent, or a refusal of too much."""
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > self.most_bytes:
                return failure(413, f"a request may have {self.most_bytes:,} bytes", "invalid_request_error")
            parts.append(part)
        return b"".join(parts)


def failure(status: int, message: str, kind: str) -> Response:
    """An error as OpenAI's API has it."""
    return JSONResponse({"error": {"message": message, "type": kind, "code": status}}, status_code=status)
