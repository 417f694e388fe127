"""Checks that the load client of ``end_to_end`` is answered with every kind of credential. This measures nothing."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for ``tests``, which is no package of the installation

from bench.end_to_end import Client, Target
from tests import prerequisites


def test_it_speaks_with_one_token_with_two_and_with_none(kas, tmp_path):
    try:
        client = Client(tmp_path)
    except SystemExit as e:
        prerequisites.give_up(str(e))
    target = Target.kas(kas)
    target.reader = target.token
    many = {"connections": 4, "count": 12}
    assert client.run(target, "GET", "/api/v1/namespaces/default", **many)["requests"] == 12
    assert client.run(target, "GET", "/api/v1/namespaces/default", users=True, **many)["requests"] == 12
    target.token = ""
    assert client.run(target, "GET", "/version", **many)["requests"] == 12
