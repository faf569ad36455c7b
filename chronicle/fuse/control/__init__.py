"""The control protocol between hosts, the zygote and mount servers: `connections` and `messages`."""
