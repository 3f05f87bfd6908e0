/** Handlers for Tidemill's process agents: programs that a worker starts and gives tasks to. */

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type Priority = "urgent" | "high" | "normal" | "low";

/**
 * Takes a task and returns its result: what JSON can say, or bytes. Nothing is `null`. What it throws is a failure: `Retry`,
 * `Throttled`, `Dead`, or anything else, which is a retry.
 */
export type Handler = (task: Task) => unknown;

/**
 * Runs a handler, or that of the agent that this process is started for, until the worker says that it is enough. With several slots
 * it runs several times at once.
 *
 * Call it once, when everything else is set up: the worker gives a child that is not ready no tasks. From then on standard output
 * belongs to the worker, and what is printed goes to standard error.
 */
export function serve(handler: Handler | { [agent: string]: Handler }): Promise<void>;

/** One run of a task. */
export class Task {
  private constructor();
  readonly id: string;
  readonly agent: string;
  readonly queue: string;
  readonly priority: Priority;
  readonly tenant: string;
  /** Which attempt this is, from 1. */
  readonly attempt: number;
  /** How many runs were lost with their worker. */
  readonly losses: number;
  /** Grows with every delivery: give it to whatever you write to, and let it refuse older ones. */
  readonly fence: number;
  /** An idempotency key for the outside, the same over all attempts. */
  readonly key: string;
  /** The trace that the run belongs to, as W3C's `traceparent` says it. */
  readonly traceparent: string | undefined;
  /** When the run is out of time, by `performance.now()`. */
  readonly deadline: number;
  /** The payload: the value, if it is JSON, else a Buffer with its bytes. */
  readonly payload: any;
  /**
   * Aborted when the run is to stop: called off, out of time, lease lost, the worker stopping. The process is ended if the handler
   * is not done within 200 ms. Its reason is a `Cancelled`.
   */
  readonly signal: AbortSignal;
  /** How many ms are left; 0 at least. */
  remaining(): number;
  /** Says how far the run is; 256 characters are kept. */
  progress(text: string): void;
  /**
   * Says that the run has used this, beside what it has said before: budgets are charged with all of it. Say it after each call of a
   * model. US dollars as a text, "0.02", are exact to the millionth.
   */
  spend(used: { tokens?: number; costUsd?: number | string }): void;
  /**
   * Gives out a part of the result, or of a log, while the run goes on: `producer tail` follows it. It is kept for an hour, the newest
   * 4 MiB. Nothing is added to it: say line breaks yourself.
   */
  emit(text: string): void;
  /**
   * Hands in a follow-up, with this run's success and in the same step: a run that fails hands in nothing, and one that is repeated
   * cannot double it. Throws `Dead` if it is not valid.
   */
  submit(agent: string, payload?: unknown, options?: FollowUpOptions): void;
}

export interface FollowUpOptions {
  id?: string;
  queue?: string;
  priority?: Priority;
  tenant?: string;
  delayMs?: number;
  orderKey?: string;
  key?: string;
  maxAttempts?: number;
  timeoutMs?: number;
}

export interface FailureOptions {
  /** After how many ms to run again. */
  afterMs?: number;
  cause?: unknown;
}

/** It failed; it counts as an attempt. Again after `afterMs`, or as the task's retry policy says. */
export class Retry extends Error {
  constructor(error: unknown, options?: FailureOptions);
  readonly afterMs: number | undefined;
}

/** Whoever it needs says "not now". Does not count. Again after `afterMs`; 1 s, if it is not said. */
export class Throttled extends Error {
  constructor(error: unknown, options?: FailureOptions);
  readonly afterMs: number | undefined;
}

/** It failed, and always will. */
export class Dead extends Error {
  constructor(error: unknown, options?: { cause?: unknown });
}

/** Why a task's signal is aborted. */
export class Cancelled extends Error {
  constructor(message?: string);
}
