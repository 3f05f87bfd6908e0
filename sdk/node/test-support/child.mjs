// A handler as a real child, and its worker's end of the pipes. Each read waits for its line, and no longer than PATIENCE_MS.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";

/** The package; code that runs there finds it by its name. */
export const PACKAGE = fileURLToPath(new URL("..", import.meta.url));
/** Nothing takes so long, even on a busy machine. */
const PATIENCE_MS = 20_000;

export class Child {
  errors = "";
  #process;
  #last = 0;
  #chunks = [];
  #lines = [];
  #over = false;
  #changed = () => {};

  /** Runs `code`, or another program. */
  constructor(code, program = ["--input-type=module", "--eval", code]) {
    this.#process = spawn(process.execPath, program, { cwd: PACKAGE, stdio: "pipe" });
    this.#process.stderr.setEncoding("utf8").on("data", (text) => (this.errors += text));
    this.#process.stdout.on("data", (chunk) => this.#read(chunk));
    this.#process.stdin.on("error", () => {});
    this.#process.on("close", () => {
      this.#over = true;
      this.#changed();
    });
  }

  /** One that is ready, and killed when `test` ends. */
  static async start(test, code, { slots = 1, agent = "words", hello = true, program } = {}) {
    const child = new Child(code, program);
    test.after(() => child.#process.kill("SIGKILL"));
    if (hello) {
      child.say({ hello: { protocol: 1, agent, slots } });
      assert.deepEqual(await child.hear(), { ready: true });
    }
    return child;
  }

  #read(chunk) {
    this.#chunks.push(chunk);
    if (chunk.includes(10)) {
      const lines = Buffer.concat(this.#chunks).toString("utf8").split("\n");
      this.#chunks = [Buffer.from(lines.pop())];
      this.#lines.push(...lines);
      this.#changed();
    }
  }

  async #until(holds) {
    const late = setTimeout(() => this.#process.kill("SIGKILL"), PATIENCE_MS);
    while (!holds()) {
      await new Promise((changed) => (this.#changed = changed));
    }
    clearTimeout(late);
  }

  write(text) {
    this.#process.stdin.write(text);
  }

  say(what) {
    this.write(`${JSON.stringify(what)}\n`);
  }

  /** The line of a task, and its fields over those that every task has. */
  taskLine(payload = null, fields = {}) {
    this.#last += 1;
    const id = `task-${this.#last}`;
    const given = payload instanceof Buffer ? { payload_base64: payload.toString("base64") } : { payload };
    const common = { agent: "words", queue: "default", priority: "normal", tenant: "", attempt: 1, losses: 0 };
    const task = { request: this.#last, id, ...common, fence: 40 + this.#last, key: id, deadline_ms: 60_000, ...given };
    return `${JSON.stringify({ task: { ...task, ...fields } })}\n`;
  }

  /** Gives it a task and returns the number of its request. */
  task(payload, fields) {
    this.write(this.taskLine(payload, fields));
    return this.#last;
  }

  /** Gives it a task and returns what it says next, without the number. */
  async ask(payload, fields) {
    const expected = this.task(payload, fields);
    const { request, ...said } = await this.hear();
    assert.equal(request, expected);
    return said;
  }

  /** The next line. */
  async line() {
    await this.#until(() => this.#lines.length > 0 || this.#over);
    assert.ok(this.#lines.length > 0, `it ended, or said nothing for too long; standard error: ${this.errors}`);
    return this.#lines.shift();
  }

  async hear() {
    return JSON.parse(await this.line());
  }

  /** So many lines, by their requests. */
  async hearAll(count) {
    const all = {};
    for (let heard = 0; heard < count; heard += 1) {
      const { request, ...said } = await this.hear();
      all[request] = said;
    }
    return all;
  }

  /** The end of its input. */
  close() {
    this.#process.stdin.end();
  }

  terminate() {
    this.#process.kill("SIGTERM");
  }

  /** Its exit code, once it has ended and said nothing more. */
  async ended() {
    await this.#until(() => this.#over);
    assert.deepEqual(this.#lines, []);
    return this.#process.exitCode ?? this.#process.signalCode;
  }
}

/** The code of a child with this handler. */
export function handler(body) {
  return `
    import { setTimeout as sleep } from "node:timers/promises";
    import { Cancelled, Dead, Retry, Throttled, serve } from "tidemill";
    await serve(async (task) => { ${body} });
  `;
}

export const ECHO = handler("return task.payload;");
