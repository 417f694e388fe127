"""What kas shares with kube-apiserver of an etcd: the form of keys and values. Imports no more than the codecs."""
