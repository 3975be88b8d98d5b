// A line of the last hour, without axes: the number and the highest value are next to it.
import { svg } from "./dom.js";

const HOUR = 3600;

/** Points of the last hour by time, drawn as a line. The last point is the mean of the time that has just begun. */
export class Spark {
  constructor(label) {
    this.points = [];
    this.line = svg("polyline", { class: "spark" });
    this.element = svg("svg", { viewBox: `0 0 ${HOUR} 36`, preserveAspectRatio: "none", role: "img", "aria-label": label }, svg("title", {}, label), this.line);
  }

  /** Replaces the points: pairs of a time in seconds and a value, the oldest first. */
  fill(points) {
    this.points = points.map(([time, value]) => ({ time, sum: value, count: 1 }));
  }

  /** Adds a value to the mean of the current `seconds`. */
  add(time, value, seconds) {
    const last = this.points.at(-1);
    const before = this.points.at(-2);
    if (last !== undefined && before !== undefined && last.time - before.time < seconds) {
      last.time = time;
      last.sum += value;
      last.count += 1;
    } else {
      this.points.push({ time, sum: value, count: 1 });
    }
  }

  /** Draws the hour before `now` and returns its highest value. */
  draw(now) {
    this.points = this.points.filter((point) => now - point.time <= HOUR);
    const values = this.points.map((point) => point.sum / point.count);
    const highest = Math.max(0, ...values);
    this.line.setAttribute("points", values.map((value, at) =>
      `${HOUR - (now - this.points[at].time)},${34 - (value / Math.max(1, highest)) * 32}`).join(" "));
    return highest;
  }
}
