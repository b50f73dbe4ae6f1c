// Reads one body a line, in base64, and says a line what JSON.parse makes of it: null, or the members that decide.
import { isUtf8 } from 'node:buffer';

Error.stackTraceLimit = 0; // three of four bodies are refused, and nobody reads where

function read(line) {
  const body = Buffer.from(line, 'base64');
  if (!isUtf8(body)) return 'null';
  let o;
  try {
    o = JSON.parse(body.toString());
  } catch {
    return 'null';
  }
  if (o === null || typeof o !== 'object' || Array.isArray(o)) return 'null';
  return JSON.stringify({
    model: o.model, stream: o.stream, n: o.n, best_of: o.best_of, max_tokens: o.max_tokens,
    max_completion_tokens: o.max_completion_tokens, max_output_tokens: o.max_output_tokens,
    stream_options: o.stream_options && { include_usage: o.stream_options.include_usage },
  });
}

let rest = '';
process.stdin.setEncoding('latin1');
for await (const piece of process.stdin) {
  const lines = (rest + piece).split('\n');
  rest = lines.pop();
  if (lines.length > 0) process.stdout.write(lines.map(read).join('\n') + '\n');
}
