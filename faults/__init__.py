"""The fault bench: real processes, a workload, a ledger outside the product, faults from a seed or by name, a verdict.

`app` and `client` are what runs in the processes, `ledger` what they leave outside the product; `world` has the
processes and servers, `proxy` the network between them; `kinds` are the faults, `schedule` draws some by a seed,
`cases` names each with what is expected of it; `watcher` looks on, `checks` judge, `report` tells.
"""
