"""Measures what a start of ``kas serve`` costs, and what a server holds before its first request.

    .venv/bin/python bench/start.py [--rounds 4] [--workers 1,2]

Everything runs on CPU 0 (where ``taskset`` exists), without ``--controllers``, which only start working once the server is ready. The
figure is the CPU of all processes from exec to the ready line, including those that have ended (the child that makes certificates and,
with several workers, the one that forked them); the minimum of the rounds. A *first* start makes certificates and the objects that every
cluster has; a *later* one finds them. Memory is read six seconds after the ready line of the last round: PSS counts a page that several
processes share as a fraction in each, and *anonymous* is the part of it without a file behind it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.end_to_end import TICK, cpu_s, machine, pinned, resident_mib, rss_mib  # noqa: E402
from kas.testing.server import KasServer  # noqa: E402

WARM_S = 6.0  # what is loaded once a server is ready has been loaded


def own_s(pid: int) -> float:
    """CPU seconds of one process, whose children do not count."""
    return sum(int(task.joinpath("schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()) * 1e-9


def ended_s(pid: int) -> float:
    """CPU seconds of the children of a process that have ended, in ticks of the kernel's clock."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / TICK


def started(directory: Path, workers: int, held: dict[str, float] | None = None) -> tuple[float, float, float, float]:
    """Milliseconds of CPU of the supervisor, of the workers, of ended processes, and of all; ``held`` is called with the memory."""
    with KasServer(directory, "--controllers", "none", workers=workers, prefix=pinned(0)) as server:
        own, all_, ended = own_s(server.pid), cpu_s(server.pid), ended_s(server.pid)
        if held is not None:
            time.sleep(WARM_S)
            held["pss"], held["anonymous"] = resident_mib(server.pid), rss_mib(server.pid)
    return own * 1e3, (all_ - own) * 1e3, ended * 1e3, (all_ + ended) * 1e3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--workers", default="1,2")
    args = parser.parse_args()
    print(" ".join(f"{k}={v}" for k, v in machine().items()))
    for workers in map(int, args.workers.split(",")):
        rounds: dict[str, list[tuple[float, float, float, float]]] = {"first": [], "later": []}
        held: dict[str, float] = {}
        with tempfile.TemporaryDirectory() as directory:
            for i in range(args.rounds):
                for kind, found in rounds.items():
                    last = kind == "later" and i == args.rounds - 1
                    found.append(started(Path(directory) / str(i), workers, held if last else None))
        for kind, found in rounds.items():
            supervisor, served, ended, together = min(found, key=lambda row: row[-1])
            print(
                f"{workers} workers, {kind:5}: {together:4.0f} ms of CPU; supervisor {supervisor:.0f}, workers {served:.0f}, "
                f"children that ended {ended:.0f}"
            )
        print(f"{workers} workers, empty: {held['pss']:.0f} MiB (PSS), of that anonymous {held['anonymous']:.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
