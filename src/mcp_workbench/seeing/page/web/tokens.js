/* Tokens: what the definitions of tools would cost an agent, and what the face shows instead. */

import { el, replace, tile } from "./dom.js";
import { count, plural, since } from "./format.js";
import { bars, inlineBar } from "./plots.js";
import { get, now, on } from "./store.js";

export function tokensView() {
  const body = el("div");
  const root = el("section", {}, el("h1", {}, "Tokens"), body);
  let loadedFor = 0;

  async function load() {
    try {
      replace(body, draw(await get("api/tokens")));
    } catch (error) {
      replace(body, el("p", { class: "bad" }, error.message));
    }
  }

  on("state", () => {
    if (root.hidden || Date.now() - loadedFor < 15_000) return;
    loadedFor = Date.now();
    load();
  });
  return { root, shown: load };
}

function draw({ face, saved, perToolbox = [], over = [], since: from }) {
  const sum = (member) => perToolbox.reduce((total, each) => (typeof each[member] === "number" ? (total ?? 0) + each[member] : total), null);
  const full = sum("full"), shown = sum("shown");
  const most = Math.max(1, ...perToolbox.map((each) => each.full ?? 0));
  return [
    el("div", { class: "glance" },
      tile(count(saved), "tokens saved", since(from), "ok"),
      tile(count(full), "in all definitions", "a flat list, in every conversation"),
      tile(count(shown), `shown by the face ${face}`, "if every toolbox were opened")),
    bars("Saved over time", over, { from: Math.min(over[0]?.at ?? 0, now() - 600), to: now(), series: ["saved"], written: ([n]) => plural(n, "token"), describe: `${plural(saved ?? 0, "token")} ${since(from)}` }),
    el("h2", {}, "Toolboxes"),
    el("p", { class: "legend soft" }, el("i", { class: "key full" }), "all definitions, as a flat list ", el("i", { class: "key" }), "what is shown when it is opened"),
    perToolbox.length === 0 && el("p", { class: "soft" }, "No toolbox is listed yet."),
    el("ul", { class: "toolboxes" }, [...perToolbox].sort((a, b) => (b.full ?? 0) - (a.full ?? 0)).map((each) => el("li", {},
      el("b", {}, each.name),
      el("div", {}, bar(each.full, most, "full"), bar(each.shown, most, "bar")),
      el("span", { class: "figure" }, count(each.saved), el("small", {}, " saved"))))),
    el("p", { class: "soft" }, "A token is counted as four bytes of the definitions as an agent reads them."),
  ];
}

const bar = (value, most, kind) => el("div", { class: "token-bar" }, inlineBar([{ share: value ?? 0, kind }], most), el("span", { class: "figure" }, count(value)));
