"""Metrics of the fleet: what processes count, how it gets into the store, and Prometheus over what the store has.

`collector.WeftCollector` is for a registry of prometheus_client, in any process of yours. The rest needs no such
library: every worker counts.
"""
