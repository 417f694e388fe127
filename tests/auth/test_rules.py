"""Whether rules cover others, beyond the vectors: many rules, and paths."""

import pytest

from kas.auth.authz.rules import MOST_MISSING, TooManyError, covers

READ = [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]


def test_covering_rules_are_found_without_a_scan():
    """40,000 rules against as many, and a rule of 27 million combinations: each used to scan all rules."""
    named = [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": [f"n{i}"]} for i in range(40_000)]
    groups = [{"verbs": ["get"], "apiGroups": [f"g{i}"], "resources": ["pods"]} for i in range(40_000)]
    assert covers([*named, *groups], [*named, *groups]) == []
    assert covers(named, [{**named[0], "resourceNames": ["n1", "other", "n39999"]}]) == [{**named[0], "resourceNames": ["other"]}]
    assert covers(named, READ) == READ
    many = [f"x{i}" for i in range(300)]
    wide = {"verbs": many, "apiGroups": many, "resources": many}
    assert len(covers(READ, [wide])) == MOST_MISSING
    owner = [{"verbs": [f"x{i}", *many], "apiGroups": many, "resources": many, "resourceNames": ["n"]} for i in range(300)]
    with pytest.raises(TooManyError):
        covers(owner, [wide])


def test_paths_are_covered_by_paths_and_prefixes():
    owner = [{"verbs": ["get"], "nonResourceURLs": ["/a", "/b/*", "/*/c"]}, {"verbs": ["*"], "nonResourceURLs": ["/d*"]}]
    wanted = [{"verbs": ["get", "put"], "nonResourceURLs": ["/a", "/b/c", "/b", "/d", "/d/e", "/*/c", "/x/c"]}]
    missing = {(r["verbs"][0], r["nonResourceURLs"][0]) for r in covers(owner, wanted)}
    assert missing == {("put", "/a"), ("put", "/b/c"), ("get", "/b"), ("put", "/b"), ("put", "/*/c"), ("get", "/x/c"), ("put", "/x/c")}
