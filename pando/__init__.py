"""What a user types, and later imports: the `pando` command, over HTTP and child processes only.

Read in this order: `command`, `up` -> `keeper` -> `children`, `check` over `machine` <- `probe`.
"""
