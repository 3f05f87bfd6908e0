// One run of a handler, from the call to the word that answers it. Serving and testing share it.

import { inspect } from "node:util";

import { Dead, Failure, Throttled, describe } from "./errors.js";
import { Task } from "./task.js";
import { done, failure } from "./wire.js";

// Soon, but not before whoever stopped us has had the time to.
const HANDED_BACK_MS = 100;

export async function run(handler, task) {
  try {
    return done(await handler(task));
  } catch (error) {
    return failed(error, task);
  }
}

function failed(error, task) {
  if (error instanceof Dead) return failure("dead", error.message);
  if (error instanceof Throttled) return failure("throttled", error.message, error.afterMs);
  if (error instanceof Failure) return failure("retry", error.message, error.afterMs);
  if (task.signal.aborted && (error === task.signal.reason || error?.name === "AbortError")) return calledOff(task);
  process.stderr.write(`task ${task.id}, attempt ${task.attempt}:\n${inspect(error)}\n`);
  // Whatever goes wrong while we end is no fault of the task's.
  return Task.isStopping(task) ? calledOff(task) : failure("retry", describe(error));
}

function calledOff(task) {
  if (Task.isStopping(task)) return failure("throttled", "called off: its child ends", HANDED_BACK_MS);
  return failure("retry", "called off");
}
