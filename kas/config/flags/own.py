"""Flags that kube-apiserver does not have."""

from __future__ import annotations

from kas.config.flags.row import Flag

OWN = (
    Flag("data-dir", "path", "kas-data", "Directory of all data: store, certificates, tokens.", own=True),
    Flag("workers", "int", 0, "Number of worker processes; at most 64, or eight per CPU.", shown="number of cores", own=True),
    Flag("insecure-port", "port", 0, "Plain HTTP port on 127.0.0.1 whose requests are system:masters; pages of other sites are refused; "
         "0 = off, 'auto' = a free one.", own=True),
    Flag("read-only-port", "port", 0, "Plain HTTP port on 127.0.0.1 for rate-limited anonymous GETs; 0 = off, 'auto' = a free one.",
         own=True),
    Flag("api-rate", "float", 10.0, "Requests per second on the read-only port.", own=True),
    Flag("api-burst", "int", 200, "Burst on the read-only port.", own=True),
    Flag("tls-san", "strings", (), "Additional names and addresses in the self-made certificate.", own=True),
    Flag("shutdown-grace", "duration", 20.0, "How long requests in flight may take to finish after SIGTERM and --shutdown-delay-duration.",
         own=True),
    Flag("worker-timeout", "duration", 30.0,
         "How long a worker, the TLS front or the process that follows etcd may be unresponsive before it is killed and replaced; after a "
         "third of that time new connections go to other workers. 0 = never.", own=True),
    Flag("basic-auth-file", "path", "", 'CSV of password,user,uid,"group1,group2" for basic authentication, as in Kubernetes up to 1.18.',
         own=True),
    Flag("enable-swagger-ui", "bool", True, "Serve /swagger-ui.", own=True),
    Flag("log-dir", "path", "", "Directory of the files served under /logs/.", shown="logs below --data-dir", own=True),
    Flag("store-max-size", "quantity", 64 << 30, "Largest size of the store's file.", own=True),
    Flag("unsafe-no-fsync", "bool", False, "Answer writes before they are on disk. Fast; a power cut loses or breaks the store.", own=True),
    Flag("history-window", "duration", 300.0, "How long old revisions can be read and watches can resume from them.", own=True),
    Flag("history-max-size", "quantity", 512 << 20, "Largest size of the history.", own=True),
    Flag("controllers", "strings", ("*",),
         "Controllers that run in the server: * (all), name, -name (without it); 'none' = none.", own=True),
)
