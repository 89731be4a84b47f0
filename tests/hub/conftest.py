"""A server that speaks the hub's protocol, as far as its client asks: models and data sets out of local folders."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """What is on it: folders by kind and id."""

    def __init__(self) -> None:
        self.repositories: dict[tuple[str, str], Path] = {}
        self.asked: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                hub.answer(self)

            def do_HEAD(self) -> None:
                hub.answer(self)

            def do_POST(self) -> None:
                hub.answer(self)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        path = unquote(urlparse(request.path).path).strip("/")
        self.asked.append(f"{request.command} {path}")
        parts = path.split("/")
        if parts[0] == "api" and len(parts) >= 4:
            kind, name, rest = parts[1].rstrip("s"), "/".join(parts[2:4]), parts[4:]
            return self._api(request, kind, name, rest, body)
        kind = "dataset" if parts[0] == "datasets" else "model"
        parts = parts[1:] if kind == "dataset" else parts
        if len(parts) > 4 and parts[2] == "resolve":
            return self._file(request, kind, "/".join(parts[:2]), "/".join(parts[4:]))
        return send(request, 404, b"{}")

    def _api(self, request: Any, kind: str, name: str, rest: list[str], body: bytes) -> None:
        folder = self.repositories.get((kind, name))
        if folder is None:
            return send(request, 404, b'{"error": "Repository not found"}', {"X-Error-Code": "RepoNotFound"})
        entries = [entry(p, folder) for p in sorted(folder.rglob("*"))]
        if rest[:1] == ["tree"]:
            inside = folder.joinpath(*rest[2:])
            flat = "recursive=true" not in urlparse(request.path).query.lower()
            shown = [entry(p, folder) for p in sorted(inside.glob("*"))] if flat else entries
            return send(request, 200, json.dumps(shown).encode())
        entries = [e for e in entries if e["type"] == "file"]
        if rest[:1] == ["paths-info"]:
            wanted = json.loads(body)["paths"] if body.startswith(b"{") else []
            return send(request, 200, json.dumps([e for e in entries if e["path"] in wanted]).encode())
        told = {
            "_id": "1", "id": name, "modelId": name, "sha": COMMIT, "private": False, "disabled": False, "gated": False,
            "tags": [], "downloads": 0, "likes": 0, "siblings": [{"rfilename": e["path"]} for e in entries],
        }  # fmt: skip
        return send(request, 200, json.dumps(told).encode())

    def _file(self, request: Any, kind: str, name: str, path: str) -> None:
        folder = self.repositories.get((kind, name))
        if folder is None:
            return send(request, 404, b"{}", {"X-Error-Code": "RepoNotFound"})
        file = folder / path
        if not file.is_file():
            return send(request, 404, b"{}", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        return send(request, 200, file.read_bytes(), {"ETag": f'"{digest(file)}"', "X-Repo-Commit": COMMIT})


def entry(path: Path, root: Path) -> dict[str, Any]:
    if path.is_dir():
        return {"type": "directory", "path": str(path.relative_to(root)), "size": 0, "oid": COMMIT}
    return {"type": "file", "path": str(path.relative_to(root)), "size": path.stat().st_size, "oid": digest(path)}


def send(request: Any, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
    request.send_response(status)
    for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
        request.send_header(name, value)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(body)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def hub() -> Iterator[Hub]:
    served = Hub()
    yield served
    served.close()


@pytest.fixture
def hub_environment(hub: Hub, tmp_path: Path) -> dict[str, str]:
    """Of a process that knows this hub and an empty cache."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    return {**kept, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1"}
