"""The store on an etcd cluster: etcd decides, a replica on the machine's own disk answers.

    client      the calls of etcd's API, over gRPC                 leases       leases shared by the keys of one lifetime
    layout      keys, and values as kube-apiserver stores them     compactor    upstream's protocol for forgetting history
    replica     the LMDB environment that holds what etcd holds    store        the contract: reads from the replica, writes by Txn
    replicator  follows etcd's watch into the replica              sealing      sealed values, in etcd and in the replica

One replicator per machine writes the replica; every worker reads it. The replica is a cache: what is in it can be made again, so it is
never synced to disk, and thrown away when it does not belong to the cluster any more. Needs the extra ``kas[etcd]``.
"""
