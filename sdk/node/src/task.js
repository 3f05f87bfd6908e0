// What a handler knows of its run.

import { performance } from "node:perf_hooks";

import { Cancelled } from "./errors.js";
import { Outbox } from "./follow-up.js";
import { PROGRESS_CHARS_MAX, output, spend, text, word } from "./wire.js";

/** One run of a task; index.d.ts says what each part is. */
export class Task {
  #say;
  #outbox = new Outbox();
  #abort = new AbortController();
  #stopping = false;

  constructor(fields, say) {
    this.id = fields.id;
    this.agent = fields.agent;
    this.queue = fields.queue;
    this.priority = fields.priority;
    this.tenant = fields.tenant;
    this.attempt = fields.attempt;
    this.losses = fields.losses;
    this.fence = fields.fence;
    this.key = fields.key;
    this.traceparent = fields.traceparent;
    this.deadline = performance.now() + fields.deadline_ms;
    const encoded = fields.payload_base64;
    const payload = encoded === undefined ? fields.payload : Buffer.from(encoded, "base64");
    // Not among what is shown when a task is printed: a payload belongs in no log.
    Object.defineProperty(this, "payload", { value: payload, enumerable: false });
    this.#say = say;
  }

  get signal() {
    return this.#abort.signal;
  }

  remaining() {
    return Math.max(0, this.deadline - performance.now());
  }

  progress(how) {
    this.#say(word("progress", text(how, PROGRESS_CHARS_MAX)));
  }

  spend(used) {
    this.#say(spend(used));
  }

  emit(part) {
    for (const said of output(part)) this.#say(said);
  }

  submit(agent, payload, options = {}) {
    this.#say({ kind: "submit", json: this.#outbox.add(agent, payload, options) });
  }

  /** Calls a run off; `stopping`: because this program is to end, which is no fault of the task's. */
  static cancel(task, stopping = false) {
    task.#stopping ||= stopping;
    task.#abort.abort(new Cancelled());
  }

  static isStopping(task) {
    return task.#stopping;
  }
}
