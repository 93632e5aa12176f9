"""A language model on paged K/V: what the runner calls once per step.

`loading.load(folder, options)` picks the member: `lowered` (straight code for the Llama shape) or
`modules` (transformers' own modules over our attention). Both keep worker.model.interface.
"""
