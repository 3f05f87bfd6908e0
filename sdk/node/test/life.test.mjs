// Several tasks at once, calls to stop, strange input, and the end.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Child, ECHO, handler } from "../test-support/child.mjs";

/** Says that it began, and goes on until it is told to stop. */
const WAIT = handler(`
  task.progress("began");
  try {
    await sleep(60_000, null, { signal: task.signal });
  } catch (error) {
    if (task.payload === "wait") throw error;
    if (task.payload === "reason") task.signal.throwIfAborted();
    if (task.payload === "stubborn") await sleep(60_000);
    return "stopped";
  }
`);
const BEGAN = { progress: "began" };
const CALLED_OFF = { retry: { error: "called off" } };
const HANDED_BACK = { throttled: { error: "called off: its child ends", after_ms: 100 } };
const STOPS = [(child) => child.close(), (child) => child.terminate()];

test("as many tasks as slots run at once", async (t) => {
  const code = `
    import { serve } from "tidemill";
    const here = [];
    await serve((task) => new Promise((go) => {
      here.push(() => go(task.payload));
      if (here.length === 3) here.forEach((each) => each());
    }));
  `;
  const child = await Child.start(t, code, { slots: 3 });
  for (const number of [1, 2, 3]) child.task(number);
  assert.deepEqual(await child.hearAll(3), { 1: { done: 1 }, 2: { done: 2 }, 3: { done: 3 } });
});

test("a run that is called off stops and the others go on", async (t) => {
  const child = await Child.start(t, WAIT, { slots: 3 });
  for (const payload of ["wait", "reason", "return"]) child.task(payload);
  assert.deepEqual(await child.hearAll(3), { 1: BEGAN, 2: BEGAN, 3: BEGAN });
  child.say({ cancel: 1 });
  assert.deepEqual(await child.hear(), { request: 1, ...CALLED_OFF });
  child.say({ cancel: 2 });
  assert.deepEqual(await child.hear(), { request: 2, ...CALLED_OFF });
  child.say({ cancel: 3 });
  assert.deepEqual(await child.hear(), { request: 3, done: "stopped" });
});

test("with nothing in hand it ends at once", async (t) => {
  for (const stop of STOPS) {
    const child = await Child.start(t, ECHO);
    await child.ask();
    stop(child);
    assert.equal(await child.ended(), 0);
  }
  const child = await Child.start(t, ECHO, { hello: false });
  child.close();
  assert.equal(await child.ended(), 0);
});

test("a task that came last is answered", async (t) => {
  const child = await Child.start(t, handler('task.progress("began"); await sleep(1); return 1;'));
  child.task();
  child.close();
  assert.deepEqual(await child.hear(), { request: 1, ...BEGAN });
  assert.deepEqual(await child.hear(), { request: 1, done: 1 });
  assert.equal(await child.ended(), 0);
});

test("running tasks are called off and handed back", async (t) => {
  for (const stop of STOPS) {
    const child = await Child.start(t, WAIT, { slots: 2 });
    child.task("wait");
    child.task("return");
    assert.deepEqual(await child.hearAll(2), { 1: BEGAN, 2: BEGAN });
    stop(child);
    assert.deepEqual(await child.hearAll(2), { 1: HANDED_BACK, 2: { done: "stopped" } });
    assert.equal(await child.ended(), 0);
  }
});

test("a run that does not stop does not keep it", async (t) => {
  const child = await Child.start(t, WAIT);
  child.task("stubborn");
  await child.hear();
  child.terminate();
  child.close();
  assert.equal(await child.ended(), 1);
  assert.match(child.errors, /1 tasks did not stop in time/);
});

test("what is left open does not keep it, and what follows serve is done", async (t) => {
  const code = `${ECHO}\nconsole.log("closing");`;
  const child = await Child.start(t, `setInterval(() => {}, 60_000);\n${code}`);
  child.close();
  assert.equal(await child.ended(), 0);
  assert.equal(child.errors, "closing\n");
});

test("the handler of the agent is chosen", async (t) => {
  const code = 'import { serve } from "tidemill"; await serve({ words: () => 1, lines: () => 2 });';
  const child = await Child.start(t, code, { agent: "lines" });
  assert.deepEqual(await child.ask(), { done: 2 });
  for (const agent of ["other", "toString"]) {
    const other = await Child.start(t, code, { hello: false });
    other.say({ hello: { protocol: 1, agent, slots: 1 } });
    assert.equal(await other.ended(), 2);
    assert.match(other.errors, new RegExp(`there is no handler for the agent ${agent}`));
  }
});

test("what is not of the protocol ends it with a reason", async (t) => {
  const strange = [
    ["nonsense\n", /is not JSON/],
    ["[]\n", /is no object/],
    ['{"task":{"request":1}}\n', /is not of the protocol/],
    ['{"task":{"request":1,"id":\n', /is not JSON/],
  ];
  for (const [line, why] of strange) {
    const child = await Child.start(t, ECHO);
    child.write(line);
    assert.equal(await child.ended(), 2);
    assert.match(child.errors, why);
  }
});

test("no hello and another protocol end it before it is ready", async (t) => {
  const strange = [
    ["{}\n", /no hello/],
    ['{"hello":{"protocol":2,"agent":"words","slots":1}}\n', /the worker speaks protocol 2/],
  ];
  for (const [line, why] of strange) {
    const child = await Child.start(t, ECHO, { hello: false });
    child.write(line);
    assert.equal(await child.ended(), 2);
    assert.match(child.errors, why);
  }
});

test("what a later worker may say is passed over, and lines may come in pieces", async (t) => {
  const child = await Child.start(t, ECHO, { slots: 3, hello: false });
  child.write('{"hello":{"protocol":1,"agent":"words","slots":3}}\n{"weather":"fine"}\n{"cancel":1}\n{"can');
  assert.deepEqual(await child.hear(), { ready: true });
  child.write('cel":2}\n');
  assert.deepEqual(await child.ask(1, { something: "new" }), { done: 1 });
});
