"""``headrace ckpt export --to torch|dcp`` and ``import --from torch|dcp``: what needs PyTorch."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from headrace.errors import HeadraceError


def main(arguments: Sequence[str]) -> int:
    """Run the command line behind ``ckpt``. Returns the exit code."""
    from headrace.checkpoint import torch_formats

    parser = argparse.ArgumentParser(prog="headrace ckpt", allow_abbrev=False)
    parser.add_argument("action", choices=("export", "import"))
    parser.add_argument("store", help="the checkpoints' folder, or s3://bucket/prefix")
    parser.add_argument("target", help="export: the file or folder to write; import: to read")
    parser.add_argument("--to", choices=torch_formats.EXPORTS, help="export: the format")
    parser.add_argument("--from", dest="source", choices=torch_formats.IMPORTS, help="import: it")
    parser.add_argument("--step", type=int, help="which checkpoint; import: its number")
    parser.add_argument("--below", default="", help="export: only this part of the state")
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    parser.add_argument("-q", "--quiet", action="store_true", help="no notes")
    args = parser.parse_args(arguments)
    if (args.action == "export") != (args.to is not None) or (args.to and args.source):
        parser.error("export takes --to, import takes --from")
    try:
        if args.action == "export":
            export = torch_formats.EXPORTS[args.to]
            report = export(args.store, args.target, step=args.step, below=args.below)
        else:
            report = torch_formats.IMPORTS[args.source](
                args.target, args.store, step=args.step or 0
            )
    except (HeadraceError, OSError) as error:
        print(f"headrace: {error}", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(report))
    else:
        print(f"step {report['step']}: {report['bytes']:,} bytes")
    return 0
