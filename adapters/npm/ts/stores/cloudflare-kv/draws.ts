// The same pseudo-random numbers as in `draws.rs` and `table.rs` of `tidegate-cloudflare`: a seed determines all that an isolate does.

/** The step of SplitMix64 (<https://prng.di.unimi.it/splitmix64.c>). */
const STEP = 0x9e3779b97f4a7c15n;

const low = (bits: bigint) => BigInt.asUintN(64, bits);

/** The first number of the sequence that follows from a seed. */
export function mixed(seed: bigint): bigint {
  let bits = low(seed + STEP);
  bits = low((bits ^ (bits >> 30n)) * 0xbf58476d1ce4e5b9n);
  bits = low((bits ^ (bits >> 27n)) * 0x94d049bb133111ebn);
  return bits ^ (bits >> 31n);
}

/** Draws the numbers that follow from a seed. */
export function draws(seed: bigint): () => bigint {
  let next = seed;
  return () => {
    const drawn = mixed(next);
    next = low(next + STEP);
    return drawn;
  };
}

const encoder = new TextEncoder();

/** Room for the bytes of a text, which is longer than any name of Workers KV. */
const bytes = new Uint8Array(512);
const words = new BigUint64Array(bytes.buffer);

/** A hash of a text. Nobody who does not know the seed can choose texts with equal hashes. */
export function hashOf(seed: bigint, text: string): bigint {
  const { written } = encoder.encodeInto(text, bytes);
  bytes.fill(0, written, written + 7);
  let hash = seed;
  for (let at = 0; at < written; at += 8) hash = mixed(hash ^ words[at / 8]!);
  return hash;
}
