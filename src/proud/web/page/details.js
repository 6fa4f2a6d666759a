// Why an image got its class: the nearest prototypes, and the labeled images that look most alike.

import { getJson } from "/server.js";

const SMALL = 64;

export function element(tag, className, ...content) {
  const made = document.createElement(tag);
  made.className = className;
  made.append(...content); // names are text, never markup
  return made;
}

export function image(path, text) {
  const made = element("img", "");
  made.decoding = "async";
  made.alt = text;
  made.addEventListener("load", () => made.classList.toggle("small", made.naturalWidth <= SMALL));
  made.src = path;
  return made;
}

export class Details {
  constructor(box, session, thumb) {
    Object.assign(this, { box, session, thumb, wanted: -1 });
  }

  get open() {
    return !this.box.hidden;
  }

  toggle(row) {
    this.box.hidden = this.open;
    this.wanted = -1;
    if (this.open) this.show(row);
  }

  async show(row) {
    if (!this.open || row === undefined || row === this.wanted) return;
    this.wanted = row;
    clearTimeout(this.timer);
    await new Promise((done) => { this.timer = setTimeout(done, 80); }); // not for images that are only passed
    const found = await getJson(`/api/image/${row}`);
    if (row === this.wanted) this.fill(row, found);
  }

  fill(row, found) {
    const { classes, sites, version } = this.session;
    const percent = `${(100 * found.confidence).toFixed(0)} %`;
    const large = image(`/picture/${row}?v=${version}`, "");
    large.classList.add("large");
    const close = element("button", "close", "✕");
    close.setAttribute("aria-label", "Close");
    close.addEventListener("click", () => { this.box.hidden = true; });
    const facts = [
      found.abstain ? "The model abstains: its validation images are too few, or this confidence is too low, to keep errors rare." : "",
      found.prototype !== null && found.prototype !== classes[found.guess] ? `By the nearest prototype it would be ${found.prototype}.` : "",
      found.suggested ? "Its label would help most: suggested by label-next." : "",
      found.copies ? `It has ${found.copies} ${found.copies === 1 ? "copy" : "copies"}: one label for all.` : "",
    ].filter(Boolean);
    this.box.dataset.row = row;
    this.box.replaceChildren(
      close,
      large,
      element("h2", "", `${classes[found.guess]}, ${percent}`),
      element("p", "path", found.path.startsWith(`${sites[found.site].name}/`) ? found.path : `${sites[found.site].name}: ${found.path}`),
      ...facts.map((text) => element("p", "", text)),
      ...this.prototypes(found.prototypes),
      ...this.alike(found.alike),
    );
  }

  prototypes(near) {
    if (!near.length) return [];
    const { classes } = this.session;
    const parts = near.flatMap((one) => {
      const head = element("p", "near", element("b", "", classes[one.class]), element("span", "dim", `distance ${one.distance.toFixed(2)}`));
      const row = element("div", "row", ...one.images.map((at) => image(this.thumb(at), `typical of ${classes[one.class]}`)));
      return one.images.length ? [head, row] : [head];
    });
    return [element("h3", "", "Nearest prototypes, and labeled images next to them"), ...parts];
  }

  alike(found) {
    if (!found.length) return [];
    const { classes } = this.session;
    const figures = found.map((one) => {
      const text = `${classes[one.class]} ${one.cosine.toFixed(2)}`;
      return element("figure", "", image(this.thumb(one.image), `labeled ${classes[one.class]}`), element("figcaption", "", text));
    });
    return [element("h3", "", "Labeled images that look most alike (cosine)"), element("div", "row", ...figures)];
  }
}
