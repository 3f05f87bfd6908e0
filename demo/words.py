"""The demo's agents, as one child process: real work on real text, one JSON object a line (see docs/process-agents.md).

`digest` finds the words that set a passage apart from all others; `index` counts them. Both take tens of milliseconds.
"""

import collections
import json
import math
import re
import sys
import time

WORD = re.compile(r"[a-z][a-z'-]{2,}")


def say(**words):
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def shingles(text, size=5):
    return {text[i : i + size] for i in range(max(1, len(text) - size + 1))}


def digest(text, rounds):
    """The passage's most telling words, and how much its halves have in common (Jaccard similarity of 5-letter shingles)."""
    counts = collections.Counter(WORD.findall(text.lower()))
    total = sum(counts.values()) or 1
    likeness = 0.0
    for _ in range(rounds):
        half = len(text) // 2
        a, b = shingles(text[:half]), shingles(text[half:])
        likeness = len(a & b) / (len(a | b) or 1)
    telling = sorted(counts, key=lambda w: -counts[w] * math.log(1 + len(w)))[:5]
    return {"words": total, "telling": telling, "likeness": round(likeness, 3)}


say(ready=True)
for line in iter(sys.stdin.readline, ""):
    said = json.loads(line)
    task = said.get("task")
    if task is None:
        continue
    try:
        text = task["payload"]["text"]
    except (KeyError, TypeError):
        say(request=task["request"], dead={"error": "the payload has no text"})
        continue
    began = time.monotonic()
    result = digest(text, 1)
    while time.monotonic() - began < 0.04:  # a longer look, as a model would take
        result = digest(text, 1)
    say(request=task["request"], done=result)
