/** How similar two words are, from 0 to 1, by Jaro: the letters that both have at about the same place. */
export function similarity(one: string, other: string): number {
  const [a, b] = [[...one], [...other]];
  if (a.length === 0 || b.length === 0) return a.length === b.length ? 1 : 0;
  const range = Math.max(Math.floor(Math.max(a.length, b.length) / 2) - 1, 0);
  const [inA, inB]: [boolean[], boolean[]] = [[], []];
  a.forEach((letter, at) => {
    for (let to = Math.max(at - range, 0); to < Math.min(at + range + 1, b.length); to++) {
      if (inB[to] || b[to] !== letter) continue;
      [inA[at], inB[to]] = [true, true];
      break;
    }
  });
  const [common, inOrder] = [a.filter((_, at) => inA[at]), b.filter((_, at) => inB[at])];
  const found = common.length;
  if (found === 0) return 0;
  const swapped = common.filter((letter, at) => letter !== inOrder[at]).length / 2;
  return (found / a.length + found / b.length + (found - swapped) / found) / 3;
}
