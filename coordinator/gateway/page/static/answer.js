// The page of a link: what its holder is asked, and the answer. The token is in the fragment, which is sent to nobody.
// All texts are shown as texts: who asks chooses them.

const token = location.hash.slice(1);
const main = document.getElementById("question");

function add(tag, text, parent = main) {
  const element = document.createElement(tag);
  element.textContent = text;
  parent.append(element);
  return element;
}

async function call(method, body) {
  const answer = await fetch("v1/answer", {
    method,
    cache: "no-store",
    headers: { Authorization: `Bearer ${token}`, ...(body && { "Content-Type": "application/json" }) },
    body: body && JSON.stringify(body),
  });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error?.message ?? `status ${answer.status}`);
  return found;
}

// The values that can be chosen; null if the answer is to be written.
function choices(schema) {
  if (schema?.type === "boolean") return [true, false];
  return Array.isArray(schema?.enum) ? schema.enum : null;
}

function show(question) {
  main.replaceChildren();
  add("h1", question.promise ?? "A decision");
  add("p", question.reason);
  if (question.expires !== null) add("p", `It can be answered until ${new Date(question.expires).toLocaleString()}.`);
  const problem = add("p", "");
  problem.setAttribute("role", "alert");

  async function send(body) {
    for (const button of main.querySelectorAll("button")) button.disabled = true;
    try {
      const { outcome } = await call("POST", body());
      main.replaceChildren();
      add("p", outcome === "rejected" ? "It is rejected." : "Thank you: it is answered.");
    } catch (error) {
      problem.textContent = error.message;
      for (const button of main.querySelectorAll("button")) button.disabled = false;
    }
  }

  const values = choices(question.schema);
  if (values !== null) {
    for (const value of values) {
      add("button", typeof value === "string" ? value : JSON.stringify(value)).onclick = () =>
        send(() => ({ answer: value }));
    }
  } else {
    const isText = question.schema?.type === "string";
    const input = add("textarea", "");
    input.setAttribute("aria-label", isText ? "Answer" : "Answer, as JSON");
    add("button", "Answer").onclick = () =>
      send(() => ({ answer: isText ? input.value : JSON.parse(input.value) }));
    if (!isText) add("pre", JSON.stringify(question.schema, null, 2));
  }
  if (question.kind === "promise") {
    const why = add("input", "");
    why.setAttribute("aria-label", "Why it is rejected");
    why.maxLength = 2000;
    add("button", "Reject").onclick = () => send(() => ({ rejection: why.value }));
  }
}

call("GET").then(show, (error) => {
  main.replaceChildren();
  add("p", error.message);
});
