// Numbers and times in words.

const WHOLE = new Intl.NumberFormat("en");

export const number = (value) => WHOLE.format(value);

function scaled(value, step, units) {
  let unit = 0;
  while (value >= step && unit < units.length - 1) { value /= step; unit += 1; }
  const digits = unit === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[unit]}`;
}

export const bits = (value) => scaled(value, 1000, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"]);
export const packets = (value) => `${scaled(value, 1000, ["", "k", "M"]).trim()} packets/s`;
export const bytes = (value) => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);

/** Use of a resource, with its limit if there is one. */
export const usage = ({ used, most }, show) => (most === undefined ? show(used) : `${show(used)} of ${show(most)}`);

export function duration(seconds) {
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = units.findIndex(([size]) => seconds >= size);
  if (first < 0) return "0 s";
  return units.slice(first, first + 2)
    .map(([size, name], at) => [Math.floor((at === 0 ? seconds : seconds % units[first][0]) / size), name])
    .filter(([count]) => count > 0).map(([count, name]) => `${count} ${name}`).join(" ");
}

export const ago = (seconds) => (seconds === 0 ? "just now" : `${duration(seconds)} ago`);
export const clock = (unix) => new Date(unix * 1000).toLocaleString();

// The name that can be revoked: of a client with an access token not that of the key.
export const user = (session) => (session.by_token ? session.account : session.user) || "(open relay)";
