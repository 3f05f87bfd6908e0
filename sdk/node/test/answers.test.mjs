// Whole children, spoken to over pipes as the worker does: what they answer.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Child, ECHO, handler } from "../test-support/child.mjs";

test("it is ready and answers one task after the other", async (t) => {
  const child = await Child.start(t, ECHO);
  for (const payload of [{ a: [1, null, "ü"] }, null, [], "", 0, false, 1.5]) {
    assert.deepEqual(await child.ask(payload), { done: payload });
  }
});

test("a task says what it is", async (t) => {
  const child = await Child.start(
    t,
    `import { inspect } from "node:util";
     import { serve } from "tidemill";
     await serve((t) => {
       const left = t.remaining();
       if (!(left > 0 && left <= 5000 && Math.abs(t.deadline - performance.now() - left) < 1000)) throw new Error(String(left));
       const facts = [t.id, t.agent, t.queue, t.priority, t.tenant, t.attempt, t.losses, t.fence, t.key, t.signal.aborted];
       return [...facts, inspect(t).includes("secret"), t.payload];
     });`,
  );
  const said = await child.ask("secret", { tenant: "acme", attempt: 2, losses: 1, key: "k", deadline_ms: 5_000 });
  const facts = ["task-1", "words", "default", "normal", "acme", 2, 1, 41, "k", false, false, "secret"];
  assert.deepEqual(said, { done: facts });
});

test("bytes come and go as base64, and nothing is null", async (t) => {
  const child = await Child.start(
    t,
    handler("return { reverse: () => task.payload.reverse(), words: () => new Uint16Array([0x4142]) }[task.key]?.();"),
  );
  const raw = Buffer.from(Array.from({ length: 256 }, (_, at) => at));
  const said = await child.ask(raw, { key: "reverse" });
  assert.deepEqual(Buffer.from(said.done_base64, "base64"), Buffer.from(raw).reverse());
  assert.deepEqual(await child.ask(null, { key: "words" }), { done_base64: "QkE=" });
  assert.deepEqual(await child.ask(), { done: null });
});

test("line separators of Unicode end no line", async (t) => {
  const text = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\r\nh";
  const child = await Child.start(t, ECHO);
  assert.deepEqual(await child.ask(text), { done: text });
});

test("a line of a mebibyte comes and goes", async (t) => {
  const text = "ü".repeat(524_288 - 1);
  const child = await Child.start(t, ECHO);
  assert.deepEqual(await child.ask(text), { done: text }, "1 MiB with its quotes");
  const said = await child.ask(`${text}x`);
  assert.equal(said.dead.error, "the result has 1048577 bytes; at most 1048576 are allowed");
});

test("a result that is not JSON is dead and says why", async (t) => {
  const child = await Child.start(
    t,
    handler("return [() => 1n, () => () => 1, () => { const a = []; a.push(a); return a; }][task.payload]();"),
  );
  assert.match((await child.ask(0)).dead.error, /^the result is not JSON: .*BigInt/);
  assert.equal((await child.ask(1)).dead.error, "the result is not JSON: a function has no JSON");
  assert.match((await child.ask(2)).dead.error, /^the result is not JSON: .*circular/);
});

test("halves of surrogate pairs do not spoil a line", async (t) => {
  const child = await Child.start(
    t,
    handler(`
      task.progress("p" + task.payload);
      if (task.payload.length > 1) throw new Dead("e" + task.payload);
      return task.payload;
    `),
  );
  child.task("\ud800");
  assert.equal(await child.line(), '{"request":1,"progress":"p\ufffd"}');
  assert.equal(await child.line(), '{"request":1,"done":"\\ud800"}');
  child.task("\udc80x");
  assert.equal(await child.line(), '{"request":2,"progress":"p\ufffdx"}');
  assert.equal(await child.line(), '{"request":2,"dead":{"error":"e\ufffdx"}}');
});

test("each way to fail has its word", async (t) => {
  const child = await Child.start(
    t,
    handler(`
      throw {
        retry: () => new Retry("r"), later: () => new Retry("r", { afterMs: 1.5 }),
        never: () => new Retry("r", { afterMs: Infinity }), throttled: () => new Throttled("t"),
        until: () => new Throttled("t", { afterMs: 2_000 }), dead: () => new Dead("d"),
        cause: () => new Retry(new RangeError("k")), empty: () => new TypeError(), long: () => new Error("x".repeat(3_000_000)),
        text: () => "only a text", nothing: () => undefined, object: () => Object.create(null),
        aborted: () => new DOMException("by somebody else", "AbortError"),
      }[task.payload]();
    `),
  );
  const expected = {
    retry: { retry: { error: "r" } },
    later: { retry: { error: "r", after_ms: 2 } },
    never: { retry: { error: "r", after_ms: 604_800_000 } },
    throttled: { throttled: { error: "t" } },
    until: { throttled: { error: "t", after_ms: 2_000 } },
    dead: { dead: { error: "d" } },
    cause: { retry: { error: "RangeError: k" } },
    empty: { retry: { error: "TypeError" } },
    long: { retry: { error: `Error: ${"x".repeat(993)}` } },
    text: { retry: { error: "only a text" } },
    nothing: { retry: { error: "undefined" } },
    object: { retry: { error: "[Object: null prototype] {}" } },
    aborted: { retry: { error: "AbortError: by somebody else" } },
  };
  for (const [payload, said] of Object.entries(expected)) assert.deepEqual(await child.ask(payload), said, payload);
});

test("an exception has its trace on standard error", async (t) => {
  const child = await Child.start(t, handler("return task.payload.text.length;"));
  assert.match((await child.ask({})).retry.error, /^TypeError: /);
  child.close();
  assert.equal(await child.ended(), 0);
  assert.match(child.errors, /^task task-1, attempt 1:\nTypeError: [^]* at /);
});

test("what is printed goes to standard error and is no line", async (t) => {
  const body = 'console.log("logged"); process.stdout.write("written\\n"); console.info("info"); return 1;';
  const child = await Child.start(t, handler(body));
  assert.deepEqual(await child.ask(), { done: 1 });
  child.close();
  assert.equal(await child.ended(), 0);
  assert.equal(child.errors, "logged\nwritten\ninfo\n");
});

test("progress and follow-ups come before the answer", async (t) => {
  const child = await Child.start(
    t,
    handler(`
      task.progress("ü".repeat(255) + "😀😀");
      task.submit("check", { n: 1 });
      task.submit("check", Buffer.from([255]), { id: "i", queue: "q", priority: "high", tenant: "t", delayMs: 1.5, orderKey: "o",
        key: "k", maxAttempts: 2, timeoutMs: 3_000 });
      task.submit("check");
    `),
  );
  const request = child.task();
  const full = { agent: "check", id: "i", queue: "q", priority: "high", tenant: "t", delay_ms: 2, order_key: "o", key: "k" };
  const expected = [
    { progress: `${"ü".repeat(255)}😀` },
    { submit: { agent: "check", payload: { n: 1 } } },
    { submit: { ...full, max_attempts: 2, timeout_ms: 3_000, payload_base64: "/w==" } },
    { submit: { agent: "check", payload_base64: "" } },
    { done: null },
  ];
  for (const said of expected) assert.deepEqual(await child.hear(), { request, ...said });
});

test("output is said in lines that the worker can read", async (t) => {
  const child = await Child.start(
    t,
    handler(`
      task.emit("to be\\n");
      task.emit("");
      task.emit("\\ud800");
      task.emit("x".repeat(65_535) + "😀" + "\\u0001".repeat(40_000));
    `),
  );
  child.task();
  const said = [];
  for (let one = await child.hear(); !("done" in one); one = await child.hear()) said.push(one.output);
  assert.deepEqual(said.slice(0, 2), ["to be\n", "\ufffd"]);
  assert.deepEqual([said.length, said[2].length, said[3].slice(0, 2), said[3].length], [4, 65_535, "😀", 40_002]);
});

test("the example counts words", async (t) => {
  const child = await Child.start(t, "", { program: ["examples/words.mjs"] });
  assert.deepEqual(await child.ask({ text: " to be or\nnot to be " }), { progress: "counting" });
  assert.deepEqual(await child.hear(), { request: 1, done: { words: 6 } });
  assert.deepEqual(await child.ask(Buffer.from([0])), { dead: { error: "the payload has no text" } });
});

test("the examples of the document work", async (t) => {
  const document = readFileSync(new URL("../../../docs/node.md", import.meta.url), "utf8");
  const [words, tell, tests] = document.split("```js\n").slice(1).map((block) => block.split("```")[0]);
  const child = await Child.start(t, words);
  assert.deepEqual(await child.ask({ text: "to be or not to be" }), { done: { words: 6 } });
  assert.deepEqual(await child.ask(Buffer.from([0])), { dead: { error: "the payload has no text" } });
  const telling = await Child.start(t, tell);
  const request = telling.task({ text: "to be", pause: 0 });
  const told = [{ output: "to\n" }, { progress: "1 of 2" }, { output: "be\n" }, { progress: "2 of 2" }, { done: { words: 2 } }];
  for (const said of told) assert.deepEqual(await telling.hear(), { request, ...said });
  // A test imports the handler; here it takes the place of serve.
  const head = `import assert from "node:assert/strict"; let words; const serve = (handler) => (words = handler);\n`;
  const whole = head + words.replace("Dead, serve", "Dead") + tests;
  const served = await Child.start(t, `${whole}\nconsole.log('{"passed":true}');`, { hello: false });
  assert.deepEqual(await served.hear(), { passed: true });
});
