"""Between text and token ids, both ways: nothing here knows the engine, and nothing imports torch.

Read `tokenizer`, then `chat` (template, special tokens in a client's text, boundaries), then
`detokenizer` and `stops` on the way out. `turns` keeps the ids of answers for the next turns,
`seam` joins them to the tokenizer's own; `plain` encodes plain texts and finds their boundaries by
`settled`. The rest serves these: `template` renders, `conversation` normalises messages, `marks`
breaks what spells a special token, `pieces` and `recent` remember what was encoded, `token_bytes`
and `model_configs` read the model's files.
"""
