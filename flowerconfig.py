"""The configuration of `celery -A weft_tasks flower`, read from the working directory. The command line goes first."""

# What a task was asked and what became of it, instead of its id.
tasks_columns = "name,kwargs,result,state,received,runtime,worker"
# Its pages answer whoever reaches them. For others than this machine: basic_auth, and a proxy in front.
address = "127.0.0.1"
