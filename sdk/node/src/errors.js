// What a handler may throw. Anything else is a retry with its name and message.

import { inspect } from "node:util";

const AFTER_MS_MAX = 7 * 86_400_000;

/** What the three ways to fail have in common. */
export class Failure extends Error {
  constructor(error, options = {}) {
    super(error instanceof Error ? describe(error) : String(error), options);
    this.name = new.target.name;
    this.afterMs = options.afterMs === undefined ? undefined : milliseconds(options.afterMs);
  }
}

export class Retry extends Failure {}

export class Throttled extends Failure {}

export class Dead extends Failure {
  constructor(error, { cause } = {}) {
    super(error, cause === undefined ? {} : { cause });
  }
}

/** The reason of a task's signal. */
export class Cancelled extends Error {
  constructor(message = "called off") {
    super(message);
    this.name = "Cancelled";
  }
}

/** `Name: message`, of whatever was thrown. */
export function describe(error) {
  if (!(error instanceof Error)) return typeof error === "string" ? error : inspect(error);
  return error.message ? `${error.name}: ${error.message}` : String(error.name);
}

function milliseconds(after) {
  if (typeof after !== "number" || Number.isNaN(after)) throw new TypeError("afterMs is not a number");
  return Math.ceil(Math.min(Math.max(after, 0), AFTER_MS_MAX));
}
