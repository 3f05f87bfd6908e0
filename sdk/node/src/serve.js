// The child: hears what the worker says, has it run, and ends when it should.

import { Lines, takeOver } from "./lines.js";
import { run } from "./run.js";
import { Task } from "./task.js";
import { line } from "./wire.js";

const PROTOCOL = 1;
/** How long running tasks may go on after the end of input. The worker sends SIGTERM well before. */
const END_WITHIN_MS = 1_000;
/** How long they may take once they are called off, before we end without them. The worker kills after 200 ms; this is for a child
 * that has lost its worker, whose tasks will be run by another once its lease is over. */
const STOP_WITHIN_MS = 1_000;
/** How much of a strange line is told. */
const STRANGE_CHARS_MAX = 120;

/** Runs a handler, or that of the agent that this child is started for, until the worker says that it is enough. */
export function serve(handler) {
  if (process.stdin.isTTY) {
    process.stderr.write("this program is started by a Tidemill worker, and waits for its lines\n");
  }
  return new Promise((over) => new Child(handler, takeOver(), over).serve());
}

class Child {
  #handlers;
  #handler;
  #say;
  #over;
  /** The tasks in hand, by request. */
  #tasks = new Map();
  #ending = false;
  #calledOff = false;
  #patience;
  #lines = new Lines();
  #stop = () => this.#callAllOff();

  constructor(handlers, say, over) {
    this.#handlers = handlers;
    this.#say = say;
    this.#over = over;
  }

  serve() {
    process.on("SIGTERM", this.#stop);
    process.stdin.on("data", (chunk) => {
      for (const read of this.#lines.read(chunk)) this.#hear(read);
    });
    process.stdin.on("end", () => {
      if (!this.#ending) this.#end(END_WITHIN_MS, this.#stop);
    });
  }

  #hear(read) {
    let said;
    try {
      said = JSON.parse(read);
    } catch (error) {
      fail(`a line of the worker is not JSON (${error.message})`, read);
    }
    if (typeof said !== "object" || said === null || Array.isArray(said)) fail("a line of the worker is no object", read);
    if (this.#handler === undefined) this.#hello(said.hello, read);
    else if ("task" in said) this.#take(said.task, read);
    else if ("cancel" in said && this.#tasks.has(said.cancel)) Task.cancel(this.#tasks.get(said.cancel));
    // Anything else is of a later version of the protocol, or about a task that is over.
  }

  #hello(hello, read) {
    if (typeof hello !== "object" || hello === null) fail("the first line is no hello of a worker", read);
    const { protocol, agent } = hello;
    if (protocol !== PROTOCOL) {
      fail(`the worker speaks protocol ${protocol}, and this package ${PROTOCOL}; use the package of its version`);
    }
    const handlers = this.#handlers;
    this.#handler = typeof handlers === "function" ? handlers : Object.hasOwn(handlers, agent) && handlers[agent];
    if (typeof this.#handler !== "function") fail(`there is no handler for the agent ${agent}`);
    this.#say('{"ready":true}\n');
  }

  #take(fields, read) {
    const request = fields?.request;
    const given = "payload" in Object(fields) || typeof fields?.payload_base64 === "string";
    if (!Number.isInteger(request) || !given || typeof fields.id !== "string" || typeof fields.deadline_ms !== "number") {
      fail("a task of the worker is not of the protocol", read);
    }
    const task = new Task(fields, (word) => this.#say(line(request, word)));
    this.#tasks.set(request, task);
    // It came with the signal: hand it back.
    if (this.#calledOff) Task.cancel(task, true);
    run(this.#calledOff ? () => task.signal.throwIfAborted() : this.#handler, task).then((word) => {
      this.#say(line(request, word));
      this.#tasks.delete(request);
      if (this.#ending && this.#tasks.size === 0) this.#finish();
    });
  }

  /** No more will come: ends with the last task, or loses patience. */
  #end(patience, then) {
    this.#ending = true;
    clearTimeout(this.#patience);
    if (this.#tasks.size === 0) this.#finish();
    else this.#patience = setTimeout(then, patience);
  }

  #callAllOff() {
    if (this.#calledOff) return;
    this.#calledOff = true;
    for (const task of this.#tasks.values()) Task.cancel(task, true);
    this.#end(STOP_WITHIN_MS, () => {
      process.stderr.write(`${this.#tasks.size} tasks did not stop in time\n`);
      process.exit(1);
    });
  }

  #finish() {
    clearTimeout(this.#patience);
    process.off("SIGTERM", this.#stop);
    process.stdin.destroy();
    // What handlers left open would keep the process; whoever waits for serve() may close it until then.
    setTimeout(() => process.exit(), END_WITHIN_MS).unref();
    this.#over();
  }
}

function fail(why, read) {
  const shown = read === undefined ? "" : `: ${JSON.stringify(read.slice(0, STRANGE_CHARS_MAX))}`;
  process.stderr.write(`tidemill: ${why}${shown}\n`);
  process.exit(2);
}
