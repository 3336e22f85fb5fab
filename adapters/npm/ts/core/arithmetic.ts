/** The most units of a limit, and the most of a limit times its span, so that all sums that decide are exact in doubles. */
export const MAX_UNITS = 2 ** 51;

/** The last instant, in milliseconds since the epoch. */
export const MAX_INSTANT = 2 ** 48 - 1;

/** How far apart the clocks of a store's clients may be: one minute. */
export const MAX_SKEW = 60_000;

/** An instant that is a span later, at most the last one. */
export function later(instant: number, span: number): number {
  return Math.min(instant + span, MAX_INSTANT);
}

/** How long after another instant this one is, or 0. */
export function since(instant: number, earlier: number): number {
  return Math.max(instant - earlier, 0);
}

/** Whether `a * b > c * d`, for whole numbers whose products may be rounded. */
export function exceeds(a: number, b: number, c: number, d: number): boolean {
  const [one, other] = [a * b, c * d];
  return one <= Number.MAX_SAFE_INTEGER && other <= Number.MAX_SAFE_INTEGER ? one > other : BigInt(a) * BigInt(b) > BigInt(c) * BigInt(d);
}

/** `a * b - c * d`, or 0 if that is negative. */
export function excess(a: number, b: number, c: number, d: number): number {
  const [one, other] = [a * b, c * d];
  if (one <= Number.MAX_SAFE_INTEGER || one < other) return Math.max(one - other, 0);
  const rest = BigInt(a) * BigInt(b) - BigInt(c) * BigInt(d);
  return rest > 0n ? Number(rest) : 0;
}

/** `a * b / c`, rounded down. */
export function share(a: number, b: number, c: number): number {
  const product = a * b;
  return product <= Number.MAX_SAFE_INTEGER ? Math.floor(product / c) : Number((BigInt(a) * BigInt(b)) / BigInt(c));
}
