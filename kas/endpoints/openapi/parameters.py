"""Query parameters that many operations share: JSON type and description, in our own words."""

from __future__ import annotations

QUERY: dict[str, tuple[str, str]] = {
    "allowWatchBookmarks": ("boolean", "Ask for BOOKMARK events in a watch; the server decides how often they come."),
    "continue": ("string", "Token of the previous part of a list; the other parameters must stay the same."),
    "dryRun": ("string", "With the value All, everything is checked and nothing is stored."),
    "fieldManager": ("string", "Name of the program or person that makes the change; needed for apply patches."),
    "fieldSelector": ("string", "Only objects whose fields match."),
    "fieldValidation": ("string", "What to do about unknown or duplicate fields: Ignore, Warn (the default) or Strict."),
    "force": ("boolean", "Take over fields of other managers; only for apply patches."),
    "gracePeriodSeconds": ("integer", "Seconds the object has to end; 0 deletes at once."),
    "ignoreStoreReadErrorWithClusterBreakingPotential": ("boolean", "Delete an object that can no longer be read from storage."),
    "labelSelector": ("string", "Only objects whose labels match."),
    "limit": ("integer", "The most objects to list at once; a longer list carries a continue token."),
    "orphanDependents": ("boolean", "Deprecated: use propagationPolicy."),
    "pretty": ("string", "With the value true, the answer is indented."),
    "propagationPolicy": ("string", "What happens to dependents: Orphan, Background or Foreground."),
    "resourceVersion": ("string", "The state of the store the answer may not be older than, or must be."),
    "resourceVersionMatch": ("string", "How resourceVersion is meant: NotOlderThan or Exact."),
    "sendInitialEvents": ("boolean", "Begin a watch with an event for every existing object, then a bookmark."),
    "shardSelector": ("string", "Only objects of a part of the hash range; counts with the feature gate ShardedListAndWatch alone."),
    "timeoutSeconds": ("integer", "Seconds after which a list or watch ends."),
    "watch": ("boolean", "Send changes as they happen instead of a list."),
}
