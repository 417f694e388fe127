"""Token buckets that several processes share."""

from __future__ import annotations

from pathlib import Path

from kas.meta.buckets import Buckets


def test_buckets_with_one_file_share_its_tokens(tmp_path: Path):
    one, other = (Buckets(tmp_path / "b", 1, rate=2, burst=3) for _ in range(2))
    assert [b.take("", 0.0) for b in (one, other, one, other)] == [True, True, True, False]
    assert one.take("", 0.5) and not other.take("", 0.5)
    assert [one.take("", 100.0) for _ in range(4)] == [True, True, True, False]


def test_taking_a_future_token_returns_its_time(tmp_path: Path):
    one, other = (Buckets(tmp_path / "b", 1, rate=2, burst=1) for _ in range(2))
    assert [b.reserve("", 10.0) for b in (one, other, one)] == [0.0, 0.5, 1.0]
    assert other.reserve("", 11.0) == 0.5  # two tokens were added, and paid for those taken in advance
    assert other.reserve("", 100.0) == 0.0
