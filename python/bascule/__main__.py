"""The program `bascule`, also run as `python -m bascule`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from .errors import BasculeError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program with `arguments` (default: the command line's) and returns its exit code: 0, 1 or 130."""
    parser = argparse.ArgumentParser(prog="bascule", description="Weight transport from a trainer to its engines.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="checks this machine and reports problems")
    status = commands.add_parser("status", help="shows an endpoint's sender, workers and slots, and verifies the slots")
    status.add_argument("target", help="an endpoint's URL or folder: shm:///run/user/1000/grpo")
    send = commands.add_parser("send", help="sends the tensors of a safetensors file or folder, or an adapter's folder, once")
    send.add_argument("checkpoint")
    send.add_argument("--sync", required=True, help="the endpoint: shm:///run/user/1000/grpo")
    send.add_argument("--workers", type=int, default=1, help="how many workers to wait for (default: 1)")
    send.add_argument("--timeout", type=float, default=60, help="seconds to wait for them (default: 60)")
    board = commands.add_parser("tensorboard", help="writes a bascule-train run's metrics.jsonl to TensorBoard, live")
    board.add_argument("run", help="the run's folder (its --out), or metrics.jsonl")
    board.add_argument("--logdir", required=True, help="TensorBoard's log folder")
    board.add_argument("--once", action="store_true", help="write the present steps and exit, do not follow the run")
    chosen = parser.parse_args(arguments)
    try:
        code = _run(chosen)
        sys.stdout.flush()  # raises BrokenPipeError here if no process reads the output
        return code
    except BasculeError as error:
        print(f"bascule: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes it at exit
        return 1


def _run(chosen: argparse.Namespace) -> int:
    if chosen.command == "doctor":
        from . import doctor

        return min(doctor.run(), 1)
    if chosen.command == "status":
        from . import status

        return min(status.run(chosen.target), 1)
    if chosen.command == "tensorboard":
        from . import tensorboard

        print(f"{tensorboard.follow(chosen.run, chosen.logdir, once=chosen.once)} steps written to {chosen.logdir}")
        return 0
    from . import checkpoint

    report = checkpoint.send(chosen.checkpoint, chosen.sync, chosen.workers, chosen.timeout)
    for worker in report.workers:
        print(f"{worker.worker}: {worker.state}{f', {worker.error}' if worker.error else ''}")
    print(f"version {report.version}: {report.bytes} bytes in {1e3 * report.seconds.total:.1f} ms")
    return 0 if report.complete else 1


if __name__ == "__main__":
    sys.exit(main())
