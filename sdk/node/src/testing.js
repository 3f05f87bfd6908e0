// Runs a task through a handler without a worker; testing.d.ts describes it.

import { run as runHandler } from "./run.js";
import { Task } from "./task.js";
import { bytes, encode } from "./wire.js";

export async function run(handler, payload = null, options = {}) {
  const { id = "test", timeoutMs = 300_000, cancelled = false, cancelAt, ...others } = options;
  const fields = {
    id,
    agent: "test",
    queue: "default",
    priority: "normal",
    tenant: "",
    attempt: 1,
    losses: 0,
    fence: 1,
    key: id,
    deadline_ms: timeoutMs,
    ...others,
  };
  const raw = bytes(payload);
  if (raw === undefined) fields.payload = JSON.parse(encode(payload));
  else fields.payload_base64 = raw.toString("base64");

  const seen = { outcome: "", progress: [], output: "", tokens: 0, costUsd: 0, followUps: [] };
  const task = new Task(fields, ({ kind, json }) => {
    const said = JSON.parse(json);
    if (kind === "submit") seen.followUps.push(said);
    else if (kind === "output") seen.output += said;
    else if (kind === "spend") {
      seen.tokens += said.tokens;
      seen.costUsd += Number(said.cost_usd);
    } else seen.progress.push(said);
    if (kind === "progress" && said === cancelAt) Task.cancel(task);
  });
  if (cancelled) Task.cancel(task);
  const { kind, json } = await runHandler(handler, task);
  const said = JSON.parse(json);
  if (kind === "done") return { ...seen, outcome: "done", result: said };
  if (kind === "done_base64") return { ...seen, outcome: "done", result: Buffer.from(said, "base64") };
  return { ...seen, outcome: kind, error: said.error, afterMs: said.after_ms };
}
