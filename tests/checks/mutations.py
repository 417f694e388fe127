"""Mutations of documents: each value is replaced by hostile ones, removed, duplicated, or gets unexpected fields."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator
from typing import Any

from hypothesis import strategies as st

# Replacements of a value: invalid names and paths, numbers outside their ranges, other types.
TEXTS = (
    "", "a", "A", "-", "a-", "-a", "a--b", "a.b", "a_b", ".", "..", "../a", "a/../b", "a..b", "/a", "a/", "a/b/c", "a%b", " a ", "a=b",
    "a b",
    "é", "a\nb", "a\x7f", "\ud800", "a" * 15, "a" * 16, "a" * 63, "a" * 64, "a" * 128, "a" * 129, "a" * 253, "a" * 254, "a" * 257,
    "a" * 1025, "a" * 253 + "/b", "a" * 254 + "/b", "80", "0", "1", "-1", "1.5", "65536", "50%", "101%", "TCP", "HTTP", "http", "Always",
    "Never",
    "None", "True", "ClusterIP", "NodePort", "ExternalName", "metadata.name", "CAP_SYS_ADMIN", "config", "token", "ca.crt", "namespace",
    "b", "b/c", "b/c/", "token/a", "A.b", ".a", "100m", "1500m", "2Ki", "1k", "1Mi", "65Mi", "1M", "1G", "9E", "1e3", "999999999999",
    "99999999Ti", "v1", "apps/v1", "v1/", "/v1", "Event", "orphan", "foregroundDeletion", "kubernetes", "example.com/f", "10.0.0.1",
    "10.0.0.01", "127.0.0.1", "169.254.1.1", "224.0.0.1", "255.255.255.255", "0.0.0.0", "::1", "fd00::1", "10.0.0.0/8", "User", "Group",
    "ServiceAccount", "Role", "ClusterRole", "rbac.authorization.k8s.io", "Opaque", "kubernetes.io/tls", "RollingUpdate", "Recreate",
    "2024-01-02T03:04:05Z", "2024-13-02T03:04:05Z", "cpu", "memory", "nvidia.com/gpu", "default", "kube-system", "Apply", "x" * 262144,
)  # fmt: skip
NUMBERS = (
    0, -1, 1, 2, 81, 599, 0o777, 0o1000, 32768, 65535, 65536, 86400, 86401, (1 << 31) - 1, 1 << 31, -(1 << 31) - 1, 1 << 63, 1 << 70,
    0.0, 1.5,
    1e300,
)  # fmt: skip
SHAPES: tuple[Any, ...] = (None, True, False, [], {}, ["a"], [1], {"a": "b"}, {"name": "a"}, [{}], [None])
# Unexpected fields.
FIELDS = (
    "hostPort", "hostIP", "value", "valueFrom", "grpc", "exec", "sleep", "add", "privileged", "allowPrivilegeEscalation", "procMount",
    "nvidia.com/gpu", "hugepages-2Mi", "memory", "claims", "subPathExpr", "mountPropagation", "volumeDevices", "restartPolicy",
    "stopSignal", "terminationGracePeriodSeconds", "prefix", "localhostProfile", "gitRepo", "items", "mode", "path", "resizePolicy",
    "name", "resourceFieldRef", "sizeLimit", "ephemeral", "image", "serviceAccountToken", "secret", "fileKeyRef", "windowsOptions",
    "type", "lifecycle", "livenessProbe", "nodePort", "externalIPs", "clusterIPs", "sessionAffinityConfig", "hostNetwork", "os", "affinity",
    "matchExpressions", "nonResourceURLs", "aggregationRule", "preferredHolder", "strategy", "deprecatedTopology", "series", "eventTime",
    "taints", "podCIDRs", "a b", "A", "a.b/c",
)  # fmt: skip

ODD = st.one_of(
    st.sampled_from(TEXTS[:-1]), st.sampled_from(NUMBERS), st.integers(0, len(SHAPES) - 1).map(lambda i: copy.deepcopy(SHAPES[i])),
    st.text(max_size=4), st.integers(),
)  # fmt: skip


def places(value: Any, skip: Collection[str] = ()) -> list[tuple[Any, Any]]:
    """Every (dict or list, key or index) in a document, except fields in ``skip`` and what is below them."""
    pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    return [place for key, below in pairs if key not in skip for place in [(value, key), *places(below, skip)]]


def each_place(doc: Any, skip: Collection[str] = ()) -> Iterator[str]:
    """Yields the document again and again, each time with one mutation in place, described by the yielded text and key. Afterwards the
    document is restored.

    Fields in ``skip`` are left alone.
    """
    for owner, key in places(doc, skip):
        had = owner[key]
        for odd in (*TEXTS, *NUMBERS, *SHAPES):
            owner[key] = copy.deepcopy(odd)
            yield f"{key} is {str(odd)[:40]!r}"
        owner[key] = had
        if isinstance(owner, dict):
            before = dict(owner)
            del owner[key]
            yield f"{key} is gone"
            for name in TEXTS[:-1]:
                owner.clear()
                owner.update({(name if k == key else k): v for k, v in before.items()})
                yield f"{key} is called {name[:40]!r}"
            owner.clear()
            owner.update(before)
        else:
            owner.insert(key, copy.deepcopy(had))
            yield f"{key} is there twice"
            del owner[key]
            del owner[key]
            yield f"{key} is gone"
            owner.insert(key, had)
    for owner in [doc, *(owner[key] for owner, key in places(doc, skip))]:
        if isinstance(owner, dict):
            for name in FIELDS:
                if name not in owner:
                    for odd in ("a", 1, True, {"a": "b"}, [{"name": "a"}]):
                        owner[name] = odd
                        yield f"{name} is added"
                    del owner[name]


@st.composite
def changed(draw: st.DrawFn, common: Any, most: int = 3) -> Any:
    """The document with up to ``most`` mutations: a value replaced, removed or copied from elsewhere, or a field added."""
    doc = copy.deepcopy(common)
    for _ in range(draw(st.integers(1, most))):
        there = places(doc)
        if not there:
            break
        owner, key = there[draw(st.integers(0, len(there) - 1))]
        what = draw(st.sampled_from(["odd", "drop", "copy", "add"]))
        if what == "odd":
            owner[key] = draw(ODD)
        elif what == "drop":
            del owner[key]
        elif what == "copy":
            source, at = there[draw(st.integers(0, len(there) - 1))]
            owner[key] = copy.deepcopy(source[at])
        elif isinstance(owner, dict):
            owner[draw(st.sampled_from(FIELDS))] = draw(ODD)
    return doc
