"""The playground: three files, no build step, and no request to any other host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files

from starlette.responses import Response

_FILES = {
    "/": ("index.html", "text/html"),
    "/bitcal/page.js": ("page.js", "text/javascript"),
    "/bitcal/page.css": ("page.css", "text/css"),
}
PATHS = tuple(_FILES)
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


EXAMPLES = (
    "A train leaves at 9:40 and arrives at 13:05. It stops for 12 minutes at each of 4 stations. For how many minutes "
    "does it move?",
    "A shop sells notebooks at 3 for 4 euros. Mia buys 18 notebooks and pays with a 50 euro note. How much change does "
    "she get?",
)
"""Problems for a model of which nothing is known."""


@dataclass(frozen=True)
class About:
    """What the page says of the sidecar, and sends to it.

    Attributes:
        method: What halts a request that names nothing.
        promise: In a sentence.
        prompt: Around a problem.
        examples: Problems to begin with.
        temperature: Usual one.
        budget: Usual one.
    """

    method: str = "complete"
    promise: str = ""
    prompt: str = "{question}"
    examples: Sequence[str] = EXAMPLES
    temperature: float = 1.0
    budget: int = 4096

    def told(self, model: str, bits: float, *, needs_key: bool) -> dict[str, object]:
        """As JSON types."""
        return {**asdict(self), "model": model, "bits": bits, "needs_key": needs_key}


def page(path: str) -> Response:
    """One of the files."""
    name, kind = _FILES[path]
    content = files("bitcal_tts.serving").joinpath(f"playground/{name}").read_bytes()
    return Response(content, media_type=kind, headers=_HEADERS)
