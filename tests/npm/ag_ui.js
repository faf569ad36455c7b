// An `HttpAgent` of AG-UI, driven by lines of JSON on stdin, like chat.js. Usage: node ag_ui.js PACKAGE URL THREAD_ID
// PACKAGE is @ag-ui/client, or @ag-ui/client-0 for the generation before 1.0.

import { flushCompileCache } from "node:module";
import { createInterface } from "node:readline";

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const [name, url, threadId] = process.argv.slice(2);
const { HttpAgent } = await import(name);
flushCompileCache(); // now, because this process is killed at its end
const key = process.env.PODIUM_KEY;
const agent = new HttpAgent({ url, threadId, headers: key ? { Authorization: `Bearer ${key}` } : {} });

console.error = (...what) => say({ kind: "log", level: "error", what: what.map(String) });
console.warn = (...what) => say({ kind: "log", level: "warn", what: what.map(String) });

process.on("unhandledRejection", (error) => say({ kind: "unhandled", error: String(error) })); // the client's own

let parentRunId;
agent.use((input, next) => next.run(parentRunId ? { ...input, parentRunId } : input));
agent.subscribe({
  onEvent: ({ event }) => say({ kind: "event", event }),
  onMessagesChanged: ({ messages, state }) => say({ kind: "state", messages, state }),
  onStateChanged: ({ messages, state }) => say({ kind: "state", messages, state }),
});

say({ kind: "state", messages: agent.messages, state: agent.state });

const commands = {
  send: async ({ runId, message, parent, ...more }) => {
    parentRunId = parent;
    if (message) agent.addMessage({ role: "user", ...message });
    const { result } = await agent.runAgent({ runId, ...more });
    return { result: result ?? null, messages: agent.messages, state: agent.state };
  },
  messages: ({ value }) => agent.setMessages(value),
  state: ({ value }) => agent.setState(value),
  stop: () => agent.abortRun(),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, do: command, ...options } = JSON.parse(line);
  Promise.resolve()
    .then(() => commands[command](options))
    .then(
      (value) => say({ kind: "done", id, error: null, value: value ?? null }),
      (error) => say({ kind: "done", id, error: String(error) }),
    );
}
