"""The demo: an event log is replayed against three engines while one is killed, one stopped and one frozen.

`make demo`, or `python -m examples.eventlog.demo` in the environment of the project.
"""
