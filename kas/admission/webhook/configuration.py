"""The plug-ins' part of ``--admission-control-config-file``: as whom webhooks are called, and which of them stand in files (upstream
``plugin/webhook/config``)."""

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
    """What the configuration says, {} without one. Raises ConfigurationError."""
    return versioned(section, _KINDS)


def users_of(fields: dict[str, Any]) -> Users | None:
    """The credentials that webhooks are shown; None, nobody's, where none are named. Raises ConfigurationError."""
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
