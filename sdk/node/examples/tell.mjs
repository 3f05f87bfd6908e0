// Gives a text out word by word: {"text": "to be or not to be", "pause": 500}; follow it with `producer tail ID`

import { setTimeout as sleep } from "node:timers/promises";

import { Dead, serve } from "tidemill";

async function tell(task) {
  const { text, pause = 0 } = task.payload ?? {};
  if (typeof text !== "string") throw new Dead("the payload has no text");
  const words = text.split(/\s+/).filter(Boolean);
  for (const [said, word] of words.entries()) {
    task.emit(`${word}\n`);
    task.progress(`${said + 1} of ${words.length}`);
    await sleep(pause, undefined, { signal: task.signal });
  }
  return { words: words.length };
}

await serve(tell);
