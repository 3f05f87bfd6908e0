// `tidemill/testing`, follow-ups that are not valid, and whether the types name what there is.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import * as tidemill from "tidemill";
import * as testing from "tidemill/testing";

const { Dead, Retry, Throttled } = tidemill;
const { run } = testing;

test("it tells outcome, progress and follow-ups", async () => {
  const words = (task) => {
    task.progress("counting");
    task.spend({ tokens: 3, costUsd: 0.5 });
    task.spend({ tokens: 4 });
    task.spend({ costUsd: "0.25" });
    task.emit("to\n");
    task.emit("");
    task.emit("be");
    task.submit("check", { id: task.id }, { delayMs: 2 });
    return { words: task.payload.text.split(" ").length, attempt: task.attempt };
  };
  assert.deepEqual(await run(words, { text: "to be" }, { id: "t", attempt: 3 }), {
    outcome: "done",
    result: { words: 2, attempt: 3 },
    progress: ["counting"],
    output: "to\nbe",
    tokens: 7,
    costUsd: 0.75,
    followUps: [{ agent: "check", delay_ms: 2, payload: { id: "t" } }],
  });
});

test("what a run has used is an amount", async () => {
  for (const used of [{ tokens: -1 }, { tokens: 1.5 }, { costUsd: -1 }, { costUsd: "x" }, { costUsd: "" }]) {
    assert.equal((await run((task) => task.spend(used))).outcome, "retry");
  }
});

test("a trace is handed on", async () => {
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  assert.equal((await run((task) => task.traceparent, null, { traceparent })).result, traceparent);
  assert.equal((await run((task) => task.traceparent)).result, null);
});

test("it tells failures", async () => {
  const errors = { r: new Retry("r"), t: new Throttled("t", { afterMs: 2 }), d: new Dead("d") };
  const seen = async (payload) => {
    const { outcome, error, afterMs } = await run((task) => Promise.reject(errors[task.payload]), payload);
    return [outcome, error, afterMs];
  };
  assert.deepEqual(await seen("r"), ["retry", "r", undefined]);
  assert.deepEqual(await seen("t"), ["throttled", "t", 2]);
  assert.deepEqual(await seen("d"), ["dead", "d", undefined]);
});

test("payloads and results go the way of the protocol", async () => {
  const echo = (task) => task.payload;
  assert.deepEqual((await run(echo, { at: new Date(0) })).result, { at: "1970-01-01T00:00:00.000Z" });
  assert.deepEqual((await run(echo, Uint8Array.of(255))).result, Buffer.of(255));
  assert.equal((await run(() => 1n)).outcome, "dead");
});

test("runs can be called off", async () => {
  const pages = async (task) => {
    for (let page = 0; page < 9; page += 1) {
      task.progress(`page ${page}`);
      task.signal.throwIfAborted();
    }
    return "all";
  };
  assert.equal((await run(pages)).result, "all");
  const seen = await run(pages, null, { cancelAt: "page 3" });
  assert.deepEqual([seen.outcome, seen.error, seen.progress.at(-1)], ["retry", "called off", "page 3"]);
  assert.deepEqual((await run(pages, null, { cancelled: true })).progress, ["page 0"]);
});

test("follow-ups that are not valid are dead before they are said", async () => {
  const cases = [
    [{ agent: "a b" }, 'its agent "a b"'],
    [{ agent: undefined }, "its agent undefined"],
    [{ id: "a.b" }, 'its id "a.b"'],
    [{ queue: "a\n" }, 'its queue "a\\n"'],
    [{ priority: "max" }, 'its priority is "max"'],
    [{ tenant: "x".repeat(256) }, "its tenant must"],
    [{ key: "" }, "its key must"],
    [{ orderKey: "\ud800" }, "its orderKey must"],
    [{ delayMs: -1 }, "its delayMs is -1"],
    [{ delayMs: "2" }, 'its delayMs is "2"'],
    [{ timeoutMs: NaN }, "its timeoutMs is NaN"],
    [{ maxAttempts: 0 }, "its maxAttempts is 0"],
    [{ maxAttempts: 1.5 }, "its maxAttempts is 1.5"],
    [{ delay: 1 }, "there is no option delay"],
    [{ toString: 1 }, "there is no option toString"],
    [{ payload: 1n }, "its payload is not JSON"],
    [{ payload: Buffer.alloc((1 << 20) + 1) }, "its payload has 1048577 bytes"],
  ];
  for (const [given, why] of cases) {
    const { payload, agent, ...options } = { agent: "a", ...given };
    const seen = await run((task) => task.submit(agent, payload, options));
    assert.deepEqual([seen.outcome, seen.followUps], ["dead", []], why);
    assert.ok(seen.error.startsWith(`a follow-up is not valid: ${why}`), `${seen.error} (${why})`);
  }
});

test("there is an end to follow-ups", async () => {
  const many = (task) => {
    for (let at = 0; at < task.payload.count; at += 1) task.submit("a", "x".repeat(task.payload.size));
  };
  assert.equal((await run(many, { count: 256, size: 1 })).followUps.length, 256);
  for (const payload of [{ count: 257, size: 1 }, { count: 5, size: 1_000_000 }]) {
    assert.match((await run(many, payload)).error, /at most 256 of them, with 4 MiB/);
  }
});

test("the types name what there is", async () => {
  for (const [file, exported] of [["index.d.ts", tidemill], ["testing.d.ts", testing]]) {
    const types = readFileSync(new URL(`../${file}`, import.meta.url), "utf8");
    const named = [...types.matchAll(/^export (?:class|function) (\w+)/gm)].map((found) => found[1]);
    assert.deepEqual(named.sort(), Object.keys(exported).sort(), file);
  }
  const types = readFileSync(new URL("../index.d.ts", import.meta.url), "utf8");
  const task = types.match(/export class Task \{([^]*?)\n\}/)[1];
  const parts = [...task.matchAll(/^ {2}(?:readonly )?(\w+)[:(]/gm)].map((found) => found[1]);
  const { result } = await run((given) => parts.filter((part) => !(part in given)));
  assert.deepEqual(result, []);
  assert.equal(parts.length, 18, parts.join(" "));
});
