// A standard EventSource reads a stream until the server ends it for good. Usage: node read_stream.js URL
// It prints a line of JSON for each event of the source, and sends the key $PODIUM_KEY, if there is one.

import { EventSource } from "eventsource";

const key = process.env.PODIUM_KEY;
const withKey = (url, init) => fetch(url, { ...init, headers: { ...init.headers, Authorization: `Bearer ${key}` } });
const say = (line) => console.log(JSON.stringify(line));

const waiting = setInterval(() => {}, 60_000); // a source that waits to connect again does not keep Node.js running
const source = new EventSource(process.argv[2], key ? { fetch: withKey } : {});
source.onopen = () => say({ kind: "open" });
source.onmessage = ({ data, lastEventId }) => say({ kind: "message", data, id: lastEventId });
source.onerror = ({ code }) => {
  const closed = source.readyState === EventSource.CLOSED;
  say({ kind: "error", status: code ?? null, closed });
  if (closed) clearInterval(waiting);
};
