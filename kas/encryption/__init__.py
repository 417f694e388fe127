"""Encryption at rest: seals the values of objects before they are stored, byte for byte as kube-apiserver does.

``configuration`` reads and validates the EncryptionConfiguration, ``ciphers`` and ``kms`` are the providers, ``providers``
builds the list of providers for each resource, ``resources`` finds the resource of an object's key, ``atrest`` is what a
worker uses: it also replaces a changed configuration. Upstream: ``apiserver/pkg/server/options/encryptionconfig``,
``apiserver/pkg/storage/value``.
"""
