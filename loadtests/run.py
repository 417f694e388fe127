"""Loads a server of its own for a limited time and prints PASS or FAIL: ``make load`` (ARGS="--users 100 --seconds 60").

Fails if more than ``--max-errors`` percent of the requests get a wrong answer, if the 99th percentile of the requests other than watches
exceeds ``--max-p99`` milliseconds, if the server panics, or if it does not stop cleanly.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import ssl
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from kas.testing.server import KasServer  # noqa: E402

NAMESPACE = "load"


def prepare(server: KasServer) -> None:
    """Creates the objects for readers: 100 ConfigMaps and 200 pods."""
    context = ssl.create_default_context(cafile=server.ca)
    # An opener without proxies: the server is on this machine whatever the environment says about the rest of the world.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))

    def post(path: str, body: dict) -> None:
        head = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
        opener.open(urllib.request.Request(server.url + path, json.dumps(body).encode(), head, method="POST"), timeout=30).close()

    post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for i in range(100):
        post(f"/api/v1/namespaces/{NAMESPACE}/configmaps", {"metadata": {"name": f"shared-{i}"}, "data": {"n": "0", "pad": "x" * 1200}})
    for i in range(200):
        spec = {"automountServiceAccountToken": False, "serviceAccountName": "load", "containers": [{"name": "c", "image": "i"}]}
        if i == 0:
            post(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "load"}})
        post(f"/api/v1/namespaces/{NAMESPACE}/pods", {"metadata": {"name": f"p-{i}", "labels": {"shard": str(i % 10)}}, "spec": spec})


def load(server: KasServer, args: argparse.Namespace, directory: Path) -> dict[str, dict[str, str]]:
    """Runs locust and returns its statistics by request name (``Aggregated`` is the sum)."""
    out = directory / "locust"
    command = [sys.executable, "-m", "locust", "-f", str(HERE / "locustfile.py"), "--headless", "--only-summary", "--skip-log-setup"]
    command += [
        "-u",
        str(args.users),
        "-r",
        str(max(1, args.users // 2)),
        "-t",
        f"{args.seconds}s",
        "--stop-timeout",
        "15",
        "--csv",
        str(out),
    ]
    env = {**os.environ, "KAS_TOKEN": server.token, "KAS_CA": server.ca, "KAS_NAMESPACE": NAMESPACE}
    done = subprocess.run(
        [*command, "--host", server.url], env=env, capture_output=True, text=True, timeout=args.seconds + 120, check=False
    )
    stats = directory / "locust_stats.csv"
    if not stats.exists():
        raise SystemExit(f"locust did not run (pip install 'kas[load]'):\n{done.stderr[-2000:]}")
    print(done.stderr[-6000:] if args.verbose else "", end="")
    with stats.open(newline="") as f:
        rows = {r["Name"]: r for r in csv.DictReader(f)}
    with (directory / "locust_failures.csv").open(newline="") as f:
        for r in csv.DictReader(f):
            print(f"error: {r['Occurrences']}x {r['Name']}: {r['Error'][:300]}")
    return rows


def verdict(rows: dict[str, dict[str, str]], args: argparse.Namespace) -> tuple[list[str], str]:
    """Returns (faults, one line of figures)."""
    total = rows["Aggregated"]
    requests, errors = int(total["Request Count"]), int(total["Failure Count"])
    # A watch lasts as long as it was asked to; its duration is no latency.
    slowest = max(
        (float(r["99%"]), name)
        for name, r in rows.items()
        if name != "Aggregated" and not name.startswith("watch") and int(r["Request Count"])
    )
    rate = 100 * errors / max(requests, 1)
    wrong = []
    if requests < args.users:
        wrong.append(f"only {requests} requests were made")
    if rate > args.max_errors:
        wrong.append(f"{rate:.2f} % errors, {args.max_errors} % are allowed")
    if slowest[0] > args.max_p99:
        wrong.append(f"p99 of '{slowest[1]}' is {slowest[0]:.0f} ms, {args.max_p99} ms are allowed")
    return (
        wrong,
        f"{requests} requests, {float(total['Requests/s']):.0f}/s, {rate:.2f} % errors, slowest p99 {slowest[0]:.0f} ms ({slowest[1]})",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--max-errors", type=float, default=0.1, metavar="PERCENT")
    parser.add_argument("--max-p99", type=float, default=1000, metavar="MS")
    parser.add_argument("--verbose", action="store_true", help="show locust's table")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        server = KasServer(Path(directory), workers=args.workers).start()
        try:
            prepare(server)
            rows = load(server, args, Path(directory))
        finally:
            code = server.stop()
        for name, r in sorted(rows.items()):
            columns = {"p50": "50%", "p99": "99%", "max": "Max Response Time"}
            times = "  ".join(f"{label} {float(r[column]):6.0f} ms" for label, column in columns.items())
            print(f"{name:32} {r['Request Count']:>8} {r['Failure Count']:>6} errors  {times}")
        wrong, numbers = verdict(rows, args)
        if code:
            wrong.append(f"the server ended with {code}")
        if "Traceback" in server.output or "panic" in server.output:
            wrong.append("the server panicked:\n" + server.output[-3000:])
    print(f"{'FAIL' if wrong else 'PASS'}: {numbers}" + "".join(f"; {w}" for w in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
