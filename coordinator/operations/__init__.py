"""Operations of clients on the agents of a home: one function an operation, free of HTTP, of terminals and of Ray.

Begin with `coordinator.operations.agents`: `HomeAgents` offers all operations, async, for the gateway and for the local
client. The other modules are synchronous functions over a journal and blobs, which the commands of ``podium`` also
call. Results are the JSON objects of `coordinator.operations.objects`. This room has more files than others because it
has one a subject of the HTTP API.
"""
