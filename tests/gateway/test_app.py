"""The HTTP surface as the official client sees it."""

from __future__ import annotations

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}


async def test_a_chat_streams_in_the_official_client(start_worker, serve):
    worker = await start_worker()
    live = await serve(worker)
    await live.until_linked("w0")

    stream = await live.openai.chat.completions.create(
        **CHAT, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]

    deltas = [chunk.choices[0].delta for chunk in chunks[:-1]]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == "Hello big world"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens == 3
    live.assert_nothing_is_left()
