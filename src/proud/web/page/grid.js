// A grid of any number of images of which only the visible cells, and a screen above and below, exist.

const GAP = 12;
const WORDS = 44;

export class Grid {
  // `fill(cell, row)` draws an image into a cell that may have shown another one
  constructor(box, sheet, fill) {
    Object.assign(this, { box, sheet, fill, rows: new Int32Array(), active: 0, cells: new Map(), spare: [] });
    box.addEventListener("scroll", () => this.soon(), { passive: true });
    new ResizeObserver(() => this.layout()).observe(box);
  }

  show(rows) {
    this.rows = rows;
    this.active = 0;
    this.box.scrollTop = 0;
    this.layout();
  }

  layout() {
    const width = this.sheet.clientWidth;
    const wanted = width < 560 ? 104 : 150;
    this.columns = Math.max(2, Math.floor((width + GAP) / (wanted + GAP)));
    this.side = (width - GAP * (this.columns - 1)) / this.columns;
    this.step = this.side + WORDS + GAP;
    const lines = Math.ceil(this.rows.length / this.columns);
    this.sheet.style.height = `${Math.max(0, lines * this.step - GAP)}px`;
    for (const at of [...this.cells.keys()]) this.drop(at);
    this.draw();
  }

  soon() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.draw();
    });
  }

  draw() {
    const height = this.box.clientHeight;
    const top = this.box.scrollTop;
    const first = Math.max(0, Math.floor((top - height) / this.step)) * this.columns;
    const last = Math.min(this.rows.length, Math.ceil((top + 2 * height) / this.step) * this.columns);
    for (const at of [...this.cells.keys()]) if (at < first || at >= last) this.drop(at);
    // the visible ones first, so that their images are requested first
    const seen = Math.max(first, Math.floor(top / this.step) * this.columns);
    for (let at = seen; at < last; at++) this.place(at);
    for (let at = first; at < seen; at++) this.place(at);
    this.point();
  }

  place(at) {
    if (this.cells.has(at)) return;
    const cell = this.spare.pop() ?? this.make();
    const line = Math.floor(at / this.columns);
    cell.style.width = `${this.side}px`;
    cell.style.height = `${this.side + WORDS}px`;
    cell.style.transform = `translate(${(at % this.columns) * (this.side + GAP)}px, ${line * this.step}px)`;
    cell.id = `cell-${at}`;
    cell.dataset.at = at;
    cell.setAttribute("aria-posinset", at + 1);
    cell.setAttribute("aria-setsize", this.rows.length);
    this.cells.set(at, cell);
    this.fill(cell, this.rows[at]);
    if (!cell.isConnected) this.sheet.append(cell);
  }

  make() {
    const cell = document.createElement("div");
    cell.className = "cell";
    cell.setAttribute("role", "option");
    return cell;
  }

  drop(at) {
    const cell = this.cells.get(at);
    this.cells.delete(at);
    cell.remove();
    if (this.spare.length < 200) this.spare.push(cell);
  }

  refresh() {
    for (const [at, cell] of this.cells) this.fill(cell, this.rows[at]);
  }

  point() {
    for (const [at, cell] of this.cells) cell.classList.toggle("active", at === this.active);
    if (this.cells.has(this.active)) this.box.setAttribute("aria-activedescendant", `cell-${this.active}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  moveTo(at) {
    if (!this.rows.length) return;
    this.active = Math.min(Math.max(at, 0), this.rows.length - 1);
    const top = Math.floor(this.active / this.columns) * this.step;
    const bottom = top + this.step + GAP;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (bottom > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = bottom - this.box.clientHeight;
    this.draw();
  }

  get page() {
    return Math.max(1, Math.floor(this.box.clientHeight / this.step)) * this.columns;
  }
}
