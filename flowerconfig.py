"""The configuration of `celery -A weft_tasks flower`, read from the working directory. The command line goes first."""

# What a task was asked and what became of it come first; its id, which opens the page of the task, is at the end.
tasks_columns = "name,args,kwargs,result,state,received,runtime,worker,uuid"
# Its pages answer whoever reaches them. For others than this machine: basic_auth, and a proxy in front.
address = "127.0.0.1"
