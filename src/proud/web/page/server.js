// Requests to the server. Changes are sent one after the other, so that they arrive in order.

export class Refused extends Error {}

async function checked(response) {
  if (response.ok) return response;
  let text = `The server answered ${response.status}.`;
  try {
    text = (await response.json()).error ?? text;
  } catch { /* not JSON */ }
  throw new Refused(text);
}

async function request(path, options) {
  try {
    return await checked(await fetch(path, { credentials: "same-origin", ...options }));
  } catch (error) {
    if (error instanceof Refused) throw error;
    throw new Refused("The server does not answer: is `proud review` still running? Labels that were saved are safe.");
  }
}

export const getJson = async (path) => (await request(path)).json();

export async function getRows(query) {
  const bytes = await (await request(`/api/view?${new URLSearchParams(query)}`)).arrayBuffer();
  return new Int32Array(bytes);
}

let last = Promise.resolve();

export function change(path, body) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const sent = last.then(async () => (await request(path, options)).json());
  last = sent.catch(() => {});
  return sent;
}
