"""Which model answers a call, and when: admission, attempts, fallbacks and deadlines. Begin with `call`.

`admission` says who may begin, by class and priority under a limit; `policy` decides after a failure (pure); `call`
carries a call out. No process, socket, file or provider is known here: providers come as functions that open a stream.
"""
