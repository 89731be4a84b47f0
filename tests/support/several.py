"""Two real servers behind one address, told apart by the model that a request names, as Ollama and routers have it."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2

PREFIX = "/models"


class Several:
    """Passes a request on to the server of the model that it names.

    Args:
        servers: URLs by the names of their models.
        own_api: Whether llama.cpp's own API is there, as on its router, or nothing but what all servers share.
    """

    def __init__(self, servers: dict[str, str], *, own_api: bool) -> None:
        listed = {"data": [{"id": name, "owned_by": "llamacpp"} for name in servers]}

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                parts = urlsplit(self.path.removeprefix(PREFIX))
                named = parse_qs(parts.query).get("model", [""])[0]
                if not self.path.startswith(PREFIX) or (parts.path != "/v1/models" and not own_api):
                    self._answer(404, b"{}")
                elif parts.path == "/v1/models":
                    self._answer(200, json.dumps(listed).encode())
                elif named:
                    told = httpx2.get(f"{servers[named]}{parts.path}", trust_env=False)
                    self._answer(told.status_code, told.content)
                else:
                    self._answer(200, json.dumps({"role": "router", "model_alias": "router"}).encode())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                named, path = json.loads(body).get("model"), self.path.removeprefix(PREFIX)
                if named not in servers or not (own_api or path.startswith("/v1/")):
                    self._answer(404, b'{"error": {"message": "no such model"}}')
                    return
                with httpx2.stream("POST", f"{servers[named]}{path}", content=body, trust_env=False) as told:
                    self.send_response(told.status_code)
                    self.end_headers()
                    for part in told.iter_raw():
                        self.wfile.write(part)
                        self.wfile.flush()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}{PREFIX}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
