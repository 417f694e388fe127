"""The conditions of a terminating namespace (``pkg/controller/namespace/deletion/status_condition_utils.go``). Pure functions."""

from __future__ import annotations

from collections import Counter
from typing import Any

Condition = dict[str, Any]

DISCOVERY, PARSING, CONTENT = (
    "NamespaceDeletionDiscoveryFailure",
    "NamespaceDeletionGroupVersionParsingFailure",
    "NamespaceDeletionContentFailure",
)
REMAINING, FINALIZERS = "NamespaceContentRemaining", "NamespaceFinalizersRemaining"
# In the order of writing, with reason and message of the good state.
FINE = {
    DISCOVERY: ("ResourcesDiscovered", "All resources successfully discovered"),
    PARSING: ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
    CONTENT: ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
    REMAINING: ("ContentRemoved", "All content successfully removed"),
    FINALIZERS: ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}


class Findings:
    """The results of one pass over a namespace."""

    def __init__(self) -> None:
        self.remaining: Counter[str] = Counter()  # "<resource>.<group>"
        self.finalizers: Counter[str] = Counter()
        self.failures: list[str] = []  # at most one per kind
        self.undiscovered: list[str] = []  # group versions whose server did not answer discovery

    @property
    def empty(self) -> bool:
        """Whether nothing is left and nothing failed."""
        return not self.remaining and not self.failures and not self.undiscovered

    def bad(self) -> dict[str, tuple[str, str]]:
        """Return condition type -> (reason, message) for everything that is not in order."""
        out = {}
        if self.undiscovered:
            stale = ", ".join(f"{gv}: stale GroupVersion discovery: {gv}" for gv in self.undiscovered)
            why = f"unable to retrieve the complete list of server APIs: {stale}"
            out[DISCOVERY] = ("DiscoveryFailed", f"Discovery failed for some groups, {len(self.undiscovered)} failing: {why}")
        if self.failures:
            text = ", ".join(sorted(self.failures))
            out[CONTENT] = ("ContentDeletionFailed", f"Failed to delete all resource types, {len(self.failures)} remaining: {text}")
        if self.remaining:
            parts = sorted(f"{name} has {n} resource instances" for name, n in self.remaining.items())
            out[REMAINING] = ("SomeResourcesRemain", "Some resources are remaining: " + ", ".join(parts))
        if self.finalizers:
            parts = sorted(f"{name} in {n} resource instances" for name, n in self.finalizers.items())
            out[FINALIZERS] = ("SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: " + ", ".join(parts))
        return out


def updated(had: list[Condition], found: Findings, now: str) -> list[Condition] | None:
    """Return the conditions with those of this pass; None if nothing changed. Other conditions are kept."""
    out = [dict(c) for c in had]
    bad, changed = found.bad(), False
    for kind, fine in FINE.items():
        reason, message = bad.get(kind, fine)
        status = "True" if kind in bad else "False"
        old = next((c for c in out if c.get("type") == kind), None)
        if old is None:
            out.append({"type": kind, "status": status, "lastTransitionTime": now, "reason": reason, "message": message})
            changed = True
        elif (old.get("status"), old.get("reason"), old.get("message")) != (status, reason, message):
            if old.get("status") != status:
                old["lastTransitionTime"] = now
            old.update(status=status, reason=reason, message=message)
            changed = True
    return out if changed else None
