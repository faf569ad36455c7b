"""OpenAI's two formats, and the many servers that speak them. Begin with `provider`.

`chat_request` and `chat_reader` are chat completions, `responses_request` and `responses_reader` the Responses API: all
four are pure. The library `openai` is imported when a provider is made.
"""
