// Reads a JSON array of texts a line, and says a line how many tokens each has, as ordinary text, by the encoding that the
// first argument names.
import { createInterface } from 'node:readline';
import { get_encoding } from 'tiktoken';

const encoding = get_encoding(process.argv[2]);
for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(JSON.stringify(JSON.parse(line).map((text) => encoding.encode_ordinary(text).length)) + '\n');
}
