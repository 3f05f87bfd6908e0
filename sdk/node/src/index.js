// Handlers for Tidemill's process agents; index.d.ts describes all of it.

export { Cancelled, Dead, Retry, Throttled } from "./errors.js";
export { serve } from "./serve.js";
export { Task } from "./task.js";
