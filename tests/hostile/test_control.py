"""Thousands of heads of unknown clients, compared with the same flood sent to another server: the difference is not caused by the machine.

The limits of rows (test_rows.py) for the bystander and for released memory apply here, too.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

import pytest

from kas.testing.server import KasServer
from tests.hostile.bystander import P99_RATIO, Bystander, Echo
from tests.hostile.conftest import FLAGS, comes_back, resident
from tests.hostile.rows import MB
from tests.hostile.rows_floods import sent_heads

pytestmark = pytest.mark.long

AT_MOST = 5  # attempts: an attack that is effective is so every time


@pytest.fixture
def other(kas_server: Callable[..., KasServer]) -> Iterator[tuple[KasServer, Bystander]]:
    """Another server with a bystander of its own: both servers serve their own equally, and unknown clients beside them equally little."""
    server = kas_server("--unsafe-no-fsync", *FLAGS)
    echo = Echo()  # each of two threads has its own
    yield server, Bystander(server, echo)
    echo.close()


def _p99(times: list[float]) -> float:
    return sorted(times)[len(times) * 99 // 100]


@pytest.mark.parametrize("more", [(), ("h1",)], ids=["HTTP/2", "HTTP/1.1"])
def test_heads_of_unknown_clients(
    target: KasServer, other: tuple[KasServer, Bystander], bystander: Bystander, more: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    control, others = other
    found, before = [], sum(resident(target).values())
    for _ in range(AT_MOST):
        gets = []
        for server in (control, target):
            with bystander, others:
                sent_heads(server, *more)
            gets.append(bystander.disturbed.gets)
        beside_other, beside = map(_p99, gets)
        allowed = P99_RATIO * max(beside_other, statistics.median(bystander.quiet.gets))
        found.append(f"p99 {beside * 1000:.1f} ms, beside the other {beside_other * 1000:.1f}, allowed {allowed * 1000:.1f}")
        shown = [f"{name} {1000 * statistics.median(t):.2f}, {1000 * _p99(t):.2f}, {1000 * max(t):.1f}" for name, t in zip(
            ("quiet", "beside the other", "beside"), (bystander.quiet.gets, *gets), strict=True)]  # fmt: skip
        with capsys.disabled():
            print("\np50, p99, most in ms:", "; ".join(shown))
        if beside <= allowed and not others.errors:
            break
    else:
        pytest.fail("; ".join(found))
    others.errors.clear()
    comes_back(target, before, MB)
