"use strict";

const byId = (id) => document.getElementById(id);
let info = null;
let rendering = 0; // number of the last request to render: an older answer that comes late is dropped
let streaming = null; // the AbortController of the stream that runs

/** Ask the server. Throws an Error with its words when it refuses. */
async function ask(path, body, signal) {
  let answer;
  try {
    answer = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the page's server does not answer; is it still running?");
  }
  if (!answer.ok) throw new Error((await answer.json()).error);
  return answer;
}

function showError(id, text) {
  byId(id).textContent = text;
  byId(id).hidden = !text;
}

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

function fillSelect(id, rows) {
  byId(id).replaceChildren(...rows.map(([value, text]) => {
    const option = make("option", text);
    option.value = value;
    return option;
  }));
}

const isExample = () => Object.values(info.requests).includes(byId("request").value);

function showExample() {
  const name = byId("protocol").value || "chat";
  byId("request").value = info.requests[name] ?? "";
}

const asked = () => ({
  request: byId("request").value,
  protocol: byId("protocol").value,
  version: byId("version").value,
});

async function render() {
  const number = ++rendering;
  try {
    const found = await (await ask("api/render", asked())).json();
    if (number !== rendering) return;
    showError("request-error", "");
    showPrompt(found);
  } catch (error) {
    if (number !== rendering) return;
    showError("request-error", error.message);
    byId("prompt").classList.add("stale");
    byId("prompt-note").textContent = "of the last request that was right";
  }
}

function showPrompt(found) {
  const prompt = byId("prompt");
  prompt.classList.remove("stale");
  prompt.replaceChildren(...found.pieces.map(([text, special]) => special ? make("mark", text) : text));
  byId("prompt-note").textContent = `${found.protocol}, ${found.version}`;
  byId("settings").textContent = JSON.stringify(found.settings, null, 2);
  const ids = found.ids ?? [];
  byId("ids-note").textContent = found.ids ? `${ids.length}` : "";
  byId("ids").replaceChildren(...ids.map(([id, text, special]) => {
    const box = make("span", String(id), special ? "id special" : "id");
    box.append(make("small", JSON.stringify(text).slice(1, -1)));
    return box;
  }));
}

/** One column for each protocol. */
function prepareAnswers() {
  byId("answers").replaceChildren(...info.protocols.map((name) => {
    const box = make("article", undefined, "answer");
    box.dataset.protocol = name;
    box.append(make("h3", name), make("pre", "", "response"));
    const details = make("details");
    const summary = make("summary", "Events ");
    summary.append(make("span", "0", "note count"));
    details.append(summary, make("pre", "", "events"));
    box.append(details);
    return box;
  }));
}

function showAnswers(line) {
  for (const box of byId("answers").children) {
    const name = box.dataset.protocol;
    const events = line.events?.[name] ?? [];
    if (events.length) {
      const count = box.querySelector(".count");
      count.textContent = String(Number(count.textContent) + events.length);
      box.querySelector(".events").append(...events.map(([event, data]) => `${event ? `${event} ` : ""}${data}\n`));
    }
    const response = line.responses?.[name];
    if (response) box.querySelector(".response").textContent = response;
  }
}

const outputAsked = () => ({
  ...asked(),
  output: byId("output").value,
  chunk_size: Math.trunc(Number(byId("size").value)),
  delay_ms: Math.trunc(Number(byId("pause").value)),
  finish_reason: byId("reason").value,
});

async function parse() {
  halt();
  prepareAnswers();
  showError("output-error", "");
  try {
    showAnswers(await (await ask("api/parse", outputAsked())).json());
    byId("progress").value = 1;
  } catch (error) {
    showError("output-error", error.message);
  }
}

async function stream() {
  halt();
  const mine = streaming = new AbortController();
  byId("halt").disabled = false;
  prepareAnswers();
  showError("output-error", "");
  byId("progress").value = 0;
  try {
    const answer = await ask("api/stream", outputAsked(), mine.signal);
    const length = byId("output").value.length || 1;
    for await (const line of lines(answer.body)) {
      if (line.error) throw new Error(line.error);
      showAnswers(line);
      byId("progress").value = Math.min(1, line.done / length);
    }
    byId("progress").value = 1;
  } catch (error) {
    if (error.name !== "AbortError") showError("output-error", error.message);
  }
  if (streaming === mine) halt();
}

async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) yield JSON.parse(part);
  }
}

function halt() {
  streaming?.abort();
  streaming = null;
  byId("halt").disabled = true;
}

async function start() {
  info = await (await ask("api/info", {})).json();
  fillSelect("protocol", [["", "as it looks"], ...info.protocols.map((name) => [name, name])]);
  fillSelect("version", [["", "of its model"], ...info.versions.map(({ key, model }) => [key, `${key} (${model})`])]);
  fillSelect("example", Object.keys(info.outputs).map((name) => [name, name]));
  byId("no-tokenizer").hidden = info.tokenizer;
  showExample();
  byId("output").value = info.outputs[byId("example").value];
  prepareAnswers();
  let timer = 0;
  byId("request").addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(render, 200);
  });
  byId("protocol").addEventListener("change", () => {
    if (isExample()) showExample();
    render();
  });
  byId("version").addEventListener("change", render);
  byId("reset").addEventListener("click", () => {
    showExample();
    render();
  });
  byId("example").addEventListener("change", () => {
    byId("output").value = info.outputs[byId("example").value];
  });
  byId("parse").addEventListener("click", parse);
  byId("stream").addEventListener("click", stream);
  byId("halt").addEventListener("click", halt);
  await render();
  document.body.dataset.ready = "yes";
}

start().catch((error) => showError("request-error", error.message));
