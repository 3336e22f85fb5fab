// SHA-256 (FIPS 180-4). The hosts' own digest is asynchronous, and the key of a decision in memory is needed at once.

/** The first 32 bits of the fractional parts of a root of the first primes. */
function fractions(count: number, root: (prime: number) => number): Int32Array {
  const words = new Int32Array(count);
  for (let [found, number] = [0, 2]; found < count; number++) {
    let divisor = 2;
    while (number % divisor > 0) divisor += 1;
    if (divisor === number) words[found++] = (root(number) % 1) * 2 ** 32;
  }
  return words;
}

/** Made when they are needed first. */
let rounds: Int32Array | undefined;

/** The digest of bytes, as hexadecimal digits. */
export function sha256(bytes: Uint8Array): string {
  rounds ??= fractions(64, Math.cbrt);
  const sums = fractions(8, Math.sqrt);
  const padded = new Uint8Array(((bytes.length + 72) >> 6) << 6);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setBigUint64(padded.length - 8, 8n * BigInt(bytes.length));
  const words = new Int32Array(64);
  for (let at = 0; at < padded.length; at += 64) {
    let [a, b, c, d, e, f, g, h] = sums as unknown as [number, number, number, number, number, number, number, number];
    for (let nth = 0; nth < 64; nth++) {
      const [old, recent] = [words[nth - 15]!, words[nth - 2]!];
      words[nth] =
        nth < 16
          ? view.getInt32(at + 4 * nth)
          : words[nth - 16]! + (turn(old, 7) ^ turn(old, 18) ^ (old >>> 3)) + words[nth - 7]! + (turn(recent, 17) ^ turn(recent, 19) ^ (recent >>> 10));
      const one = h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + rounds[nth]! + words[nth]!;
      const two = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      [a, b, c, d, e, f, g, h] = [(one + two) | 0, a, b, c, (d + one) | 0, e, f, g];
    }
    [a, b, c, d, e, f, g, h].forEach((word, nth) => (sums[nth]! += word));
  }
  return Array.from(sums, (word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
}

function turn(word: number, by: number): number {
  return (word >>> by) | (word << (32 - by));
}
