/** The known name that takes the fewest changes, if these are at most a third of its letters, and not all of them. */
export function nearest(unknown: string, known: readonly string[]): string | undefined {
  // Longer than any name: not worth the time.
  if (unknown.length > 64) return undefined;
  let [near, fewest]: [string | undefined, number] = [undefined, Infinity];
  for (const name of known) {
    const changes = distance(unknown, name);
    if (changes < fewest || (changes === fewest && name < near!)) [near, fewest] = [name, changes];
  }
  return near !== undefined && fewest <= Math.ceil(near.length / 3) && fewest < near.length ? near : undefined;
}

/** How many letters of a word are added, left out, replaced, or swapped with the next one: its distance from another. */
export function distance(word: string, otherWord: string): number {
  const [one, other] = [[...word], [...otherWord]];
  let [before, last]: [number[], number[]] = [[], [...Array(other.length + 1).keys()]];
  one.forEach((letter, line) => {
    const row = [line + 1];
    other.forEach((wanted, column) => {
      const isSwapped = line > 0 && column > 0 && one[line - 1] === wanted && letter === other[column - 1];
      const swapped = isSwapped ? before[column - 1]! + 1 : Infinity;
      row.push(Math.min(swapped, row[column]! + 1, last[column + 1]! + 1, last[column]! + Number(letter !== wanted)));
    });
    [before, last] = [last, row];
  });
  return last[other.length]!;
}
