"""Flags of kube-apiserver's section "etcd"."""

from __future__ import annotations

from kas.config.flags.row import Flag, no_effect

JSON, PROTOBUF = MEDIA_TYPES = "application/json", "application/vnd.kubernetes.protobuf"

ETCD = (
    Flag("delete-collection-workers", "int", 16, "Concurrent deletes of a deletecollection; they share commits.",
         upstream="1"),
    Flag("enable-garbage-collector", "bool", True,
         "Let deletes set the finalizers of their propagation policy (orphan, foregroundDeletion); --controllers enables the collector"
         " itself."),
    Flag("encryption-provider-config", "string", "",
         "EncryptionConfiguration file: which resources are encrypted in the store, and with which keys."),
    Flag("encryption-provider-config-automatic-reload", "bool", False, "Reload --encryption-provider-config when it changes."),
    Flag("etcd-cafile", "string", "", "CA that verifies etcd's certificate."),
    Flag("etcd-certfile", "string", "", "Client certificate shown to etcd."),
    Flag("etcd-compaction-interval", "duration", 300.0, "How often etcd is compacted; 0 = never by this server."),
    Flag("etcd-count-metric-poll-period", "duration", 1.0,
         "How often the objects of resources that were written to are counted for metrics; 0 = never.", upstream="1m0s"),
    Flag("etcd-db-metric-poll-interval", "duration", 30.0, "How often the size of the database is requested.",
         no_effect("its only metric is hidden since 1.28; apiserver_storage_size_bytes is measured when it is read")),
    Flag("etcd-healthcheck-timeout", "duration", 2.0, "How long etcd may take to answer before /healthz and /livez fail."),
    Flag("etcd-keyfile", "string", "", "Key of --etcd-certfile."),
    Flag("etcd-prefix", "string", "/registry", "Prefix of every key in etcd."),
    Flag("etcd-readycheck-timeout", "duration", 2.0, "How long etcd may take to answer before /readyz fails."),
    Flag("etcd-servers", "strings", (), "URLs of the etcd servers, for --storage-backend=etcd3; other backends ignore them."),
    Flag("etcd-servers-overrides", "strings", (), "Resources that are kept in other etcd clusters, each as group/resource#url;url."),
    Flag("lease-reuse-duration-seconds", "int", 60,
         "How long an etcd lease is reused for further keys; in LMDB every Event has its own expiry."),
    Flag("storage-backend", "string", "lmdb", "Where objects are kept: lmdb, in --data-dir, or etcd3, the cluster of --etcd-servers.",
         upstream=""),
    Flag("storage-media-type", "string", PROTOBUF, "Media type of built-in objects in etcd: this one, or application/json."),
    Flag("watch-cache", "bool", True, "Serve reads and watches from a cache.",
         no_effect("there is none: reads go to the store's file, which is mapped into memory, and watches to its log", True)),
    Flag("watch-cache-sizes", "strings", (), "Sizes of the caches of single resources.",
         no_effect("there is no watch cache; kube-apiserver, too, only checks whether a size is 0")),
)  # fmt: skip
