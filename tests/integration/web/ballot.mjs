// Ballot ids in another language, from their description alone: BLAKE2b by RFC 7693, as Node's own has no key.
// Reads the vectors on stdin and prints what differs, as JSON.

const IV = [
  0x6a09e667f3bcc908n, 0xbb67ae8584caa73bn, 0x3c6ef372fe94f82bn, 0xa54ff53a5f1d36f1n,
  0x510e527fade682d1n, 0x9b05688c2b3e6c1fn, 0x1f83d9abfb41bd6bn, 0x5be0cd19137e2179n,
];
const SIGMA = [
  [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
  [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4], [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
  [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13], [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
  [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11], [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
  [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5], [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
];
const MASK = (1n << 64n) - 1n;
const rotate = (word, bits) => ((word >> bits) | (word << (64n - bits))) & MASK;

function compress(state, block, counted, last) {
  const words = Array.from({ length: 16 }, (_, i) => block.readBigUInt64LE(8 * i));
  const v = [...state, ...IV];
  v[12] ^= BigInt(counted);
  if (last) v[14] ^= MASK;
  const mix = (a, b, c, d, x, y) => {
    v[a] = (v[a] + v[b] + x) & MASK;
    v[d] = rotate(v[d] ^ v[a], 32n);
    v[c] = (v[c] + v[d]) & MASK;
    v[b] = rotate(v[b] ^ v[c], 24n);
    v[a] = (v[a] + v[b] + y) & MASK;
    v[d] = rotate(v[d] ^ v[a], 16n);
    v[c] = (v[c] + v[d]) & MASK;
    v[b] = rotate(v[b] ^ v[c], 63n);
  };
  for (let round = 0; round < 12; round++) {
    const s = SIGMA[round % 10];
    mix(0, 4, 8, 12, words[s[0]], words[s[1]]);
    mix(1, 5, 9, 13, words[s[2]], words[s[3]]);
    mix(2, 6, 10, 14, words[s[4]], words[s[5]]);
    mix(3, 7, 11, 15, words[s[6]], words[s[7]]);
    mix(0, 5, 10, 15, words[s[8]], words[s[9]]);
    mix(1, 6, 11, 12, words[s[10]], words[s[11]]);
    mix(2, 7, 8, 13, words[s[12]], words[s[13]]);
    mix(3, 4, 9, 14, words[s[14]], words[s[15]]);
  }
  return state.map((word, i) => word ^ v[i] ^ v[i + 8]);
}

function blake2b(key, data, size) {
  const padded = Buffer.concat([Buffer.concat([key, Buffer.alloc(128 - key.length)]), data]);
  let state = [...IV];
  state[0] ^= 0x01010000n ^ (BigInt(key.length) << 8n) ^ BigInt(size);
  for (let start = 0; start < padded.length; start += 128) {
    const part = padded.subarray(start, start + 128);
    const block = Buffer.concat([part, Buffer.alloc(128 - part.length)]);
    state = compress(state, block, start + part.length, start + 128 >= padded.length);
  }
  const digest = Buffer.alloc(64);
  state.forEach((word, i) => digest.writeBigUInt64LE(word, 8 * i));
  return digest.subarray(0, size);
}

function prefixed(text) {
  const bytes = Buffer.from(text.normalize("NFC"), "utf8");
  const length = Buffer.alloc(2);
  length.writeUInt16BE(bytes.length);
  return Buffer.concat([length, bytes]);
}

function ballot({ key, poll, voter, index }) {
  const parts = [prefixed(poll), prefixed(voter)];
  if (index !== null) {
    const place = Buffer.alloc(4);
    place.writeUInt32BE(index);
    parts.push(place);
  }
  return blake2b(Buffer.from(key, "hex"), Buffer.concat(parts), 16);
}

let input = "";
for await (const chunk of process.stdin) input += chunk;
const wrong = JSON.parse(input).ballots.filter((vector) => {
  const made = ballot(vector).toString("hex");
  const partition = Number(BigInt("0x" + made) % BigInt(vector.partitions));
  return made !== vector.ballot || partition !== vector.partition;
});
console.log(JSON.stringify(wrong.map((vector) => vector.note)));
