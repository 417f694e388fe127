"""Admission webhooks: MutatingAdmissionWebhook and ValidatingAdmissionWebhook (upstream ``pkg/admission/plugin/webhook``).

``hooks`` follows the configurations, ``calling`` matches and calls a webhook, ``review`` builds the AdmissionReview and reads the answer,
``patching`` applies its patch. The plug-ins are in ``kas/admission/plugins``.
"""
