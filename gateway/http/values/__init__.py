"""Routes that generate nothing: scores of pairs, embeddings, and what the tokenizer tells.

asks          one part for each pair or text; usage
rerank        POST /v1/rerank, /v2/rerank, /rerank      documents in order of relevance
score         POST /v1/score, /score                    pairs, one by one
embeddings    POST /v1/embeddings
tokens        POST /tokenize, /detokenize
"""
