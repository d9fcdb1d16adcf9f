"""Durable workflows with exactly one live owner, for Celery applications."""
