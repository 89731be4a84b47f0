"""bitcal export: a model as a GGUF file for llama.cpp, at one of its precisions."""

from __future__ import annotations

import argparse
import json

from bitcal_tts.commands import options
from bitcal_tts.engines.gguf import TYPES, export_gguf
from bitcal_tts.tiny import models

EXAMPLE = """example:
  bitcal export tiny-15m --gguf Q4_K --out tiny-15m-Q4_K.gguf
  bitcal export tiny-15m --gguf F16 --out tiny-15m-F16.gguf

The models in the box, or any Llama checkpoint in a folder whose tokenizer splits digits and bytes. For other models use
llama.cpp's convert_hf_to_gguf.py."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `bitcal export`."""
    parser.add_argument("model", help=f"{', '.join(models.available())}, or a folder")
    parser.add_argument("--gguf", required=True, choices=TYPES, metavar="TYPE", help=f"one of {', '.join(TYPES)}")
    parser.add_argument("--out", type=options.file, required=True, help="the file to write")
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Write the file, and say what precision it came to have."""
    if not args.out.parent.is_dir():
        raise ValueError(f"there is no folder {args.out.parent} for --out")
    bits = export_gguf(models.resolve(args.model), args.gguf, args.out)
    size = args.out.stat().st_size
    if args.json:
        print(json.dumps({"schema": 1, "file": str(args.out), "bytes": size, **bits._asdict()}))
    else:
        print(
            f"{args.out}: {bits.scheme}, {bits.body:.2f} bits a weight in the layers, {bits.everything:.2f} in all, "
            f"{size / 1e6:.1f} MB"
        )
