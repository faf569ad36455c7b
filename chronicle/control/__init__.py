"""The control protocol: framed messages over Unix sockets between the processes of a node. Begin with `connections`."""
