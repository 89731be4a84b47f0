"""The dashboard asks for counts that are there, and the compose file for options that are."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("starlette", reason="the sidecar's packages are not installed")
FOLDER = Path(__file__).parents[2] / "docs/sidecar"


def test_every_count_on_the_dashboard_is_counted(running: Any) -> None:
    from bitcal_tts.serving.metrics import Metrics

    told = json.loads((FOLDER / "grafana.json").read_text())
    asked = {
        name for panel in told["panels"] for one in panel["targets"] for name in re.findall(r"bitcal_\w+", one["expr"])
    }
    counted = {sample for family in Metrics().registry.collect() for sample in _names(family.name, family.type)}
    assert asked and asked <= counted, asked - counted


def test_before_the_first_shadow_there_are_none_and_no_rate_is_known() -> None:
    from bitcal_tts.serving.metrics import Metrics

    metrics = Metrics()
    metrics.pilots([{"name": "a", "phase": "learning", "net": 0.0, "counts": {"trial_tokens": 7}, "shadow": None}])
    assert metrics.registry.get_sample_value("bitcal_trial_tokens", {"setting": "a"}) == 7
    told = {
        what: metrics.registry.get_sample_value("bitcal_shadow", {"setting": "a", "what": what})
        for what in ("n", "lost", "lost_high")
    }
    assert (told["n"], told["lost"]) == (0, 0) and told["lost_high"] != told["lost_high"]


def _names(name: str, kind: str) -> list[str]:
    endings = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
    return [name + ending for ending in endings.get(kind, [""])]


def test_the_compose_file_names_options_that_there_are() -> None:
    from bitcal_tts.commands import serve

    told = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    sidecar = told["services"]["sidecar"]
    dockerfile = FOLDER / sidecar["build"] / "Dockerfile"
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", dockerfile.read_text(), re.MULTILINE)
    program, command, *always = json.loads(entry)
    assert (program, command) == ("bitcal", "serve")
    parser = argparse.ArgumentParser(exit_on_error=False)
    serve.add_options(parser)
    args = parser.parse_args([*always, *(text.replace("${BITS:-4}", "4") for text in sidecar["command"])])
    assert args.upstream == "http://llama:8080" and args.risk == 0.02
    assert (args.host, str(args.state)) == ("0.0.0.0", "/state")
