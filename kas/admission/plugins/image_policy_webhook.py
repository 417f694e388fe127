"""ImagePolicyWebhook: a service outside decides about images. Upstream: ``plugin/pkg/admission/imagepolicy``.

It is told which one by an admission configuration file, which kas has no flag for; a server that was asked to have its images
judged and would not must not start.
"""

from __future__ import annotations

from typing import Any


class Plugin:
    name = "ImagePolicyWebhook"

    def __init__(self, server: Any) -> None:
        raise ValueError("--enable-admission-plugins: ImagePolicyWebhook needs an admission configuration file, which cannot be given")
