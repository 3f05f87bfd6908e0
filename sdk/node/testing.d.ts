import type { Handler, Json, Priority } from "./index.js";

export interface RunOptions {
  id?: string;
  agent?: string;
  queue?: string;
  priority?: Priority;
  tenant?: string;
  attempt?: number;
  losses?: number;
  fence?: number;
  key?: string;
  traceparent?: string;
  timeoutMs?: number;
  /** It is called off before it begins. */
  cancelled?: boolean;
  /** It is called off when it says this progress. */
  cancelAt?: string;
}

/** What the worker would have been told. */
export interface Run {
  outcome: "done" | "retry" | "throttled" | "dead";
  /** Of a success: what JSON makes of it, or bytes. */
  result?: any;
  /** Of any other outcome: why. */
  error?: string;
  /** After how many ms it wants to run again. */
  afterMs?: number;
  progress: string[];
  /** All that was given out by `emit`. */
  output: string;
  /** All that it said that it used. */
  tokens: number;
  costUsd: number;
  /**
   * Follow-ups, as in the protocol's `submit`: `agent`, `payload` or `payload_base64`, `delay_ms`, and so on. They count only if the
   * outcome is `done`.
   */
  followUps: { [key: string]: Json }[];
}

/** Runs a handler on a payload: bytes as they are, anything else by way of JSON. Time is not watched. */
export function run(handler: Handler, payload?: unknown, options?: RunOptions): Promise<Run>;
