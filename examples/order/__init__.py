"""An order: Celery tasks as activities, a payment timeout, and a refund when it is cancelled."""
