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
  const rows = [[...Array(other.length + 1).keys()]];
  one.forEach((letter, line) => {
    const row = (rows[line + 1] = [line + 1]);
    other.forEach((wanted, column) => {
      const isSwapped = one[line - 1] === wanted && letter === other[column - 1];
      const swapped = isSwapped ? rows[line - 1]![column - 1]! : Infinity;
      row.push(1 + Math.min(swapped, row[column]!, rows[line]![column + 1]!, rows[line]![column]! - Number(letter === wanted)));
    });
  });
  return rows[one.length]!.at(-1)!;
}
