"""Replays the recorded conversations and updates the list of known differences.

``python tests/clients/replay.py --update`` starts a fresh server and rewrites ``known_differences.txt``: existing reasons stay, new
differences get the difference as their reason, lines that no longer differ are removed. ``--report FILE`` writes every difference as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parents[1]))

from kas.testing.server import KasServer  # noqa: E402
from tests.clients.conversation import Answer, Connection, Conversation, diff, without  # noqa: E402
from tests.vectors import files  # noqa: E402

KNOWN = HERE / "known_differences.txt"
CLOCK = "clock:"
HEADER = """\
# Answers that differ from the recorded ones of kube-apiserver 1.36.2: conversation<TAB>step<TAB>reason. The list is exact: a difference
# that is missing here fails the test, and so does a listed step without a difference, unless its reason starts with "clock:" (the answer
# depends on the day). `python tests/clients/replay.py --update` updates the list.
"""


def known_differences(path: Path = KNOWN) -> dict[tuple[str, int], str]:
    """(conversation, step) -> reason. Raises ValueError for a line of another form."""
    out: dict[tuple[str, int], str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.split("\t")
        if len(parts) != 3 or not parts[1].isdigit() or not parts[2].strip():
            raise ValueError(f"{path.name}:{number}: not conversation<TAB>step<TAB>reason: {line!r}")
        if (parts[0], int(parts[1])) in out:
            raise ValueError(f"{path.name}:{number}: listed twice")
        out[parts[0], int(parts[1])] = parts[2].strip()
    return out


def recorded() -> list[files.Vector]:
    """The recorded conversations; the one about the contents of a fresh server comes first."""
    return sorted(files.lines("http"), key=lambda r: r["id"] != "http/bootstrap")


def converse(connection: Connection, row: files.Vector) -> list[Answer]:
    """The normalised responses to one conversation's requests, in order."""
    conversation = Conversation(connection, row["id"].partition("/")[2])
    return conversation.all(row["in"]["steps"], row["out"])


def compare(row: files.Vector, got: list[Answer]) -> tuple[list[tuple[int, list[str], bool]], int, int]:
    """(steps that differ: index, difference, whether only managedFields differ), responses with the same status, responses compared."""
    different, status = [], 0
    for i, (want, have) in enumerate(zip(row["out"], got, strict=True)):
        status += want.get("status") == have.get("status")
        found = diff(want, have)
        if found:
            loose = diff(without(want, "managedFields"), without(have, "managedFields"))
            different.append((i, loose if loose else found, not loose))
    return different, status, len(got)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", help="rewrite known_differences.txt")
    parser.add_argument("--report", help="write every difference to this file")
    args = parser.parse_args()
    rows = recorded()
    known = known_differences() if KNOWN.exists() else {}
    lines, report, requests, same_status, loose_only, alike = [], [], 0, 0, 0, 0
    flags = ("--controllers=none", "--unsafe-no-fsync", "--advertise-address=127.0.0.1")
    with tempfile.TemporaryDirectory() as directory, KasServer(Path(directory), *flags) as server:
        connection = Connection(server)
        for row in rows:
            name = row["id"][5:]
            different, status, n = compare(row, converse(connection, row))
            requests, same_status, alike = requests + n, same_status + status, alike + (not different)
            if args.update:
                # A response that depends on the day stays listed also on the day it is equal.
                by_day = {i: r for (conversation, i), r in known.items() if conversation == name and r.startswith(CLOCK)}
                lines += [f"{name}\t{i}\t{r}" for i, r in by_day.items() if i not in {d[0] for d in different}]
            for i, what, only_managed in different:
                loose_only += only_managed
                step = row["in"]["steps"][i]
                reason = known.get((name, i)) or f"{step['method']} {step['path'].replace(chr(9), ' ')}: {what[0]}"[:300].replace("\n", " ")
                lines.append(f"{name}\t{i}\t{reason}")
                report.append(
                    {
                        "conversation": name,
                        "step": i,
                        "method": step["method"],
                        "path": step["path"],
                        "managedFields only": only_managed,
                        "diff": what,
                    }
                )
    print(
        f"{alike} of {len(rows)} conversations alike; {requests} requests: {same_status} same status code, "
        f"{requests - len(report) + loose_only} identical with managedFields ignored, {requests - len(report)} identical"
    )
    if args.report:
        Path(args.report).write_text(json.dumps(report, indent=1))
    if args.update:
        KNOWN.write_text(HEADER + "".join(line + "\n" for line in sorted(lines)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
