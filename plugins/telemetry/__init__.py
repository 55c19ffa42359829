"""Traces for the operator, in OpenTelemetry: sessions, utterances, windows, uploads and deliveries of the webhook.

Off by default. Then nothing of OpenTelemetry is imported, and sessions are not followed at all.
"""
