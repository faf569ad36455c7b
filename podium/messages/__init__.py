"""Messages between turns: admission to an inbox, the inbox itself, and the courier that delivers the outbox."""
