"""Token buckets of several processes."""

from __future__ import annotations

from pathlib import Path

from kas.meta.buckets import Buckets


def test_those_who_share_a_file_share_its_tokens(tmp_path: Path):
    one, other = (Buckets(tmp_path / "b", 1, rate=2, burst=3) for _ in range(2))
    assert [b.take("", 0.0) for b in (one, other, one, other)] == [True, True, True, False]
    assert one.take("", 0.5) and not other.take("", 0.5)
    assert [one.take("", 100.0) for _ in range(4)] == [True, True, True, False]


def test_who_takes_a_token_that_is_to_come_hears_when_it_does(tmp_path: Path):
    one, other = (Buckets(tmp_path / "b", 1, rate=2, burst=1) for _ in range(2))
    assert [b.reserve("", 10.0) for b in (one, other, one)] == [0.0, 0.5, 1.0]
    assert other.reserve("", 11.0) == 0.5  # two came, and paid for those that were taken ahead
    assert other.reserve("", 100.0) == 0.0
