"""The plug-ins' sections of ``--admission-control-config-file``: credentials for webhooks, and the directory of webhooks in files
(upstream ``plugin/webhook/config``)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from kas.admission.configuration import DIRECTORY, Section, versioned
from kas.meta.field import invalid
from kas.types.configfile import STRING, ConfigurationError, Kinds, Struct, check

if TYPE_CHECKING:
    from kas.client.kubeconfig import Users

_WEBHOOK = Struct("WebhookAdmission", {"kubeConfigFile": STRING, DIRECTORY: STRING})
_KINDS: Kinds = {
    ("apiserver.config.k8s.io/v1", "WebhookAdmissionConfiguration"): _WEBHOOK,
}


def fields_of(section: Section | None) -> dict[str, Any]:
    """Return the fields of the configuration, {} without one. Raises ConfigurationError."""
    return versioned(section, _KINDS)


def users_of(fields: dict[str, Any]) -> Users | None:
    """Return the credentials for webhooks; None if none are configured. Raises ConfigurationError."""
    path = fields.get("kubeConfigFile") or ""
    if not path:
        return None
    from kas.client.kubeconfig import KubeconfigError, load_users  # few servers have such a file

    if not os.path.isabs(path):
        check([invalid("kubeConfigFile", path, "must be an absolute file path")])
    try:
        return load_users(path)
    except KubeconfigError as e:
        raise ConfigurationError(str(e)) from None
