"""The configuration of `celery -A weft_tasks` where no celeryconfig.py is: that of the repository, value for value.

It bears another name, because any application without a configuration takes a module `celeryconfig` for its own.
"""

import os

broker_url = os.environ.get("BROKER_URL", "redis://127.0.0.1:6379/0")
result_backend = os.environ.get("RESULT_BACKEND", broker_url)
# Results of `weft.run_once`; the passes and turns leave none.
result_expires = 3600

# JSON only: a message can name a workflow, but never bring code along.
accept_content = ["json"]
result_accept_content = ["json"]
task_serializer = "json"
result_serializer = "json"

# A silent broker must not hang a worker or a client for ever.
broker_transport_options = {
    "socket_timeout": 10,
    "socket_connect_timeout": 3,
    "socket_keepalive": True,
    "health_check_interval": 5,
}
broker_connection_retry_on_startup = True

# In memory: its entries are intervals, so nothing is lost with it, and no damaged file can keep beat from starting.
beat_scheduler = "celery.beat:Scheduler"

# A turn waits in its engine's queue, where another engine can be given it, and not in a worker's memory.
worker_prefetch_multiplier = 1
# Task events, for Flower.
worker_send_task_events = True

# The store.
weft_database_url = os.environ.get("DATABASE_URL", "sqlite:///weft.sqlite3")
# For probes: the files `alive` and `ready` of an engine.
weft_health_folder = os.environ.get("WEFT_HEALTH_FOLDER")
