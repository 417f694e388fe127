"""The store on an etcd cluster: etcd decides about writes, a replica on the machine's own disk serves reads.

    client      the calls of etcd's API, over gRPC                 leases       leases shared by keys of the same lifetime
    layout      keys, and values as kube-apiserver stores them     compactor    upstream's protocol for compaction
    replica     the LMDB environment with the content of etcd      store        the contract: reads from the replica, writes by Txn
    replicator  follows etcd's watch into the replica              sealing      sealed values, in etcd and in the replica

One replicator per machine writes the replica; every worker reads it. The replica is a cache: its content can be read again,
so it is never synced to disk, and it is discarded when it no longer belongs to the cluster. Needs the extra ``kas[etcd]``.
"""
