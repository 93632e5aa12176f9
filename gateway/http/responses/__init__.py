"""POST /v1/responses, stateless: read as a chat (`request`), told as items (`answer`)."""
