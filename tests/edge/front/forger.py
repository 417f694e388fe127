"""Run as a program: sends a request past the front, from a socket bound to the address that a relay has (or had).

usage: forger.py DIRECTORY FD NAME. FD is the number of the server's descriptor of the directory, through which its addresses go. Prints
the status and the body of the answer.
"""

from __future__ import annotations

import os
import socket
import sys

sys.path.insert(0, os.getcwd())
from tests.edge.front.conftest import LIMIT_S, ask


def main() -> None:
    directory, fd, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    if opened != fd:
        os.dup2(opened, fd)
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(LIMIT_S)
        if name:
            s.bind(f"/proc/self/fd/{fd}/{name}")
        try:
            s.connect(f"/proc/self/fd/{fd}/worker-0")
            status, body = ask(s)
        finally:
            if name:
                os.unlink(f"{directory}/{name}")
    print(status, body.get("username") or body.get("message"))


if __name__ == "__main__":
    main()
