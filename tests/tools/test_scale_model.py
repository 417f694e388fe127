"""The model of ``bench/scale_model.py``."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from bench.scale_model import FULL, Cluster, Constants, main, model, most_pods


def shares(**asked) -> dict[str, float]:
    return {part.name: part.share for part in model(Constants(), Cluster(**asked))}


def test_more_servers_carry_more_watchers_but_not_more_writes() -> None:
    few, many = shares(servers=3), shares(servers=30)
    assert many["a worker's core"] < few["a worker's core"]
    assert many["the replicator's core"] == few["the replicator's core"] > 0


def test_the_fullest_resource_comes_first_and_bounds_growth() -> None:
    parts = model(Constants(), Cluster())
    assert [p.share for p in parts] == sorted((p.share for p in parts), reverse=True)
    asked = Cluster()
    scale = most_pods(Constants(), asked) / asked.pods
    grown = {**asdict(asked), "nodes": asked.nodes * scale, "pods": asked.pods * scale, "churn": asked.churn * scale}
    assert model(Constants(), Cluster(**grown))[0].share == pytest.approx(FULL, rel=0.01)


def test_it_prints_the_first_bottleneck(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr("sys.argv", ["scale_model.py", "--nodes", "5000"])
    assert main() == 0
    out = capsys.readouterr().out
    assert out.startswith("5,000 nodes") and "first to break: " in out
