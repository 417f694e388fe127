"""Encryption at rest: what stands between an object and the store's file, byte for byte as kube-apiserver does it.

``configuration`` reads and checks the EncryptionConfiguration, ``ciphers`` and ``kms`` are the providers, ``providers`` makes the list of
them that a resource has, ``resources`` finds it by an object's key, ``reload`` puts a changed file in the place of the one before.
Upstream: ``apiserver/pkg/server/options/encryptionconfig``, ``apiserver/pkg/storage/value``.
"""
