"""The suite as a guest of a Celery application: tasks, queues, beat entries, the engine inside a worker, the CLI."""
