// Counts words: {"text": "to be or not to be"} -> {"words": 6}

import { Dead, serve } from "tidemill";

async function words(task) {
  const text = task.payload?.text;
  if (typeof text !== "string") throw new Dead("the payload has no text");
  task.progress("counting");
  console.log("this goes to the worker's log");
  return { words: text.split(/\s+/).filter(Boolean).length };
}

await serve(words);
