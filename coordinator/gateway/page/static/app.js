// The page of `podium up --ui`: a chat with an agent, by `useChat` over the public HTTP interface.
// The agent is in the address (?type=hello&key=alice); the gateway's key comes in its fragment (#key=…), once.

import { createElement as h, createRoot, DefaultChatTransport, useChat, useEffect, useRef, useState } from "./vendor/chat.js";

const fragment = new URLSearchParams(location.hash.slice(1));
if (fragment.has("key")) {
  sessionStorage.setItem("podium-key", fragment.get("key"));
  history.replaceState(null, "", location.pathname + location.search);
}

const headers = () => {
  const key = sessionStorage.getItem("podium-key");
  return key ? { Authorization: `Bearer ${key}` } : {};
};
const api = (path, options = {}) => fetch(path, { ...options, headers: { ...headers(), ...options.headers } });
const problem = async (answer) => (await answer.json().catch(() => null))?.error?.message ?? `HTTP ${answer.status}`;

function App() {
  const asked = new URLSearchParams(location.search);
  const [agent, setAgent] = useState(asked.has("key") ? { type: asked.get("type"), key: asked.get("key") } : null);
  const [start, setStart] = useState(null);
  const [error, setError] = useState(null);

  useEffect(() => {
    if (!agent) return;
    history.replaceState(null, "", `?${new URLSearchParams(agent)}`);
    const path = `/v1/ui/${agent.type}/${encodeURIComponent(agent.key)}`;
    api(path).then(async (answer) => {
      if (answer.ok) setStart((await answer.json()).messages);
      else if (answer.status === 404) setStart([]); // it begins with its first message
      else setError(await problem(answer));
    }, (failure) => setError(String(failure)));
  }, [agent]);

  if (error) return h(KeyForm, { error });
  if (!agent) return h(Agents, { onChoose: setAgent, onError: setError });
  if (!start) return h("p", { className: "note" }, "Loading…");
  return h(Chat, { agent, start });
}

function KeyForm({ error }) {
  const save = (event) => {
    event.preventDefault();
    sessionStorage.setItem("podium-key", new FormData(event.target).get("key"));
    location.reload();
  };
  return h("form", { onSubmit: save, className: "choose" },
    h("p", { role: "alert" }, error),
    h("label", null, "Key ", h("input", { name: "key", type: "password", required: true, autoFocus: true })),
    h("button", null, "Use this key"));
}

function Agents({ onChoose, onError }) {
  const [agents, setAgents] = useState([]);
  useEffect(() => {
    api("/v1/agents?limit=100").then(async (answer) => {
      if (answer.ok) setAgents((await answer.json()).items);
      else if (answer.status !== 503) onError(await problem(answer)); // 503: no agent has run here yet
    }, (failure) => onError(String(failure)));
  }, []);
  const choose = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    onChoose({ type: form.get("type"), key: form.get("key") });
  };
  return h("form", { onSubmit: choose, className: "choose" },
    h("h1", null, "Podium"),
    h("label", null, "Type ", h("input", { name: "type", required: true, placeholder: "hello", autoFocus: true })),
    h("label", null, "Key ", h("input", { name: "key", required: true, placeholder: "alice" })),
    h("button", null, "Talk"),
    h("ul", null, agents.map(({ type, key }) =>
      h("li", { key: `${type}/${key}` },
        h("button", { type: "button", onClick: () => onChoose({ type, key }) }, `${type}/${key}`)))));
}

function Chat({ agent, start }) {
  const [transport] = useState(() => new DefaultChatTransport({ api: `/v1/ui/${agent.type}`, headers }));
  const [editing, setEditing] = useState(null);
  const [text, setText] = useState("");
  const end = useRef(null);
  const { messages, sendMessage, regenerate, stop, resumeStream, status, error, clearError } = useChat({
    id: agent.key,
    transport,
    messages: start,
    resume: true,
    generateId: () => crypto.randomUUID(),
  });
  useEffect(() => {
    end.current?.scrollIntoView({ block: "end" }); // its result, a promise, is no clean-up
  }, [messages]);

  const busy = status === "submitted" || status === "streaming";
  const send = (event) => {
    event.preventDefault();
    if (!text.trim() || busy) return;
    sendMessage({ text, messageId: editing ?? undefined });
    setText("");
    setEditing(null);
  };
  const cancel = async () => {
    const last = messages.at(-1);
    if (last?.role === "assistant") {
      const path = `/v1/agents/${agent.type}/${encodeURIComponent(agent.key)}/messages/${last.id}/cancel`;
      await api(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" });
    }
    stop();
  };
  const edit = (message) => {
    setEditing(message.id);
    setText(message.parts.filter((part) => part.type === "text").map((part) => part.text).join(""));
  };

  return h("div", { className: "chat" },
    h("header", null, h("h1", null, `${agent.type}/${agent.key}`), h("span", { id: "status" }, status)),
    h("ol", { id: "messages" }, messages.map((message) =>
      h("li", { key: message.id, className: message.role },
        message.parts.map((part, at) => h(Part, { key: at, part })),
        message.metadata?.status === "parked" && h("p", { className: "error" }, message.metadata.error?.message),
        message.role === "user" && !busy && h("button", { type: "button", onClick: () => edit(message) }, "Edit")))),
    error && h("p", { role: "alert", className: "error" }, error.message, " ",
      h("button", { type: "button", onClick: () => { clearError(); resumeStream(); } }, "Resume"), " ",
      h("button", { type: "button", onClick: () => regenerate() }, "Try again")),
    h("form", { onSubmit: send },
      h("textarea", {
        value: text,
        rows: 2,
        "aria-label": "Message",
        placeholder: editing ? "The message, changed" : "Message",
        onChange: (event) => setText(event.target.value),
        onKeyDown: (event) => event.key === "Enter" && !event.shiftKey && send(event),
      }),
      busy
        ? h("button", { type: "button", onClick: cancel }, "Cancel")
        : h("button", { disabled: !text.trim() }, editing ? "Change" : "Send"),
      !busy && messages.at(-1)?.role === "assistant" &&
        h("button", { type: "button", onClick: () => regenerate() }, "Again")),
    h("div", { ref: end }));
}

function Part({ part }) {
  switch (part.type) {
    case "text":
      return h("p", null, part.text);
    case "steering-message":
      return h("p", { className: "note" }, "↳ ", part.parts.map(({ text }) => text ?? "").join(""));
    case "file":
      return h(Artifact, { part });
    case "data-turn":
      return h("p", { className: "note" }, `turn ${part.data.turn}`,
        part.data.patch?.length ? h("details", null, h("summary", null, "state"),
          h("pre", null, JSON.stringify(part.data.patch, null, 1))) : null);
    default:
      return null;
  }
}

function Artifact({ part }) {
  const name = part.providerMetadata?.podium?.name ?? part.filename ?? "file";
  const open = async () => {
    const url = URL.createObjectURL(await (await api(part.url)).blob()); // with the key, which a link cannot send
    const link = document.createElement("a");
    Object.assign(link, { href: url, download: name }).click();
    URL.revokeObjectURL(url);
  };
  return h("button", { type: "button", className: "file", onClick: open }, name);
}

createRoot(document.getElementById("app")).render(h(App));
