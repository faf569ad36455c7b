// A chat of the AI SDK's core, as `useChat` has it, driven by lines of JSON on stdin. Usage: node chat.js API CHAT_ID
// Each command has `do` and `id`; its end is told by {"kind": "done", "id", "error"}. Every change of the chat is told by
// {"kind": "state", ...}. The key $PODIUM_KEY is sent, if there is one.

import { flushCompileCache } from "node:module";
import { createInterface } from "node:readline";
import { AbstractChat, DefaultChatTransport } from "ai";

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
flushCompileCache(); // now, because this process is killed at its end

class State {
  #values = { status: "ready", error: undefined, messages: [] };

  constructor() {
    for (const name of Object.keys(this.#values)) {
      Object.defineProperty(this, name, {
        get: () => this.#values[name],
        set: (value) => this.#change({ [name]: value }),
      });
    }
    this.#change({});
  }

  pushMessage = (message) => this.#change({ messages: [...this.messages, message] });
  popMessage = () => this.#change({ messages: this.messages.slice(0, -1) });
  replaceMessage = (index, message) => this.#change({ messages: this.messages.with(index, this.snapshot(message)) });
  snapshot = (value) => structuredClone(value);

  #change(values) {
    Object.assign(this.#values, values);
    const { status, error, messages } = this.#values;
    say({ kind: "state", status, error: error?.message ?? null, messages });
  }
}

class Chat extends AbstractChat {
  constructor(options) {
    super({ ...options, state: new State() });
  }
}

const [api, chatId] = process.argv.slice(2);
const key = process.env.PODIUM_KEY;
let body = {};
const chat = new Chat({
  id: chatId,
  transport: new DefaultChatTransport({
    api,
    headers: key ? { Authorization: `Bearer ${key}` } : {},
    body: () => body,
    fetch: (url, options) => fetch(url, { ...options, headers: { ...options.headers, Connection: "close" } }),
  }),
  onData: (part) => say({ kind: "data", part }),
  onFinish: ({ isAbort, isError, isDisconnect, finishReason }) =>
    say({ kind: "finish", isAbort, isError, isDisconnect, finishReason: finishReason ?? null }),
});

const commands = {
  send: ({ text, messageId, files }) => chat.sendMessage({ text, messageId, files }),
  regenerate: ({ messageId }) => chat.regenerate({ messageId }),
  resume: () => chat.resumeStream(),
  stop: () => chat.stop(),
  body: ({ value }) => void (body = value),
  messages: ({ value }) => void (chat.messages = value),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, do: name, ...options } = JSON.parse(line);
  Promise.resolve(commands[name](options)).then(
    () => say({ kind: "done", id, error: null }),
    (error) => say({ kind: "done", id, error: String(error) }),
  );
}
