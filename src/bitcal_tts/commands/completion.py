"""bitcal completion: a script that completes commands, options and files in bash, zsh or tcsh."""

from __future__ import annotations

import argparse
from pathlib import Path

EXAMPLE = """example:
  mkdir -p ~/.local/share/bash-completion/completions ~/.zfunc
  bitcal completion bash > ~/.local/share/bash-completion/completions/bitcal
  bitcal completion zsh > ~/.zfunc/_bitcal        # a folder that is in your fpath

New shells have it then."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `bitcal completion`."""
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="yours")


def run(args: argparse.Namespace) -> None:
    """Print the script."""
    import shtab

    from bitcal_tts.cli import parser_for, that_can_run

    parser, filled = parser_for(that_can_run())
    for one in filled.values():
        for action in one._actions:
            if action.type is Path:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, args.shell))
