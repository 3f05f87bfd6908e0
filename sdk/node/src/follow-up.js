// Follow-ups, checked before they are said: what the worker cannot read would cost the child its life.

import { Dead } from "./errors.js";
import { bytes, encode } from "./wire.js";

const COUNT_MAX = 256;
const BYTES_MAX = 4 << 20;
const PAYLOAD_BYTES_MAX = 1 << 20;
const TEXT_BYTES_MAX = 255;
const TEN_YEARS_MS = 315_576_000_000;
const PRIORITIES = ["urgent", "high", "normal", "low"];
const NAME = /^[A-Za-z0-9_.-]{1,64}$/;
const ID = /^[A-Za-z0-9_-]{1,64}$/;

/** Each option: its name in the protocol, and its check. */
const OPTIONS = {
  id: ["id", (value) => name("id", value, ID)],
  queue: ["queue", (value) => name("queue", value, NAME)],
  priority: ["priority", priority],
  tenant: ["tenant", (value) => limited("tenant", value, 0)],
  orderKey: ["order_key", (value) => limited("orderKey", value, 1)],
  key: ["key", (value) => limited("key", value, 1)],
  delayMs: ["delay_ms", (value) => number("delayMs", value, 0, TEN_YEARS_MS)],
  timeoutMs: ["timeout_ms", (value) => number("timeoutMs", value, 0, TEN_YEARS_MS)],
  maxAttempts: ["max_attempts", (value) => number("maxAttempts", value, 1, 65_535)],
};

/** What one run hands in. */
export class Outbox {
  #count = 0;
  #bytes = 0;

  /** The value of `submit`, as JSON. */
  add(agent, payload, options) {
    const said = { agent: name("agent", agent, NAME) };
    for (const [option, value] of Object.entries(options)) {
      if (value === undefined) continue;
      if (!Object.hasOwn(OPTIONS, option)) throw invalid(`there is no option ${option}`);
      const [key, check] = OPTIONS[option];
      said[key] = check(value);
    }
    const { how, json, size } = encoded(payload);
    this.#count += 1;
    this.#bytes += size;
    if (this.#count > COUNT_MAX || this.#bytes > BYTES_MAX) {
      throw invalid("a run has at most 256 of them, with 4 MiB of payloads");
    }
    // The payload is JSON already.
    return `${JSON.stringify(said).slice(0, -1)},"${how}":${json}}`;
  }
}

function encoded(payload) {
  const raw = payload === undefined ? Buffer.alloc(0) : bytes(payload);
  let how, json, size;
  if (raw !== undefined) {
    [how, json, size] = ["payload_base64", JSON.stringify(raw.toString("base64")), raw.length];
  } else {
    try {
      [how, json] = ["payload", encode(payload)];
    } catch (error) {
      throw invalid(`its payload is not JSON: ${error?.message}`, error);
    }
    size = Buffer.byteLength(json);
  }
  if (size > PAYLOAD_BYTES_MAX) {
    throw invalid(`its payload has ${size} bytes; at most ${PAYLOAD_BYTES_MAX} are allowed`);
  }
  return { how, json, size };
}

function name(what, value, form) {
  if (typeof value === "string" && form.test(value)) return value;
  const letters = form === ID ? "A-Z a-z 0-9 _ -" : "A-Z a-z 0-9 _ . -";
  throw invalid(`its ${what} ${show(value)} is not 1 to 64 characters of ${letters}`);
}

function priority(value) {
  if (PRIORITIES.includes(value)) return value;
  throw invalid(`its priority is ${show(value)}, which is none of ${PRIORITIES.join(", ")}`);
}

function limited(what, value, least) {
  const data = typeof value === "string" ? Buffer.from(value, "utf8") : undefined;
  // What comes back different has half of a surrogate pair.
  if (data && data.length >= least && data.length <= TEXT_BYTES_MAX && data.toString("utf8") === value) return value;
  throw invalid(`its ${what} must be a text of ${least} to ${TEXT_BYTES_MAX} bytes of UTF-8`);
}

function number(what, value, least, most) {
  if (typeof value === "number" && value >= least && value <= most) {
    if (what !== "maxAttempts") return Math.ceil(value);
    if (Number.isInteger(value)) return value;
  }
  throw invalid(`its ${what} is ${show(value)}, which is not ${least} to ${most}`);
}

function show(value) {
  return typeof value === "string" ? JSON.stringify(value) : String(value);
}

function invalid(why, cause) {
  return new Dead(`a follow-up is not valid: ${why}`, { cause });
}
