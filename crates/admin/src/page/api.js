// Requests to the server. The cookie of the sign-in goes with each by itself.

/** An answer that is not 2xx. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.error ?? `status ${status}`);
    this.status = status;
    this.hint = problem.hint ?? "";
  }
}

export async function ask(path, { method = "GET", body } = {}) {
  const options = { method, credentials: "same-origin", cache: "no-store" };
  if (body !== undefined) {
    options.headers = { "content-type": "application/json" };
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Refused(0, { error: "the server does not answer", hint: "is it running, and the tunnel open?" });
  }
  const value = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, value);
  return value;
}

/** A path with a query; empty values are left out. */
export function query(path, values) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined && value !== "") parameters.set(name, value);
  }
  return `${path}?${parameters}`;
}
