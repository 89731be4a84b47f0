"""bitcal doctor: what this machine can run, and how to install the rest."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from bitcal_tts.commands.progress import say
from bitcal_tts.installing import install_command

EXAMPLE = """example:
  bitcal doctor
  bitcal doctor --json"""

# Package, what it is for, the extra that brings it.
PARTS = (
    ("numpy", "the controller", None),
    ("pyarrow", "trace folders", "traces"),
    ("rich", "progress and tables", "traces"),
    ("reasoning_gym", "generated problems", "tasks"),
    ("math_verify", "equality of mathematical answers", "tasks"),
    ("datasets", "data sets from the hub", "hub"),
    ("torch", "decoding", "transformers"),
    ("transformers", "decoding", "transformers"),
    ("bitsandbytes", "4 and 8 bits", "transformers"),
    ("torchao", "2, 3, 5 and 6 bits", "transformers"),
    ("yaml", "config files", "traces"),
    ("httpx2", "models behind a server", "http"),
    ("gguf", "GGUF files", "http"),
    ("xllamacpp", "a llama.cpp server, K-quants", "llamacpp"),
    ("safetensors", "weights of the models in the box", "llamacpp"),
    ("starlette", "the sidecar", "serve"),
    ("llama_cpp", "llama.cpp in process", "llama-cpp-python"),
    ("sklearn", "bitcal fit", "fit"),
    ("matplotlib", "figures and the report", "report"),
    ("pynvml", "GPU energy", "energy"),
    ("lm_eval", "tasks of lm-evaluation-harness", "lm-eval"),
    ("ray", "recording on a cluster", "ray"),
    ("lightgbm", "bitcal fit", "fit"),
    ("uvicorn", "the sidecar", "serve"),
    ("shtab", "completion in a shell", "traces"),
)


EXTRAS = {
    "run": "traces,tasks,transformers,report",
    "record": "traces,tasks,transformers",
    "fit": "traces,fit",
    "report": "traces,report",
    "serve": "serve,fit,llamacpp",
    "audit": "traces,fit",
    "export": "transformers,llamacpp",
    "lm-eval": "traces,tasks,transformers,lm-eval",
}
"""What commands need at their usual settings; the others need `traces`."""

ENGINES = {
    "transformers": ({"torch", "transformers"}, install_command("transformers")),
    "http": ({"httpx2", "gguf"}, install_command("http")),
    "llama.cpp server": ({"xllamacpp", "httpx2", "gguf"}, install_command("llamacpp")),
    "llama.cpp in process": ({"llama_cpp", "gguf"}, install_command("llama-cpp-python")),
}
"""What each engine needs, and how to get it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `bitcal doctor`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(args: argparse.Namespace) -> None:
    """Look, and say what is missing."""
    found = examine()
    if args.json:
        print(json.dumps({"schema": 1, **found}))
        return
    print(f"Python {found['python']} on {found['system']}, {found['cores']} cores, {found['device']}")
    for part in found["parts"]:
        state = part["version"] or "missing"
        print(f"  {part['package']:<14} {state:<14} {part['purpose']}")
        if part["version"] is None:
            say(f"{'':17}{install_command(part['extra'])}")
        elif part["trouble"] is not None:
            say(f"{'':17}{part['trouble']}")
    print("engines:")
    widest = max(len(engine["engine"]) for engine in found["engines"])
    for engine in found["engines"]:
        say(f"  {engine['engine']:<{widest}} {'here' if engine['here'] else engine['install']}")
    print(f"weight precisions here: {', '.join(map(str, found['bits'])) or 'none'}")
    print(f"compute dtype by default: {found['compute_dtype'] or 'unknown without torch'}")
    print(f"models in the box: {', '.join(found['models']) or 'none'}")
    print(f"energy counters: {', '.join(found['energy']) or 'none readable'}")


def what_installs(package: str, command: str) -> str:
    """What installs a package that is missing, and with it all that a command usually needs."""
    extras = EXTRAS.get(command, "traces").split(",")
    brings = {name: extra for name, _, extra in PARTS}
    own = brings.get(package) or "all"
    return install_command(",".join(extras if own in extras else [*extras, own]))


def examine() -> dict[str, Any]:
    """What is installed and what the machine has."""
    from bitcal_tts.tiny import models
    from bitcal_tts.traces.energy import EnergyMeter

    parts = [
        {"package": name, "purpose": purpose, "extra": extra, "version": _version(name), "trouble": _trouble(name)}
        for name, purpose, extra in PARTS
    ]
    there = {part["package"] for part in parts if part["version"]}
    bits: list[int] = []
    if {"torch", "transformers"} <= there:
        bits = [16, 32]
        bits += [4, 8] if "bitsandbytes" in there else []
        bits += [2, 3, 5, 6] if "torchao" in there else []
    device, dtype = _device() if "torch" in there else ("no torch", None)
    engines = [{"engine": name, "here": needs <= there, "install": how} for name, (needs, how) in ENGINES.items()]
    return {
        "engines": engines,
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "device": device,
        "compute_dtype": dtype,
        "parts": parts,
        "bits": sorted(bits),
        "models": models.available(),
        "energy": EnergyMeter.sources(),
    }


def _version(package: str) -> str | None:
    if importlib.util.find_spec(package) is None:
        return None
    names = {"pynvml": "nvidia-ml-py", "sklearn": "scikit-learn", "yaml": "pyyaml"}
    try:
        return version(names.get(package, package.replace("_", "-")))
    except PackageNotFoundError:
        return "present"


def _trouble(package: str) -> str | None:
    """Why a package that is installed cannot be used: of LightGBM alone wheels leave something to the system."""
    if package != "lightgbm" or _version(package) is None:
        return None
    from bitcal_tts.calibration.boosting import load_lightgbm

    try:
        load_lightgbm()
    except ValueError as error:
        return str(error)
    return None


def _device() -> tuple[str, str]:
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name(), "bfloat16"
    native = bool(torch.cpu._is_avx512_bf16_supported())
    return "CPU only", "bfloat16" if native else "float32"
