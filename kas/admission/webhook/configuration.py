"""The plug-ins' part of ``--admission-control-config-file``: as whom webhooks are called (upstream ``plugin/webhook/config``)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kas.admission.configuration import Section, versioned
from kas.meta.field import invalid
from kas.types.configfile import STRING, ConfigurationError, Kinds, Struct, check

if TYPE_CHECKING:
    from kas.client.kubeconfig import Users

_WEBHOOK = Struct("WebhookAdmission", {"kubeConfigFile": STRING})
_KINDS: Kinds = {
    ("apiserver.config.k8s.io/v1", "WebhookAdmissionConfiguration"): _WEBHOOK,
    ("apiserver.config.k8s.io/v1alpha1", "WebhookAdmission"): _WEBHOOK,
}


def users_of(section: Section | None) -> Users | None:
    """The credentials that webhooks are shown; None, nobody's, without a configuration. Raises ConfigurationError."""
    if section is None:
        return None
    from kas.client.kubeconfig import KubeconfigError, load_users  # few servers have such a file

    path = versioned(section, _KINDS).get("kubeConfigFile") or ""
    if not os.path.isabs(path):
        check([invalid("kubeConfigFile", path, "must be an absolute file path")])
    try:
        return load_users(path)
    except KubeconfigError as e:
        raise ConfigurationError(str(e)) from None
