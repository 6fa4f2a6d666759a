// The page of `proud serve`: a form for one image, and the API from its own description.

const by = (id) => document.getElementById(id);

function show(list, entries) {
  for (const [name, text] of entries) {
    const term = document.createElement("dt");
    const meaning = document.createElement("dd");
    const code = document.createElement("code");
    code.textContent = name;
    term.append(code);
    meaning.textContent = text;
    list.append(term, meaning);
  }
}

async function classify() {
  const [file] = by("file").files;
  if (!file) return;
  const box = by("answer");
  try {
    const response = await fetch("/predict", { method: "POST", body: file, headers: { "Content-Type": "application/octet-stream" } });
    box.textContent = JSON.stringify(await response.json(), null, 2);
  } catch {
    box.textContent = "The service does not answer: is it still running?";
  }
  box.hidden = false;
}

const api = await (await fetch("/openapi.json")).json();
const { post } = api.paths["/predict"];
const { description, properties } = api.components.schemas.Answer;
by("example").textContent = `curl -H 'Authorization: Bearer TOKEN' --data-binary @image.jpg ${location.origin}/predict`;
by("predict").textContent = `${post.requestBody.description} Answer: JSON; ${description}`;
show(by("fields"), Object.entries(properties).map(([name, about]) => [name, about.description]));
show(by("errors"), Object.entries(post.responses).filter(([code]) => code !== "200").map(([code, about]) => [code, about.description]));
by("file").addEventListener("change", classify);
document.documentElement.dataset.ready = "yes";
