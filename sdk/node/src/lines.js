// The two pipes between worker and child.

/** Cuts chunks into lines, which end with a line feed and nothing else, and may be long. */
export class Lines {
  #begun = [];

  /** The lines that a chunk completes. */
  *read(chunk) {
    let from = 0;
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, from)) {
      this.#begun.push(chunk.subarray(from, end));
      const line = Buffer.concat(this.#begun).toString("utf8");
      this.#begun = [];
      from = end + 1;
      yield line;
    }
    if (from < chunk.length) this.#begun.push(chunk.subarray(from));
  }
}

/** Takes standard output away from everything else in this process, and returns what writes a line to the worker. What is printed
 * from now on goes to standard error. */
export function takeOver() {
  const write = process.stdout.write.bind(process.stdout);
  process.stdout.write = process.stderr.write.bind(process.stderr);
  // Without the worker there is nobody to tell; the end of our input comes by itself.
  process.stdout.on("error", () => {});
  return (line) => write(line);
}
