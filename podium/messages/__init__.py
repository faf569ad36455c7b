"""Messages between turns: the inbox of an agent, and the courier that delivers the outbox."""
