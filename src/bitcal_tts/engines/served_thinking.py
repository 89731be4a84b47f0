"""How a model behind a server marks its thinking, as its chat template is told to render."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from bitcal_tts.engines.base import EngineError, conversation
from bitcal_tts.engines.thinking import ThinkMarkers, find_markers, marker_tokens
from bitcal_tts.engines.wire import Wire


class ServedThinking:
    """Finds think markers by asking the server.

    Args:
        wire: To the server.
        template: Its chat template, as far as it tells.
        encode: Token ids of a text.
        system: The system prompt of every request.
    """

    def __init__(
        self, wire: Wire, template: str | None, encode: Callable[[str], list[int]], system: str | None
    ) -> None:
        self.chat_template = template or ""
        self._wire, self._encode, self._system = wire, encode, system
        self._found = lru_cache(maxsize=64)(self._find)

    def get_added_vocab(self) -> list[str]:
        """What finding markers asks of a tokenizer."""
        return marker_tokens(self._encode)

    def markers(self, options: Mapping[str, Any]) -> ThinkMarkers | None:
        """The markers where the template is told this; None where the model does not think."""
        return self._found(json.dumps(options, sort_keys=True))

    def _find(self, options: str) -> ThinkMarkers | None:
        rendered = self._wire.rendered(conversation(self._system, "?"), json.loads(options))
        if rendered is None:
            raise EngineError(
                f"{self._wire.url} does not tell its chat template: say how its model marks its thinking with "
                "--think '<think>,</think>', or that it does not with --think none"
            )
        return find_markers(self, rendered)
