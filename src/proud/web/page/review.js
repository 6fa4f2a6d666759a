// The page of `proud review`: which images are shown, what is selected, and which labels they get.

import { Details, element, image } from "/details.js";
import { Grid } from "/grid.js";
import { change, getJson, getRows } from "/server.js";

const by = (id) => document.getElementById(id);
const ABSTAINS = 1;
const DISAGREES = 2;
const FILTERS = ["order", "site", "verdict", "class", "shown"];

const [session, images] = await Promise.all([getJson("/api/session"), getJson("/api/images")]);
const { classes, sites } = session;
// digits as classes are typed as they are
const keys = classes.every((name) => /^[0-9]$/.test(name)) ? classes : classes.slice(0, 10).map((_, k) => String((k + 1) % 10));
const selected = new Set();
const saving = new Map(); // row → how many changes are on their way
let anchor = 0;

const thumb = (row) => `/thumb/${row}?v=${session.version}`;
const grid = new Grid(by("grid"), by("sheet"), fill);
const details = new Details(by("details"), session, thumb);
const current = () => grid.rows[grid.active];
const say = (text) => { by("status").textContent = text; };

// ---- cells

function fill(cell, row) {
  if (cell.dataset.row !== String(row)) {
    cell.dataset.row = row;
    const name = element("div", "name", element("span", "", classes[images.guess[row]]), element("span", "share", `${images.confidence[row]} %`));
    const marks = images.marks[row];
    const mark = marks & DISAGREES ? "disagree" : marks & ABSTAINS ? "unsure" : "";
    cell.replaceChildren(image(thumb(row), ""), element("span", "check"), element("span", "mark", mark), element("div", "words", name, element("div", "given")));
  }
  const label = images.label[row];
  const given = label < 0 ? (sites.length > 1 ? sites[images.site[row]].name : "") : `${label === images.guess[row] ? "✓" : "→"} ${classes[label]}`;
  cell.querySelector(".given").textContent = given;
  cell.classList.toggle("labeled", label >= 0);
  cell.classList.toggle("corrected", label >= 0 && label !== images.guess[row]);
  cell.classList.toggle("saving", saving.has(row));
  cell.classList.toggle("selected", selected.has(row));
  cell.setAttribute("aria-selected", selected.has(row));
  const state = label < 0 ? "not labeled" : `labeled ${classes[label]}`;
  cell.setAttribute("aria-label", `${sites[images.site[row]].name}, predicted ${classes[images.guess[row]]}, ${images.confidence[row]} percent, ${state}`);
}

// ---- filters and progress

function fillFilters() {
  const add = (id, entries) => by(id).append(...entries.map(([value, text]) => new Option(text, value)));
  add("order", Object.entries(session.orders));
  add("shown", Object.entries(session.shown));
  add("class", classes.map((name, k) => [k, name]));
  add("site", sites.map((site, k) => [k, site.verdict ? `${site.name} (${site.verdict})` : site.name]));
  add("verdict", session.verdicts.map((name) => [name, name]));
  by("verdict").closest("label").hidden = !session.verdicts.length;
  by("site").closest("label").hidden = sites.length < 2;
  by("filters").addEventListener("change", guard(applyFilters));
  by("filters").addEventListener("submit", (event) => event.preventDefault());
}

async function applyFilters() {
  const rows = await getRows(Object.fromEntries(FILTERS.map((id) => [id, by(id).value])));
  selected.clear();
  anchor = 0;
  grid.show(rows);
  by("count").textContent = rows.length === 1 ? "1 image" : `${rows.length.toLocaleString("en")} images`;
  by("empty").hidden = rows.length > 0;
  details.show(current());
}

function showProgress({ labeled, target, undo }) {
  by("undo").disabled = !undo;
  by("progress").replaceChildren(...sites.map((site, k) => {
    const bar = element("progress", "");
    Object.assign(bar, { max: Math.max(1, target[k]), value: Math.min(labeled[k], target[k]) });
    bar.setAttribute("aria-label", `${site.name}: ${labeled[k]} of ${target[k]} labels`);
    const one = element("div", "site-progress", element("b", "", site.name), bar, element("span", "", `${labeled[k]} of ${target[k]}`));
    one.title = site.text;
    return one;
  }));
}

// ---- labels

const targets = () => (selected.size ? [...selected] : current() === undefined ? [] : [current()]);

async function send(path, body, rows, text) {
  rows.forEach((row) => saving.set(row, (saving.get(row) ?? 0) + 1));
  grid.refresh();
  try {
    const answer = await change(path, body);
    for (const [row, label] of answer.changed) images.label[row] = label;
    showProgress(answer);
    by("problem").hidden = true;
    const done = answer.labeled.reduce((a, b) => a + b, 0);
    say(`${text(answer.changed.length)} ${done} labeled.`);
  } finally {
    rows.forEach((row) => (saving.get(row) > 1 ? saving.set(row, saving.get(row) - 1) : saving.delete(row)));
    grid.refresh();
  }
}

function label(value) {
  const rows = targets();
  if (!rows.length) return undefined;
  const several = selected.size > 1;
  selected.clear();
  if (!several && value !== null) go(grid.active + 1);
  const name = value === null ? "without a label" : value === "guess" ? "as predicted" : classes[value];
  return send("/api/labels", { images: rows, label: value }, rows, () => `${rows.length === 1 ? "1 image" : `${rows.length} images`} ${name}.`);
}

const undo = () => send("/api/undo", {}, [], (count) => (count ? `Undone for ${count === 1 ? "1 image" : `${count} images`}.` : "Nothing to undo."));

function fillClasses() {
  const right = element("button", "main", "As predicted ", element("kbd", "", "Enter"));
  right.addEventListener("click", guard(() => label("guess")));
  const none = element("button", "", "No label ", element("kbd", "", "Del"));
  none.addEventListener("click", guard(() => label(null)));
  const buttons = classes.map((name, k) => {
    const button = element("button", "", name);
    if (keys[k] && keys[k] !== name) button.prepend(element("kbd", "", keys[k]));
    button.addEventListener("click", guard(() => label(k)));
    return button;
  });
  by("classes").append(right, ...buttons, none);
}

// ---- moving and selecting

function go(at, extend = false) {
  if (extend) {
    grid.moveTo(at);
    const [from, to] = [Math.min(anchor, grid.active), Math.max(anchor, grid.active)];
    selected.clear();
    for (let k = from; k <= to; k++) selected.add(grid.rows[k]);
  } else {
    grid.moveTo(at);
    anchor = grid.active;
  }
  grid.refresh();
  details.show(current()).catch(report);
}

function toggle(row) {
  if (!selected.delete(row)) selected.add(row);
  say(`${selected.size} selected.`);
  grid.refresh();
}

function click(event) {
  const cell = event.target.closest(".cell");
  if (!cell) return;
  const at = Number(cell.dataset.at);
  if (event.shiftKey) go(at, true);
  else {
    const several = event.ctrlKey || event.metaKey || event.target.classList.contains("check");
    if (!several) selected.clear();
    go(at);
    if (several) toggle(current());
  }
}

const KEYS = {
  ArrowRight: (e) => go(grid.active + 1, e.shiftKey),
  ArrowLeft: (e) => go(grid.active - 1, e.shiftKey),
  ArrowDown: (e) => go(Math.min(grid.active + grid.columns, grid.rows.length - 1), e.shiftKey),
  ArrowUp: (e) => go(grid.active - grid.columns, e.shiftKey),
  PageDown: (e) => go(grid.active + grid.page, e.shiftKey),
  PageUp: (e) => go(grid.active - grid.page, e.shiftKey),
  Home: (e) => go(0, e.shiftKey),
  End: (e) => go(grid.rows.length - 1, e.shiftKey),
  " ": () => toggle(current()),
  Enter: () => label("guess"),
  Delete: () => label(null),
  Backspace: () => label(null),
  Escape: () => { selected.clear(); grid.refresh(); },
  u: undo,
  i: () => details.toggle(current()),
  c: choose,
  f: () => by("order").focus(),
};

function key(event) {
  if (event.altKey) return undefined;
  const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  let act = KEYS[name];
  if (event.ctrlKey || event.metaKey) act = { a: selectAll, z: undo, Home: KEYS.Home, End: KEYS.End }[name];
  else if (keys.includes(name)) act = () => label(keys.indexOf(name));
  if (!act) return undefined;
  event.preventDefault();
  return act(event);
}

function selectAll() {
  grid.rows.forEach((row) => selected.add(row));
  say(`${selected.size} selected.`);
  grid.refresh();
}

// ---- dialogs

function choose() {
  const [box, text, list] = [by("choose"), by("choose-text"), by("choose-list")];
  let place = 0;
  const matching = () => classes.map((name, k) => [name, k]).filter(([name]) => name.toLowerCase().includes(text.value.toLowerCase()));
  const take = (k) => { box.close(); return label(k); };
  const draw = () => {
    list.replaceChildren(...matching().map(([name, k], at) => {
      const option = element("div", "", name);
      option.setAttribute("role", "option");
      option.id = `choice-${at}`;
      option.setAttribute("aria-selected", at === place);
      option.onclick = guard(() => take(k));
      return option;
    }));
    text.setAttribute("aria-activedescendant", `choice-${place}`);
    list.children[place]?.scrollIntoView({ block: "nearest" });
  };
  text.value = "";
  text.oninput = () => { place = 0; draw(); };
  text.onkeydown = guard((event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      place = Math.min(Math.max(place + step, 0), Math.max(0, matching().length - 1));
      draw();
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (matching()[place]) return take(matching()[place][1]);
    }
    return undefined;
  });
  draw();
  box.showModal();
}

async function copyCommand() {
  const text = by("command-text");
  try {
    await navigator.clipboard.writeText(text.textContent);
  } catch { // only secure contexts have a clipboard
    getSelection().selectAllChildren(text);
    document.execCommand("copy");
  }
  by("copy").textContent = "Copied";
}

function fillDialogs() {
  by("table").textContent = session.table;
  by("command-text").textContent = session.command;
  by("note").textContent = session.note;
  by("help-open").addEventListener("click", () => by("help").showModal());
  by("next").addEventListener("click", () => by("command").showModal());
  by("copy").addEventListener("click", copyCommand);
  document.addEventListener("keydown", (event) => {
    if (event.key === "?" && !document.querySelector("dialog[open]")) by("help").showModal();
  });
  for (const dialog of document.querySelectorAll("dialog")) dialog.addEventListener("close", () => by("grid").focus());
}

// ---- errors and start

function report(error) {
  by("problem").textContent = error.message;
  by("problem").hidden = false;
}

function guard(act) {
  return async (event) => {
    try {
      return await act(event);
    } catch (error) {
      return report(error);
    }
  };
}

fillFilters();
fillClasses();
fillDialogs();
showProgress(session);
by("grid").addEventListener("keydown", guard(key));
by("grid").addEventListener("click", guard(click));
by("undo").addEventListener("click", guard(undo));
details.box.hidden = innerWidth <= 820;
await guard(applyFilters)();
by("grid").focus();
document.documentElement.dataset.ready = "yes";
