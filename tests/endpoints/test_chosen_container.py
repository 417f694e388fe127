"""Which container of a pod logs and streams are of."""

from __future__ import annotations

from typing import Any

import pytest

from kas.endpoints.subresources.containers import chosen
from kas.meta.errors import ApiError


def pod(containers: str = "", init: str = "", ephemeral: str = "") -> dict[str, Any]:
    kinds = {"containers": containers, "initContainers": init, "ephemeralContainers": ephemeral}
    return {"metadata": {"name": "test"}, "spec": {kind: [{"name": name} for name in names.split()] for kind, names in kinds.items()}}


@pytest.mark.parametrize(("of", "wanted"), [
    (pod("mine"), ""), (pod("mine", "first", "debugger"), ""), (pod("a mine"), "mine"), (pod("a b", "mine"), "mine"),
    (pod("a", "", "mine"), "mine"),
])  # fmt: skip
def test_the_only_container_or_the_named_one_is_chosen(of: dict[str, Any], wanted: str) -> None:
    assert chosen(of, wanted) == "mine"


@pytest.mark.parametrize(("of", "wanted", "why"), [
    (pod(), "", "a container name must be specified for pod test"),
    (pod("a b"), "", "a container name must be specified for pod test, choose one of: [a b]"),
    (pod("a b", "first"), "", "a container name must be specified for pod test, choose one of: [first a b]"),
    (pod("a b", "first", "debugger"), "", "a container name must be specified for pod test, choose one of: [first a b debugger]"),
    (pod("a b"), "unknown", "container unknown is not valid for pod test"),
])  # fmt: skip
def test_a_missing_or_unknown_container_name_is_refused_with_a_list(of: dict[str, Any], wanted: str, why: str) -> None:
    """Upstream's table of ``TestCheckLogLocation``."""
    with pytest.raises(ApiError) as refusal:
        chosen(of, wanted)
    assert (refusal.value.code, refusal.value.message) == (400, why)
