"""Flags of kube-apiserver's section "etcd"."""

from __future__ import annotations

from kas.config.flags.row import Flag, no_effect

_NO_ETCD = no_effect("there is no etcd: objects are kept in a file in --data-dir")

ETCD = (
    Flag("delete-collection-workers", "int", 1, "Deletes of a deletecollection that run at once.",
         no_effect("what a deletecollection found is deleted one after the other", 1)),
    Flag("enable-garbage-collector", "bool", True, "Whether owners' dependents are collected.",
         no_effect("finalizers of propagation are always set; the collector itself is --controllers=-garbage-collector-controller", True)),
    Flag("encryption-provider-config", "string", "", "File that says which resources are encrypted in the store, and with which keys."),
    Flag("encryption-provider-config-automatic-reload", "bool", False, "Read that file again when it changes."),
    Flag("etcd-cafile", "string", "", "CA of etcd's certificate.", _NO_ETCD),
    Flag("etcd-certfile", "string", "", "Client certificate shown to etcd.", _NO_ETCD),
    Flag("etcd-compaction-interval", "duration", 300.0, "How often etcd is compacted.",
         no_effect("--history-window says how long old revisions stay")),
    Flag("etcd-count-metric-poll-period", "duration", 60.0, "How often objects are counted for metrics.",
         no_effect("objects are counted when /metrics is read")),
    Flag("etcd-db-metric-poll-interval", "duration", 30.0, "How often the size of the database is asked for.",
         no_effect("the size is looked up when /metrics is read")),
    Flag("etcd-healthcheck-timeout", "duration", 2.0, "How long etcd may take to answer /healthz.", _NO_ETCD),
    Flag("etcd-keyfile", "string", "", "Key of --etcd-certfile.", _NO_ETCD),
    Flag("etcd-prefix", "string", "/registry", "Prefix of every key.", no_effect("nobody but kas reads the store's file", "/registry")),
    Flag("etcd-readycheck-timeout", "duration", 2.0, "How long etcd may take to answer /readyz.", _NO_ETCD),
    Flag("etcd-servers", "strings", (), "Addresses of etcd.", _NO_ETCD),
    Flag("etcd-servers-overrides", "strings", (), "Other addresses of etcd for single resources.", _NO_ETCD),
    Flag("lease-reuse-duration-seconds", "int", 60, "How long a lease of etcd takes further keys.",
         no_effect("every Event has its own time to live")),
    Flag("storage-backend", "string", "lmdb", "Storage engine: lmdb.", upstream=""),
    Flag("storage-media-type", "string", "application/json", "Media type objects are stored in.",
         no_effect("objects are stored as JSON, with their protobuf form where it was asked for", "application/json"),
         upstream="application/vnd.kubernetes.protobuf"),
    Flag("watch-cache", "bool", True, "Whether reads and watches go through a cache.",
         no_effect("reads go to the store, which is in memory, and watches to its log", True)),
    Flag("watch-cache-sizes", "strings", (), "Sizes of the caches of single resources.",
         no_effect("there is no watch cache; --history-max-size bounds what watches resume from")),
)  # fmt: skip
