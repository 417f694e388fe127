"""Admission webhooks: MutatingAdmissionWebhook and ValidatingAdmissionWebhook (upstream ``pkg/admission/plugin/webhook``).

``hooks`` follows the configurations, ``calling`` knows whether a request is one's and asks it, ``review`` is what it is sent and how its
answer is read, ``patching`` does what it wants. The plug-ins are in ``kas/admission/plugins``.
"""
