"""The cached rights of a user with many bindings. ``test_rbac.py`` compares them with a complete evaluation."""

from __future__ import annotations

import random

from kas.auth.authz.manybound import ManyBound

ROLE, CLUSTER = ("Role", "r"), ("ClusterRole", "c")


def test_roles_are_unique_and_in_the_order_of_their_first_bindings():
    bindings = {"a": CLUSTER, "b": ROLE, "c": CLUSTER, "d": ("Role", "none")}
    asked: list[str] = []

    def held(ref: tuple[str, str]) -> str | int:
        asked.append(ref[1])
        return "no role" if ref[1] == "none" else len(ref[1])

    many = ManyBound(bindings.get, lambda ref: ref, held, sorted(bindings))
    assert len(many) == many.unasked == 4
    first = many.have()
    assert (first, list(many.cluster_roles), len(many), many.unasked) == (([1, 1], ["no role"]), [CLUSTER], 4, 0)
    assert many.have() is first and asked == ["c", "r", "none"]
    # The given lists are unchanged, and only what a change concerns is looked up.
    asked.clear()
    del bindings["a"]
    many.changed("a")
    many.changed("never")
    many.otherwise(("Role", "of nobody"))
    assert many.have() == ([1, 1], ["no role"]) and many.have() is not first and asked == ["c"]
    del bindings["c"]
    bindings["d"] = ROLE
    many.changed("c")
    many.changed("d")
    assert (many.have(), many.cluster_roles, len(many)) == (([1], []), {}, 2) and first == ([1, 1], ["no role"])
    asked.clear()
    many.otherwise(ROLE)
    assert many.have() == ([1], []) and asked == ["r"]


def test_an_updated_cache_equals_a_new_one():
    rng, bindings = random.Random(3), dict[str, tuple[tuple[str, str], str]]()

    def new() -> ManyBound[tuple[tuple[str, str], str], tuple[str]]:
        return ManyBound(bindings.get, lambda one: one[0], lambda one: one[1] if one[0][1] == "3" else (one[1],), sorted(bindings))

    kept = new()
    for _ in range(3000):
        name = str(rng.randrange(30))
        if rng.random() < 0.4:
            bindings.pop(name, None)
        else:
            bindings[name] = (rng.choice(("Role", "ClusterRole")), str(rng.randrange(8))), name
        kept.changed(name)
        if rng.random() < 0.4:
            fresh = new()
            assert kept.have() == fresh.have()
            assert set(kept.cluster_roles) == set(fresh.cluster_roles) and len(kept) == len(bindings)
