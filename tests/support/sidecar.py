"""A sidecar that runs while a test needs it."""

from __future__ import annotations

import argparse
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from short_task import short_task


class Running:
    """A sidecar on a port of its own, for as long as it is needed."""

    def __init__(self, upstream_url: str, *arguments: str) -> None:
        import uvicorn

        from bitcal_tts.commands import serve
        from bitcal_tts.commands.served import policy_of
        from bitcal_tts.commands.upstreams import second_of
        from bitcal_tts.engines.http import HttpEngine
        from bitcal_tts.engines.llama_server import free_port
        from bitcal_tts.serving.app import Sidecar
        from bitcal_tts.serving.upstream import Upstream

        self.port = free_port()
        parser = argparse.ArgumentParser()
        serve.add_options(parser)
        args = parser.parse_args(
            ["--upstream", upstream_url, "--port", str(self.port), "--answers", "gsm8k", *arguments]
        )
        thinking = {"enable_thinking": True}
        self.engine = HttpEngine(upstream_url, model=args.model, bits=args.bits, template_options=thinking)
        self._opened = ExitStack()
        pilot = serve.autopilot_of(args, self._opened)
        second = second_of(args, self.engine, self._opened)
        self.sidecar = Sidecar(Upstream(self.engine), policy_of(args, self.engine), pilot, second)
        config = uvicorn.Config(self.sidecar.application(), host="127.0.0.1", port=self.port, log_level="error")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        self.url = f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> Any:
        """A page of it."""
        import httpx2

        return httpx2.get(f"{self.url}{path}", trust_env=False)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        self.engine.close()
        self._opened.close()


def ask(running: Running, n: int, seed: int) -> list[Any]:
    """Some problems of the box's task, four at once."""
    import openai

    task = short_task()
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client:

        def one(item: Any) -> Any:
            messages: Any = [{"role": "user", "content": task.prompt(item)}]
            return client.chat.completions.create(model="m", messages=messages, temperature=0.6, seed=seed)

        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(one, task.items(n, seed=seed)))
