"""Flags of kube-apiserver's section "etcd"."""

from __future__ import annotations

from kas.config.flags.row import Flag, no_effect

JSON, PROTOBUF = MEDIA_TYPES = "application/json", "application/vnd.kubernetes.protobuf"

ETCD = (
    Flag("delete-collection-workers", "int", 16, "Deletes of a deletecollection that are under way at once; they share commits.",
         upstream="1"),
    Flag("enable-garbage-collector", "bool", True,
         "Whether deletes set the finalizers of their propagation (orphan, foregroundDeletion); the collector itself is that of"
         " --controllers."),
    Flag("encryption-provider-config", "string", "", "File that says which resources are encrypted in the store, and with which keys."),
    Flag("encryption-provider-config-automatic-reload", "bool", False, "Read that file again when it changes."),
    Flag("etcd-cafile", "string", "", "CA of etcd's certificate."),
    Flag("etcd-certfile", "string", "", "Client certificate shown to etcd."),
    Flag("etcd-compaction-interval", "duration", 300.0, "How often etcd is compacted; 0: by others only."),
    Flag("etcd-count-metric-poll-period", "duration", 1.0,
         "How often objects are counted for metrics, those of resources that were written to; 0: never.", upstream="1m0s"),
    Flag("etcd-db-metric-poll-interval", "duration", 30.0, "How often the size of the database is asked for.",
         no_effect("of the one metric that it is about, hidden since 1.28: apiserver_storage_size_bytes is as it is when it is read")),
    Flag("etcd-healthcheck-timeout", "duration", 2.0, "How long etcd may take until /healthz and /livez say that it does not answer."),
    Flag("etcd-keyfile", "string", "", "Key of --etcd-certfile."),
    Flag("etcd-prefix", "string", "/registry", "Prefix of every key in etcd."),
    Flag("etcd-readycheck-timeout", "duration", 2.0, "How long etcd may take until /readyz says that it does not answer."),
    Flag("etcd-servers", "strings", (), "URLs of etcd's servers, for --storage-backend=etcd3; with another backend they are not asked."),
    Flag("etcd-servers-overrides", "strings", (), "Resources that are kept in other clusters of etcd: group/resource#url;url for each."),
    Flag("lease-reuse-duration-seconds", "int", 60, "How long a lease of etcd takes further keys; in a file every Event has its own time."),
    Flag("storage-backend", "string", "lmdb", "Where objects are kept: lmdb, in --data-dir, or etcd3, the cluster of --etcd-servers.",
         upstream=""),
    Flag("storage-media-type", "string", PROTOBUF, "Form in which built-in objects are written to etcd: that, or application/json."),
    Flag("watch-cache", "bool", True, "Whether reads and watches go through a cache.",
         no_effect("there is none: reads go to the store's file, which is mapped into memory, and watches to its log", True)),
    Flag("watch-cache-sizes", "strings", (), "Sizes of the caches of single resources.",
         no_effect("there is no watch cache; kube-apiserver looks only at whether a size is 0, too")),
)  # fmt: skip
