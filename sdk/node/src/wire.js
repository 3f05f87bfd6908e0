// The lines to the worker. docs/process-agents.md of the repository describes them.
//
// A line that the worker cannot read costs the child its life and every task in it an attempt. So whatever comes from a handler is
// made harmless here: texts are cut and are valid UTF-8, results are JSON and not too large.

export const RESULT_BYTES_MAX = 1 << 20;
export const PROGRESS_CHARS_MAX = 256;
const ERROR_CHARS_MAX = 1_000;
// A part of a run's output in one line: with every character escaped it is still well below the longest line.
const OUTPUT_CHARS_MAX = 1 << 16;

/** A text that the worker can read: a half of a surrogate pair becomes U+FFFD. */
export function text(value, most) {
  const whole = String(value);
  const cut = whole.length <= most ? whole : Array.from(whole.slice(0, 2 * most)).slice(0, most).join("");
  return Buffer.from(cut, "utf8").toString("utf8");
}

/** A word about a run: its key, and its value as JSON. */
export function word(kind, value) {
  return { kind, json: JSON.stringify(value) };
}

export function line(request, { kind, json }) {
  return `{"request":${request},"${kind}":${json}}\n`;
}

/** A part of a run's output, in as many words as it needs; no pair of surrogates is parted. */
export function* output(value) {
  const whole = String(value);
  for (let start = 0; start < whole.length; ) {
    let end = Math.min(start + OUTPUT_CHARS_MAX, whole.length);
    if (end < whole.length && /[\ud800-\udbff]/.test(whole[end - 1])) end -= 1;
    yield word("output", Buffer.from(whole.slice(start, end), "utf8").toString("utf8"));
    start = end;
  }
}

/** What was used: tokens, and US dollars as a number or a text. */
export function spend({ tokens = 0, costUsd = 0 } = {}) {
  if (!Number.isSafeInteger(tokens) || tokens < 0) throw new TypeError(`tokens are a whole number, not ${tokens}`);
  const usd = typeof costUsd === "string" && costUsd.trim() === "" ? NaN : Number(costUsd);
  if (!(usd >= 0 && usd <= 1e9)) throw new TypeError(`costUsd is an amount of US dollars, not ${costUsd}`);
  return { kind: "spend", json: JSON.stringify({ tokens, cost_usd: costUsd }) };
}

export function failure(kind, error, afterMs) {
  return word(kind, { error: text(error, ERROR_CHARS_MAX), after_ms: afterMs });
}

/** The bytes of a value that is bytes. */
export function bytes(value) {
  if (ArrayBuffer.isView(value)) return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  return value instanceof ArrayBuffer || value instanceof SharedArrayBuffer ? Buffer.from(value) : undefined;
}

/** JSON, in one line. Throws what JSON.stringify does, and where it has nothing to say. */
export function encode(value) {
  const json = JSON.stringify(value);
  if (json === undefined) throw new TypeError(`a ${typeof value} has no JSON`);
  return json;
}

/** A success, or why it cannot be one: what cannot be kept will not be smaller the next time. */
export function done(result) {
  const raw = bytes(result);
  let said, size;
  if (raw !== undefined) {
    [said, size] = [word("done_base64", raw.toString("base64")), raw.length];
  } else {
    try {
      said = { kind: "done", json: result === undefined ? "null" : encode(result) };
    } catch (error) {
      return failure("dead", `the result is not JSON: ${error?.message}`);
    }
    size = Buffer.byteLength(said.json);
  }
  if (size <= RESULT_BYTES_MAX) return said;
  return failure("dead", `the result has ${size} bytes; at most ${RESULT_BYTES_MAX} are allowed`);
}
