// A line of the last minutes, without axes: the number stands beside it.
import { svg } from "./dom.js";

const POINTS = 120;

/** Remembers values and draws them. */
export class Spark {
  constructor(label) {
    this.label = label;
    this.values = [];
    this.line = svg("polyline", { class: "spark" });
    this.element = svg("svg", { viewBox: `0 0 ${POINTS - 1} 36`, preserveAspectRatio: "none", role: "img", "aria-label": label }, this.line);
  }

  add(value) {
    this.values.push(value);
    if (this.values.length > POINTS) this.values.shift();
    const most = Math.max(1, ...this.values);
    const first = POINTS - this.values.length;
    this.line.setAttribute("points", this.values.map((one, at) => `${first + at},${34 - (one / most) * 32}`).join(" "));
  }
}
