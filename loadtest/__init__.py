"""Workloads over HTTP against a running fleet, or one that's started for the purpose.

Read in this order: `__main__` -> a member of `workloads` -> `client` and `fleet` -> `report`.
Every command ends with one line, `name: key=number key=number`.
"""
