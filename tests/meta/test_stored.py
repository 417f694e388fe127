"""Stored bytes are decoded in one place."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

from kas.meta.stored import object_of

KAS = Path(__file__).parents[2] / "kas"


def test_every_decoded_object_is_new():
    record = SimpleNamespace(json=b'{"metadata":{"name":"a"}}')
    first = object_of(record)
    first["metadata"]["name"] = "b"
    assert object_of(record) == {"metadata": {"name": "a"}}


def test_no_module_decodes_a_record_itself():
    by_hand = re.compile(r"\b(orjson\.loads|parse)\([\w.\[\]]+\.json\)")
    found = [str(p.relative_to(KAS)) for p in KAS.rglob("*.py") if by_hand.search(p.read_text())]
    assert found == []
